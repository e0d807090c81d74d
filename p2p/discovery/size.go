package discovery

// Size is the estimated number of peers in the network, from the distances between those near some keys. It is 0 while
// too few were looked up, and in a network of a few peers.
func (d *Discovery) Size() int {
	n, err := d.dht.NetworkSize()
	if err != nil {
		return 0
	}
	return max(int(n), 0)
}
