package overlay

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/time/rate"

	"github.com/starling-network/starling/p2p/overlay/index"
	"github.com/starling-network/starling/p2p/overlay/port"
	"github.com/starling-network/starling/p2p/overlay/wire"
)

// Network is all overlays of one host.
type Network struct {
	name     string // of the libp2p network
	log      *slog.Logger
	stats    Stats
	plain    bool         // ports are used without offloads
	greeting atomic.Int64 // streams that have not named their member yet
	watch    *network.NotifyBundle

	mu      sync.Mutex
	h       host.Host
	seen    func() []ma.Multiaddr // where others see this host; nil: not known
	ports   []port.Port
	devices map[PublicKey]*Device
	shared  bool
	closed  bool

	list atomic.Pointer[[]*Device]

	index *index.Index[*member]
}

// New makes the overlays of a host on a libp2p network. ListenUDP is for its QUIC; Attach must follow.
func New(name string, log *slog.Logger) *Network {
	n := &Network{name: name, log: log, devices: make(map[PublicKey]*Device), index: index.New[*member]()}
	n.list.Store(new([]*Device))
	n.watch = &network.NotifyBundle{ConnectedF: n.connected}
	return n
}

// Plain makes later ports use no kernel offloads (UDP_SEGMENT, UDP_GRO), and one datagram a call. It is for kernels and
// sandboxes with broken offloads; missing offloads are detected. It is called before [Network.ListenUDP].
func (n *Network) Plain() { n.plain = true }

// Attach sets the host for streams, and the function that returns this host's observed addresses, which may be nil.
func (n *Network) Attach(h host.Host, seen func() []ma.Multiaddr) {
	n.mu.Lock()
	n.h, n.seen = h, seen
	n.mu.Unlock()
	h.SetStreamHandler(n.protocol(), n.accept)
	h.Network().Notify(n.watch)
}

// ListenUDP opens the ports of libp2p's QUIC.
func (n *Network) ListenUDP(network string, laddr *net.UDPAddr) (net.PacketConn, error) {
	c, p, err := port.Listen(network, laddr, n.plain, sorter{n})
	if err != nil {
		return nil, err
	}
	if p != nil { // QUIC's alone otherwise
		if err := n.open(p); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// open notes a port.
func (n *Network) open(p port.Port) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrClosed
	}
	n.ports = append(n.ports, p)
	shared := n.shared
	n.mu.Unlock()
	if shared {
		p.Share()
	}
	return nil
}

func (n *Network) forget(p port.Port) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports = slices.DeleteFunc(n.ports, func(o port.Port) bool { return o == p })
}

// Join makes this host a member of an overlay, at first without others.
func (n *Network) Join(cfg Config) (*Device, error) {
	if err := cfg.check(); err != nil {
		if cfg.Tun != nil {
			err = errors.Join(err, cfg.Tun.Close())
		}
		return nil, err
	}
	pub, err := cfg.Key.Public()
	if err != nil {
		return nil, errors.Join(err, cfg.Tun.Close())
	}
	t, err := openTunnel(cfg.Tun)
	if err != nil {
		return nil, err
	}
	d := newDevice(n, cfg, pub, &tunnel{TUN: t, errors: rate.NewLimiter(errorRate, errorBurst)})
	if err := n.add(d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.up(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (n *Network) add(d *Device) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed || n.h == nil:
		return ErrClosed
	case len(n.devices) >= MaxDevices:
		return fmt.Errorf("%w: this host is in %d", ErrFull, len(n.devices))
	case n.devices[d.pub] != nil:
		return fmt.Errorf("%w: this host has joined with this key already", ErrConfig)
	}
	n.devices[d.pub] = d
	n.relist()
	n.shared = true
	for _, p := range n.ports {
		p.Share()
	}
	return nil
}

func (n *Network) drop(d *Device) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.devices[d.pub] == d {
		delete(n.devices, d.pub)
		n.relist()
	}
}

func (n *Network) relist() {
	list := make([]*Device, 0, len(n.devices))
	for _, d := range n.devices {
		list = append(list, d)
	}
	n.list.Store(&list)
}

// find is the device with a key.
func (n *Network) find(key PublicKey) *Device {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.devices[key]
}

// portFor is the port from which to send to an address: a listening one before one on a single address, and those first
// that were open first.
func (n *Network) portFor(to netip.Addr) port.Port {
	n.mu.Lock()
	defer n.mu.Unlock()
	var best port.Port
	for _, p := range n.ports {
		if !p.Fits(to) {
			continue
		}
		at := p.Local().Addr()
		if at.IsUnspecified() {
			return p
		}
		if best == nil && at.IsLoopback() == to.IsLoopback() {
			best = p
		}
	}
	return best
}

// target is for whom a datagram is.
type target struct {
	kind   int
	device *Device // nil: no recipient
	member *member // nil: not known yet
	runs   bool    // the next datagram may be for the same one
}

// whose returns the recipient of a datagram. Kind is kindOther for QUIC's datagrams.
func (n *Network) whose(p []byte) target {
	kind := wire.KindOf(p)
	switch kind {
	case wire.Other, wire.Junk:
		return target{kind: kind, runs: true}
	case wire.Initiation:
		for _, d := range *n.list.Load() {
			if d.macs.CheckMAC1(p) {
				return target{kind: kind, device: d}
			}
		}
		return target{kind: kind}
	case wire.Probe:
		m := n.index.Tagged(wire.TagOf(p))
		if m == nil {
			return target{kind: kind}
		}
		return target{kind: kind, device: m.d, member: m}
	}
	m := n.index.Given(wire.Receiver(kind, p))
	if m == nil {
		return target{kind: kind}
	}
	return target{kind: kind, device: m.d, member: m, runs: true}
}

// Close leaves every overlay. The ports stay open for QUIC.
func (n *Network) Close() error {
	n.mu.Lock()
	n.closed = true
	h := n.h
	n.mu.Unlock()
	if h != nil {
		h.RemoveStreamHandler(n.protocol())
		h.Network().StopNotify(n.watch)
	}
	var errs []error
	for _, d := range *n.list.Load() {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// host is the libp2p host, nil before Attach.
func (n *Network) host() host.Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.h
}

// id is the host's own peer ID.
func (n *Network) id() peer.ID {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.h == nil {
		return ""
	}
	return n.h.ID()
}
