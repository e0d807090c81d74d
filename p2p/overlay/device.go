package overlay

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/device"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/overlay/index"
	"github.com/starling-network/starling/p2p/overlay/packet"
	"github.com/starling-network/starling/p2p/overlay/turns"
	"github.com/starling-network/starling/p2p/overlay/wire"
)

// handshakeRate bounds the initiations a second of which a device computes the sender, which costs a multiplication on
// the curve. Only peers that know the device's public key can cause it.
const (
	handshakeRate  = 400
	handshakeBurst = 2 * MaxMembers
	// knownRate is for initiations from members' current addresses, beyond the others: a flood of forged ones cannot
	// stop the renewal of a member's handshake.
	knownRate, knownBurst = 100, MaxMembers
)

// disallowed begins WireGuard's log line about a packet in which a member uses another's address. It has dropped it.
const disallowed = "IPv4 packet with disallowed source"

// Device is one membership, until it is closed.
type Device struct {
	n     *Network
	cfg   Config
	pub   PublicKey
	log   *slog.Logger
	tun   *tunnel
	queue *turns.Queue
	wg    *device.Device
	macs  device.CookieChecker
	rate  *rate.Limiter
	known *rate.Limiter
	where atomic.Pointer[map[netip.AddrPort]bool] // where members are now

	inbox   *turns.Inbox[sentBy]
	passage *turns.Passage
	probes  chan probe
	poke    chan struct{} // 1: look now which members are to be probed

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	shut   sync.Once

	mu     sync.Mutex // held during a change of the members, with WireGuard's part of it
	closed bool
	byKey  atomic.Pointer[map[PublicKey]*member] // replaced, never changed
	byAddr atomic.Pointer[map[netip.Addr]*member]
}

// member is another member as a device sees it.
type member struct {
	Member
	d    *Device
	here bool // its device is on this host

	keys wire.Pair // of the probes

	direct  atomic.Pointer[route] // nil: over the stream
	mtu     atomic.Int32          // of the direct path
	waiting turns.Origin[sentBy]  // in the device's inbox
	out     *carrier
	probing probing

	entry  *index.Entry[*member] // in the network's index
	outlet turns.Outlet          // of the device's queue
}

// sentBy is the sender of packets: a member, nil if it is not known yet, and the way that they came.
type sentBy struct {
	member *member
	from   route // its port is nil for those of a stream or of this host
}

func (m *member) arrival(t packet.Train, from route) turns.Arrival[sentBy] {
	a := turns.Arrival[sentBy]{Train: t, From: sentBy{m, from}}
	if m != nil {
		a.Origin = &m.waiting
	}
	return a
}

func newDevice(n *Network, cfg Config, pub PublicKey, tun *tunnel) *Device {
	d := &Device{n: n, cfg: cfg, pub: pub, log: cfg.Log.With("overlay", cfg.Address), tun: tun,
		queue: turns.NewQueue(&n.stats.dropped[dropQueue]), rate: rate.NewLimiter(handshakeRate, handshakeBurst),
		known: rate.NewLimiter(knownRate, knownBurst), inbox: turns.NewInbox[sentBy](&n.stats.dropped[dropBusy]),
		passage: turns.NewPassage(), probes: make(chan probe, probeQueue),
		poke: make(chan struct{}, 1)}
	d.byKey.Store(new(map[PublicKey]*member))
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.byAddr.Store(new(map[netip.Addr]*member))
	d.where.Store(new(map[netip.AddrPort]bool))
	d.macs.Init(device.NoisePublicKey(pub))
	tun.d = d
	d.wg = device.NewDevice(tun, &bind{d: d}, &device.Logger{
		Verbosef: func(format string, _ ...any) {
			if strings.HasPrefix(format, disallowed) {
				n.stats.dropped[dropSpoofed].Add(1)
			}
		},
		Errorf: func(format string, args ...any) { d.log.Debug("wireguard", "err", fmt.Sprintf(format, args...)) },
	})
	return d
}

// up begins to work.
func (d *Device) up() error {
	if err := d.wg.IpcSet("private_key=" + hex.EncodeToString(d.cfg.Key[:]) + "\n"); err != nil {
		return fmt.Errorf("setting the key: %w", err)
	}
	if err := d.wg.Up(); err != nil {
		return fmt.Errorf("starting WireGuard: %w", err)
	}
	if d.cfg.Outside != nil {
		d.cfg.Outside.SetWriter(d.tun.fromOutside)
	}
	d.tasks.Go(d.tun.pump)
	d.tasks.Go(d.probe)
	return nil
}

// Close leaves the overlay and closes the TUN.
func (d *Device) Close() error {
	d.shut.Do(func() {
		d.n.drop(d)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.closed = true
		gone := slices.Collect(maps.Values(*d.byKey.Load()))
		d.byKey.Store(new(map[PublicKey]*member))
		d.byAddr.Store(new(map[netip.Addr]*member))
		d.cancel()
		for _, m := range gone {
			d.n.index.Remove(m.entry)
			m.out.close()
		}
		d.queue.Close()
		d.wg.Close() // and the TUN
		d.inbox.Close()
		d.tasks.Wait()
		if d.cfg.Outside != nil {
			d.cfg.Outside.SetWriter(nil)
		}
	})
	return nil
}

// member is the one with a key, or nil.
func (d *Device) member(key PublicKey) *member { return (*d.byKey.Load())[key] }

func (d *Device) named(key string) *member {
	b, err := hex.DecodeString(key)
	if err != nil || len(b) != 32 {
		return nil
	}
	return d.member(PublicKey(b))
}

// at is the member with an address, or nil.
func (d *Device) at(a netip.Addr) *member { return (*d.byAddr.Load())[a] }

// SetMembers replaces the list of members. When it returns, a removed member can no longer send. An entry with this
// device's own key is ignored.
func (d *Device) SetMembers(list []Member) error {
	if err := d.checkMembers(list); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	self, before := d.n.id(), *d.byKey.Load()
	next := make(map[PublicKey]*member, len(list))
	var fresh, gone []*member
	for _, m := range list {
		if m.Key == d.pub {
			continue
		}
		if old := before[m.Key]; old != nil && old.Member == m {
			next[m.Key] = old
			continue
		}
		f, err := d.newMember(m, self)
		if err != nil {
			return err
		}
		next[m.Key] = f
		fresh = append(fresh, f)
	}
	for key, m := range before {
		if next[key] != m {
			gone = append(gone, m)
		}
	}
	d.byKey.Store(&next)
	byAddr := make(map[netip.Addr]*member, len(next))
	for _, m := range next {
		byAddr[m.Address] = m
	}
	d.byAddr.Store(&byAddr)

	// WireGuard applies the changes in order: removals first, so that their addresses are free.
	var ipc strings.Builder
	for _, m := range gone {
		d.n.index.Remove(m.entry)
		m.out.close()
		d.queue.Forget(&m.outlet)
		fmt.Fprintf(&ipc, "public_key=%s\nremove=true\n", m.Key)
	}
	for _, m := range fresh {
		d.n.index.Add(m.entry)
		fmt.Fprintf(&ipc, "public_key=%s\nendpoint=%s\nreplace_allowed_ips=true\nallowed_ip=%s/32\n",
			m.Key, m.Key, m.Address)
	}
	if err := d.wg.IpcSet(ipc.String()); err != nil {
		return fmt.Errorf("telling WireGuard the members: %w", err)
	}
	for _, m := range fresh {
		m.hurry()
	}
	return nil
}

// checkMembers refuses a list that cannot work, before anything is changed.
func (d *Device) checkMembers(list []Member) error {
	if len(list) > MaxMembers {
		return fmt.Errorf("%w: %d members, at most %d", ErrFull, len(list), MaxMembers)
	}
	keys, addrs := make(map[PublicKey]bool), make(map[netip.Addr]bool)
	for _, m := range list {
		switch {
		case !m.Address.Is4() || !d.cfg.Prefix.Contains(m.Address) || m.Address == d.cfg.Service:
			return fmt.Errorf("%w: member address %s: not free, or not in %s", ErrConfig, m.Address, d.cfg.Prefix)
		case (m.Key == d.pub) != (m.Address == d.cfg.Address):
			return fmt.Errorf("%w: member %s has this member's key or address, but not both", ErrConfig, m.Address)
		case keys[m.Key] || addrs[m.Address]:
			return fmt.Errorf("%w: member %s: duplicate, or duplicate key", ErrConfig, m.Address)
		case m.Peer.Validate() != nil:
			return fmt.Errorf("%w: member %s is on no peer", ErrConfig, m.Address)
		}
		keys[m.Key], addrs[m.Address] = true, true
	}
	return nil
}

func (d *Device) newMember(m Member, self peer.ID) (*member, error) {
	keys, err := wire.NewPair(d.cfg.Key, d.pub, m.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: member %s: %w", ErrConfig, m.Address, err)
	}
	f := &member{Member: m, d: d, here: m.Peer == self, keys: keys}
	f.entry = index.NewEntry(f, keys.Theirs)
	f.mtu.Store(wire.MinMTU)
	f.out = newCarrier(f)
	return f, nil
}

// initiator returns the claimed sender of an initiation. WireGuard verifies it later; until then it is only the
// destination of the answer.
func (d *Device) initiator(p []byte, from netip.AddrPort) *member {
	if !((*d.where.Load())[from] && d.known.Allow()) && !d.rate.Allow() {
		return nil
	}
	if pub, ok := wire.Initiator(p, d.cfg.Key, d.pub); ok {
		return d.member(pub)
	}
	return nil
}

// locate notes where members are now.
func (d *Device) locate() {
	where := make(map[netip.AddrPort]bool)
	for _, m := range *d.byAddr.Load() {
		if r := m.direct.Load(); r != nil {
			where[r.to] = true
		}
	}
	d.where.Store(&where)
}

// Members are the members as they stand now, by address.
func (d *Device) Members() []MemberState {
	list := slices.Collect(maps.Values(*d.byKey.Load()))
	told := d.counters()
	out := make([]MemberState, 0, len(list))
	for _, m := range list {
		s := told[m.Key]
		s.Member = m.Member
		s.Path, s.RTT, s.MTU = m.state()
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b MemberState) int { return a.Address.Compare(b.Address) })
	return out
}

// counters are WireGuard's counters of each member.
func (d *Device) counters() map[PublicKey]MemberState {
	out := make(map[PublicKey]MemberState)
	text, err := d.wg.IpcGet()
	if err != nil {
		return out
	}
	var key PublicKey
	var sec, nsec int64
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		n, _ := strconv.ParseInt(value, 10, 64)
		s := out[key]
		switch name {
		case "public_key":
			if b, err := hex.DecodeString(value); err == nil && len(b) == 32 {
				key, sec, nsec = PublicKey(b), 0, 0
			}
			continue
		case "last_handshake_time_sec":
			sec = n
		case "last_handshake_time_nsec":
			if nsec = n; sec != 0 || nsec != 0 {
				s.Handshake = time.Unix(sec, nsec)
			}
		case "rx_bytes":
			s.Rx = uint64(n)
		case "tx_bytes":
			s.Tx = uint64(n)
		default:
			continue
		}
		out[key] = s
	}
	return out
}
