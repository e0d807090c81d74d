// Package natlab emulates an internet of home routers and firewalls on one Linux machine: network namespaces, joined by
// veth pairs and a bridge, with nftables in the routers, and a UPnP daemon in those that have it. Real peer processes
// run inside. The machine's own namespaces and rules are left alone, and the namespaces belong to no file: they are
// gone when the process that made them is.
package natlab
