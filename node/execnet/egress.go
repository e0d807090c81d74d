package execnet

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/executor/member"
	"github.com/starling-network/starling/p2p/overlay/egress"
)

// Egress is the section of the configuration about the way of containers to the outside, for jobs that ask for it. They
// never reach this machine, its local network, and mail servers (TCP ports 25, 465 and 587).
type Egress struct {
	// Mode is none, allowlist or internet; empty means none.
	Mode string `yaml:"mode"`
	// Allow are the rules of an allow list: HOST[:PORT[-PORT][,…]] with a domain name, *.NAME, an IPv4 address or a
	// range a.b.c.d/n.
	Allow []string `yaml:"allow"`
	// Limits bound each container; 0 takes the default.
	Limits EgressLimits `yaml:"limits"`
}

// EgressLimits are for one container.
type EgressLimits struct {
	Flows        int           `yaml:"flows"`        // connections at a time
	NewPerSecond float64       `yaml:"newPerSecond"` // new connections a second
	MbitPerSec   float64       `yaml:"mbitPerSecond"`
	Names        float64       `yaml:"namesPerSecond"` // names looked up a second
	Idle         time.Duration `yaml:"idle"`           // a TCP connection on which nothing moves is cut
}

// Policy returns the section's rules and limits.
func (e Egress) Policy() (egress.Policy, egress.Limits, error) {
	p := egress.Policy{Mode: cmp.Or(egress.Mode(e.Mode), egress.ModeNone)}
	var err error
	if p.Allow, err = egress.ParseRules(e.Allow); err != nil {
		return p, egress.Limits{}, fmt.Errorf("allow: %w", err)
	}
	l := egress.Limits{
		Flows: e.Limits.Flows, NewFlows: e.Limits.NewPerSecond, BytesPerSec: e.Limits.MbitPerSec * 1e6 / 8,
		Queries: e.Limits.Names, IdleTCP: e.Limits.Idle,
	}
	return p, l, errors.Join(p.Check(), l.Check())
}

// outside returns the way out for one container, and to the peer's own services. own are this machine's addresses as
// others see them, and b is the memory of all containers' connections.
func outside(e Egress, own func() []netip.Addr, j member.Joining, b *egress.Budget) (*egress.Stack, error) {
	p, l, err := e.Policy()
	if err != nil {
		return nil, err
	}
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
