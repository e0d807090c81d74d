// Package natlab emulates an internet of home routers and firewalls on one Linux machine: network namespaces, joined by
// veth pairs and a bridge, with nftables in the routers, and optionally a UPnP daemon. Real peer processes run inside.
// It does not change the machine's own namespaces and rules. The namespaces are bound to no file and end with the
// process that made them.
package natlab
