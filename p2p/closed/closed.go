// Package closed lists the addresses that a machine must not open to others. Programs that it runs for others (a
// container, a webhook) could otherwise reach its own services, its neighbours' services, and the metadata address of
// clouds, which gives out credentials. The list is IANA's special-purpose address registries (RFC 6890 and its
// updates), without the ranges that are routed on the internet.
//
// Addresses that embed another (IPv4-mapped, NAT64, 6to4, Teredo) are closed regardless of the embedded address: they
// are not needed, and a translator may lead anywhere.
package closed

import "net/netip"

// entry is a range and its use.
type entry struct {
	prefix netip.Prefix
	why    string
}

func list(pairs ...string) (out []entry) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, entry{netip.MustParsePrefix(pairs[i]), pairs[i+1]})
	}
	return out
}

var v4 = list(
	"0.0.0.0/8", "this network",
	"10.0.0.0/8", "a private network",
	"100.64.0.0/10", "a carrier's private network",
	"127.0.0.0/8", "loopback",
	"169.254.0.0/16", "link-local, where clouds keep their metadata",
	"172.16.0.0/12", "a private network",
	"192.0.0.0/24", "protocol assignments",
	"192.0.2.0/24", "documentation",
	"192.88.99.0/24", "6to4 relays",
	"192.168.0.0/16", "a private network",
	"198.18.0.0/15", "benchmarks",
	"198.51.100.0/24", "documentation",
	"203.0.113.0/24", "documentation",
	"224.0.0.0/4", "multicast",
	"240.0.0.0/4", "reserved and broadcast",
)

var v6 = list(
	"::/128", "unspecified",
	"::1/128", "loopback",
	"::ffff:0:0/96", "IPv4-mapped",
	"64:ff9b::/96", "NAT64",
	"64:ff9b:1::/48", "NAT64",
	"2001::/23", "protocol assignments and Teredo",
	"2001:db8::/32", "documentation",
	"2002::/16", "6to4",
	"3fff::/20", "documentation",
	"fc00::/7", "a private network",
	"fe80::/10", "link-local",
	"fec0::/10", "site-local",
	"ff00::/8", "multicast",
)

// global is the part of IPv6 that is routed on the internet; other addresses are closed too.
var global = netip.MustParsePrefix("2000::/3")

// Why returns the reason why an address is closed, in a few words; empty means that it is open. An IPv4-mapped address
// (::ffff:a.b.c.d) counts as the IPv4 address, as for sockets.
func Why(a netip.Addr) string {
	if !a.IsValid() {
		return "no address"
	}
	if a.Zone() != "" {
		return "link-local"
	}
	a = a.Unmap()
	entries := v6
	if a.Is4() {
		entries = v4
	}
	for _, e := range entries {
		if e.prefix.Contains(a) {
			return e.why
		}
	}
	if a.Is6() && !global.Contains(a) {
		return "not routed on the internet"
	}
	return ""
}

// Range returns the closed range that an address lies in, and the zero prefix for an open one.
func Range(a netip.Addr) netip.Prefix {
	if Why(a) == "" {
		return netip.Prefix{}
	}
	a = a.WithZone("").Unmap()
	for _, entries := range [][]entry{v4, v6} {
		for _, e := range entries {
			if e.prefix.Contains(a) {
				return e.prefix
			}
		}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// Whole reports that no address of a range is open.
func Whole(p netip.Prefix) bool {
	if !p.IsValid() {
		return true
	}
	p = p.Masked()
	if p.Addr().Is6() && !p.Overlaps(global) {
		return true
	}
	for _, entries := range [][]entry{v4, v6} {
		for _, e := range entries {
			if e.prefix.Bits() <= p.Bits() && e.prefix.Overlaps(p) {
				return true
			}
		}
	}
	return false
}
