// Package p2ptest makes whole p2p hosts for tests: on a simulated network with a round-trip time, which
// runs inside a testing/synctest bubble, or on the machine's loopback over TCP and QUIC.
package p2ptest

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/x/simlibp2p"
	"github.com/marcopolo/simnet"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p"
)

// Network is the name of the network that the hosts of this package are on.
const Network = "test"

const (
	// linkBits is the capacity of every simulated link in bits per second, each way.
	linkBits = 1000 * simlibp2p.OneMbps
	// never is the latency of a lost packet: longer than any test waits.
	never = 10 * 365 * 24 * time.Hour
)

// Key is a private key that depends on i only.
func Key(i int) crypto.PrivKey {
	seed := [32]byte{0: 0x5a}
	binary.BigEndian.PutUint64(seed[8:], uint64(i))
	return p2p.PrivKey(seed)
}

// Quiet is a logger that discards everything.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// added is a host with a key and an address of its own.
type added struct {
	key     crypto.PrivKey
	address int
}

// Net is a simulated network. Host i has the key Key(i), unless it is a twin, and one address of its own, also after a
// restart. Its methods are for the goroutine of the test.
type Net struct {
	Hosts []*p2p.Host // nil where crashed

	t   testing.TB
	sim *simnet.Simnet

	keys map[int]int // hosts that have another's key
	more []added     // hosts that Add made, after the first ones

	mu   sync.Mutex
	side map[string]int // IP → side of a partition, 0 when absent; packets between sides are lost
}

// NewNet makes n hosts with the round-trip time rtt between any two. No hosts are connected. All are closed at the end
// of the test; inside a synctest bubble, pass the bubble's t.
func NewNet(t testing.TB, n int, rtt time.Duration) *Net {
	t.Helper()
	nw := &Net{t: t, Hosts: make([]*p2p.Host, n), side: make(map[string]int), keys: map[int]int{}}
	nw.sim = &simnet.Simnet{Logger: Quiet(), LatencyFunc: func(p *simnet.Packet) time.Duration {
		nw.mu.Lock()
		defer nw.mu.Unlock()
		if nw.side[ipOf(p.From)] != nw.side[ipOf(p.To)] {
			return never
		}
		return rtt / 2
	}}
	nw.sim.Start()
	t.Cleanup(func() {
		for _, h := range nw.Hosts {
			if h != nil {
				h.Close()
			}
		}
		nw.sim.Close()
	})
	for i := range n {
		nw.Restart(i, p2p.Config{})
	}
	return nw
}

// Addr is host i as others dial it, running or not.
func (n *Net) Addr(i int) peer.AddrInfo {
	id, err := peer.IDFromPrivateKey(n.key(i))
	if err != nil {
		n.t.Fatal(err)
	}
	return peer.AddrInfo{ID: id, Addrs: []ma.Multiaddr{ma.StringCast(n.listen(i))}}
}

// Add makes one more host, with a key and an address by its number: hosts with numbers that differ by 256 are in
// different networks, and by 65,536 in different IPv4 /16. It returns the host's index.
func (n *Net) Add(key crypto.PrivKey, address int) int {
	n.t.Helper()
	i := len(n.Hosts)
	n.Hosts, n.more = append(n.Hosts, nil), append(n.more, added{key, address})
	n.Restart(i, p2p.Config{})
	return i
}

// number is the number of host i's address.
func (n *Net) number(i int) int {
	if first := len(n.Hosts) - len(n.more); i >= first {
		return n.more[i-first].address
	}
	return i
}

// Restart makes host i anew, closing the old one. Of cfg only the fields that the network does not decide are used:
// Bootstrap, PeerstoreDir, Low, High, Agent and Logger.
func (n *Net) Restart(i int, cfg p2p.Config) *p2p.Host {
	n.t.Helper()
	if n.Hosts[i] != nil {
		n.Hosts[i].Close()
		n.Hosts[i] = nil
	}
	n.setSide(i, 0)
	h, err := p2p.New(n.config(i, cfg))
	if err != nil {
		n.t.Fatal(err)
	}
	n.Hosts[i] = h
	return h
}

// Twin makes host i anew with the key of host of: two processes that pass for one peer.
func (n *Net) Twin(i, of int) *p2p.Host {
	n.t.Helper()
	n.keys[i] = of
	return n.Restart(i, p2p.Config{})
}

func (n *Net) key(i int) crypto.PrivKey {
	if of, twin := n.keys[i]; twin {
		i = of
	}
	if first := len(n.Hosts) - len(n.more); i >= first {
		return n.more[i-first].key
	}
	return Key(i)
}

// config is cfg on the simulated link of host i.
func (n *Net) config(i int, cfg p2p.Config) p2p.Config {
	link := simnet.LinkSettings{BitsPerSecond: linkBits}
	cfg.Key, cfg.Network, cfg.Listen = n.key(i), Network, []string{n.listen(i)}
	cfg.Transport = libp2p.ChainOptions(
		simlibp2p.QUICSimnet(n.sim, simnet.NodeBiDiLinkSettings{Downlink: link, Uplink: link}),
		libp2p.Transport(libp2pquic.NewTransport))
	if cfg.Logger == nil {
		cfg.Logger = Quiet()
	}
	return cfg
}

// Light makes a light host in the place of host i, closing the one there is. It is closed at the end of the test.
func (n *Net) Light(i int) *p2p.Light {
	n.t.Helper()
	if n.Hosts[i] != nil {
		n.Hosts[i].Close()
		n.Hosts[i] = nil
	}
	n.setSide(i, 0)
	l, err := p2p.NewLight(n.config(i, p2p.Config{}), false)
	if err != nil {
		n.t.Fatal(err)
	}
	n.Hosts[i] = l.Host
	return l
}

// Crash ends host i as a power cut does: no peer is notified.
func (n *Net) Crash(i int) {
	n.setSide(i, -1-i)
	n.Hosts[i].Close()
	n.Hosts[i] = nil
}

// Cut takes host i off the network at once: no packet to or from it arrives, and it receives no notice. Crash or
// Restart must follow. Any goroutine may call it.
func (n *Net) Cut(i int) { n.setSide(i, -1-i) }

// Partition splits the network: the given hosts reach only each other.
func (n *Net) Partition(hosts ...int) {
	for _, i := range hosts {
		n.setSide(i, 1)
	}
}

// Heal undoes every partition.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ip, side := range n.side {
		if side > 0 {
			delete(n.side, ip)
		}
	}
}

// ConnectAll connects every running host to every other.
func (n *Net) ConnectAll() {
	n.t.Helper()
	ConnectAll(n.t, n.Hosts...)
}

func (n *Net) setSide(i, side int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.side[simnet.IntToPublicIPv4(n.number(i)).String()] = side
}

func (n *Net) listen(i int) string {
	return fmt.Sprintf("/ip4/%s/udp/8000/quic-v1", simnet.IntToPublicIPv4(n.number(i)))
}

func ipOf(a net.Addr) string {
	if u, ok := a.(*net.UDPAddr); ok {
		return u.IP.String()
	}
	return a.String()
}

// Loopback makes n hosts on 127.0.0.1, over TCP and QUIC on free ports. No hosts are connected. They are closed at the
// end of the test.
func Loopback(t testing.TB, n int) []*p2p.Host {
	t.Helper()
	hosts := make([]*p2p.Host, n)
	for i := range hosts {
		hosts[i] = LoopbackHost(t, p2p.Config{Key: Key(i)})
	}
	return hosts
}

// LoopbackHost makes one host on 127.0.0.1 with cfg; Network, Listen and Logger are filled in when empty.
func LoopbackHost(t testing.TB, cfg p2p.Config) *p2p.Host {
	t.Helper()
	if cfg.Network == "" {
		cfg.Network = Network
	}
	if len(cfg.Listen) == 0 {
		cfg.Listen = []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}
	}
	if cfg.Logger == nil {
		cfg.Logger = Quiet()
	}
	h, err := p2p.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// Through returns the addresses of a peer that has a place at a relay.
func Through(relay *p2p.Host, p peer.ID) peer.AddrInfo {
	via := peer.AddrInfo{ID: p}
	for _, a := range relay.Addrs() {
		via.Addrs = append(via.Addrs, a.Encapsulate(ma.StringCast("/p2p/"+relay.ID().String()+"/p2p-circuit")))
	}
	return via
}

// ConnectAll connects every host to every other, over one transport: on a slow machine both transports may connect, and
// the dropped connection stays open at its other end for a moment. Nil hosts are skipped.
func ConnectAll(t testing.TB, hosts ...*p2p.Host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, h := range hosts {
		for _, o := range hosts[:i] {
			if h == nil || o == nil {
				continue
			}
			to := o.AddrInfo()
			if tcp := ma.FilterAddrs(to.Addrs, func(a ma.Multiaddr) bool { return !has(a, ma.P_UDP) }); len(tcp) > 0 {
				to.Addrs = tcp
			}
			if err := h.Connect(ctx, to); err != nil {
				t.Fatalf("connecting %s to %s: %v", h.ID(), o.ID(), err)
			}
		}
	}
}

func has(a ma.Multiaddr, code int) bool {
	_, err := a.ValueForProtocol(code)
	return err == nil
}

// Go runs run in the background until the returned function is called or the test ends, and fails the
// test if it returns an error. The returned function waits for run to return.
func Go(t testing.TB, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}
