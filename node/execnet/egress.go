package execnet

import (
	"net/netip"
	"strings"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/executor/member"
	"github.com/starling-network/starling/p2p/overlay/egress"
)

// outside returns the way out for one container, and to the peer's own services. own are this machine's addresses as
// others see them, and b is the memory of all containers' connections.
func outside(
	p egress.Policy, l egress.Limits, own func() []netip.Addr, j member.Joining, b *egress.Budget,
) (*egress.Stack, error) {
	return egress.New(egress.Config{
		Address: j.Address, Service: cluster.Service, MTU: j.MTU, Policy: p.Asked(j.Internet), Limits: l,
		Names: directory{j.Names}, Domain: strings.ToLower(j.Cluster), Services: j.Services, Own: own, Budget: b,
		Log: j.Log,
	})
}

// directory is the names of a cluster, and of none if names is nil.
type directory struct{ names func(string) []netip.Addr }

// Addresses implements egress.Directory.
func (d directory) Addresses(name string) []netip.Addr {
	if d.names == nil {
		return nil
	}
	return d.names(name)
}

// Name implements egress.Directory.
func (d directory) Name(a netip.Addr) string {
	if rank, ok := cluster.RankOf(a); ok && len(d.Addresses(cluster.Name(rank))) > 0 {
		return cluster.Name(rank)
	}
	return ""
}

// addrsOf returns the addresses that a host is known by outside, its router's too: no container reaches them.
func addrsOf(known []ma.Multiaddr) (out []netip.Addr) {
	for _, a := range known {
		if ip, err := manet.ToIP(a); err == nil {
			if addr, ok := netip.AddrFromSlice(ip); ok {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out
}
