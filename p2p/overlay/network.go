package overlay

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"
	"golang.zx2c4.com/wireguard/device"
)

// port is a UDP port that is shared with QUIC.
type port interface {
	share()
	send(packets [][]byte, to netip.AddrPort) error
	fits(to netip.Addr) bool
	local() netip.AddrPort
}

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
	ports   []port
	devices map[PublicKey]*Device
	shared  bool
	closed  bool

	list atomic.Pointer[[]*Device]

	index struct {
		sync.RWMutex
		byIndex map[uint32]*member // indices that devices gave out
		byTag   map[tag]*member    // probes that members send
	}
}

// New makes the overlays of a host on a libp2p network. ListenUDP is for its QUIC; Attach must follow.
func New(name string, log *slog.Logger) *Network {
	n := &Network{name: name, log: log, devices: make(map[PublicKey]*Device)}
	n.index.byIndex, n.index.byTag = make(map[uint32]*member), make(map[tag]*member)
	n.list.Store(new([]*Device))
	n.watch = &network.NotifyBundle{ConnectedF: n.connected}
	return n
}

// Plain makes the ports that are opened from now on do without the kernel's offloads (UDP_SEGMENT, UDP_GRO) and with
// one datagram a call, for kernels and sandboxes in which those fail; where they are merely missing that is found out.
// It is called before [Network.ListenUDP].
func (n *Network) Plain() { n.plain = true }

// Attach sets the host for streams, and the function that returns this host's observed addresses, which may be nil.
func (n *Network) Attach(h host.Host, seen func() []ma.Multiaddr) {
	n.mu.Lock()
	n.h, n.seen = h, seen
	n.mu.Unlock()
	h.SetStreamHandler(n.protocol(), n.accept)
	h.Network().Notify(n.watch)
}

// open notes a port.
func (n *Network) open(p port) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrClosed
	}
	n.ports = append(n.ports, p)
	shared := n.shared
	n.mu.Unlock()
	if shared {
		p.share()
	}
	return nil
}

func (n *Network) forget(p port) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports = slices.DeleteFunc(n.ports, func(o port) bool { return o == p })
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
	tun, err := openTunnel(cfg.Tun)
	if err != nil {
		return nil, fmt.Errorf("taking over the TUN: %w", err)
	}
	d := newDevice(n, cfg, pub, tun)
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
		p.share()
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
func (n *Network) portFor(to netip.Addr) port {
	n.mu.Lock()
	defer n.mu.Unlock()
	var best port
	for _, p := range n.ports {
		if !p.fits(to) {
			continue
		}
		at := p.local().Addr()
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
	device *Device // nil: nobody
	member *member // nil: not known yet
	runs   bool    // the next datagram may be for the same one
}

// whose finds the recipient of a datagram. Kind is kindOther for QUIC's.
func (n *Network) whose(p []byte) target {
	kind := kindOf(p)
	switch kind {
	case kindOther, kindJunk:
		return target{kind: kind, runs: true}
	case kindInitiation:
		for _, d := range *n.list.Load() {
			if d.macs.CheckMAC1(p) {
				return target{kind: kind, device: d}
			}
		}
		return target{kind: kind}
	case kindProbe:
		n.index.RLock()
		m := n.index.byTag[tagOf(p)]
		n.index.RUnlock()
		if m == nil {
			return target{kind: kind}
		}
		return target{kind: kind, device: m.d, member: m}
	}
	n.index.RLock()
	m := n.index.byIndex[receiverOf(kind, p)]
	n.index.RUnlock()
	if m == nil {
		return target{kind: kind}
	}
	return target{kind: kind, device: m.d, member: m, runs: true}
}

const (
	// indexLife is how long an index can be in use: WireGuard gives a key up after 180 s.
	indexLife = device.RejectAfterTime + 20*time.Second
	// maxIndices bounds those of one member: it can make us answer 50 initiations a second.
	maxIndices = 256
)

type given struct {
	index uint32
	at    time.Time
}

// learn notes an index that a device gives to a member.
func (n *Network) learn(m *member, index uint32) {
	now := time.Now()
	n.index.Lock()
	defer n.index.Unlock()
	if m.gone {
		return
	}
	for len(m.given) > 0 && (now.Sub(m.given[0].at) > indexLife || len(m.given) >= maxIndices) {
		if n.index.byIndex[m.given[0].index] == m {
			delete(n.index.byIndex, m.given[0].index)
		}
		m.given = m.given[1:]
	}
	m.given = append(m.given, given{index, now})
	n.index.byIndex[index] = m
}

// know makes the probes of a member known.
func (n *Network) know(m *member) {
	n.index.Lock()
	defer n.index.Unlock()
	n.index.byTag[m.theirs] = m
}

// unknow forgets all that a member could be known by.
func (n *Network) unknow(m *member) {
	n.index.Lock()
	defer n.index.Unlock()
	m.gone = true
	if n.index.byTag[m.theirs] == m {
		delete(n.index.byTag, m.theirs)
	}
	for _, g := range m.given {
		if n.index.byIndex[g.index] == m {
			delete(n.index.byIndex, g.index)
		}
	}
	m.given = nil
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
