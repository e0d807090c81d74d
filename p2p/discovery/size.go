package discovery

// Size is about how many peers the network has, as the distances between those near some keys tell; 0 while too few
// were looked up, and in a network of a few peers.
func (d *Discovery) Size() int {
	n, err := d.dht.NetworkSize()
	if err != nil {
		return 0
	}
	return max(int(n), 0)
}
