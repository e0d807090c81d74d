package overlay

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/starling-network/starling/p2p/overlay/packet"
	"github.com/starling-network/starling/p2p/overlay/port"
	"github.com/starling-network/starling/p2p/overlay/turns"
	"github.com/starling-network/starling/p2p/overlay/wire"
)

// A member is its own WireGuard endpoint, on every path.
var (
	_ conn.Bind     = (*bind)(nil)
	_ conn.Endpoint = (*member)(nil)
)

// route is a UDP path: from a port of ours to an address.
type route struct {
	port port.Port
	to   netip.AddrPort
}

func (m *member) ClearSrc()           {}
func (m *member) SrcToString() string { return "" }
func (m *member) DstToString() string { return m.Key.String() }
func (m *member) DstToBytes() []byte  { return m.Key[:] }
func (m *member) DstIP() netip.Addr   { return m.Address }
func (m *member) SrcIP() netip.Addr   { return netip.Addr{} }

// bind carries WireGuard's datagrams: in from the device's queue, out on the member's path.
type bind struct {
	d *Device

	mu     sync.Mutex
	closed chan struct{}
	rest   turns.Arrival[sentBy] // rest of a train that WireGuard had no room for; its reader's alone
}

func (b *bind) Open(uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	b.closed = make(chan struct{})
	closed := b.closed
	return []conn.ReceiveFunc{func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		return b.receive(closed, packets, sizes, eps)
	}}, 0, nil
}

func (b *bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		close(b.closed)
		b.closed = nil
	}
	return nil
}

func (b *bind) SetMark(uint32) error { return nil }
func (b *bind) BatchSize() int       { return turns.BatchSize }

// ParseEndpoint finds a member by its key; the list of members sets WireGuard's endpoints with it.
func (b *bind) ParseEndpoint(key string) (conn.Endpoint, error) {
	if m := b.d.named(key); m != nil {
		return m, nil
	}
	return nil, errors.New("no such member")
}

// receive waits for datagrams and copies as many as there is room for.
func (b *bind) receive(closed <-chan struct{}, packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	b.d.passage.Admit(closed)
	n := 0
	data := 0
	defer func() { b.d.passage.Enter(data) }()
	for n < len(packets) {
		if len(b.rest.Data) == 0 {
			var ok bool
			if b.rest, ok = b.d.inbox.Get(); !ok {
				if n > 0 {
					return n, nil
				}
				select {
				case <-b.d.inbox.Ready():
					continue
				case <-closed:
					return 0, net.ErrClosed
				}
			}
		}
		m := b.rest.From.member
		for n < len(packets) && len(b.rest.Data) > 0 {
			p := b.rest.Pop()
			if b.rest.From.member == nil {
				if m = b.d.initiator(p, b.rest.From.from.to); m == nil {
					b.d.n.stats.dropped[dropUnknown].Add(1)
					continue
				}
			}
			if len(p) > device.MessageKeepaliveSize {
				data++
			}
			sizes[n], eps[n] = copy(packets[n], p), m
			n++
		}
		if len(b.rest.Data) == 0 {
			b.rest.Buf.Release()
			b.rest.Drop()
			b.rest = turns.Arrival[sentBy]{}
		}
	}
	return n, nil
}

// Send sends WireGuard's datagrams to a member. It never returns an error, since WireGuard would log one for each
// packet; the probes detect a failed path.
func (b *bind) Send(packets [][]byte, ep conn.Endpoint) error {
	m, ok := ep.(*member)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	data := 0
	for _, p := range packets {
		switch kind := wire.KindOf(p); {
		case kind == wire.Initiation || kind == wire.Response:
			b.d.n.index.Learn(m.entry, wire.Sender(p), time.Now())
		case kind == wire.Data && len(p) != device.MessageKeepaliveSize:
			data++
		}
	}
	defer b.d.queue.Sent(&m.outlet, data) // when the kernel has taken them
	m.wake()
	if m.here {
		b.d.hand(m, packets)
		return nil
	}
	if r := m.direct.Load(); r != nil {
		if err := r.port.Send(packets, r.to); err != nil {
			b.d.n.stats.dropped[dropSend].Add(1)
			b.d.log.Debug("sending on a direct path", "member", m.Address, "err", err)
			m.suspect()
		}
		return nil
	}
	m.out.queue(packets)
	return nil
}

// hand gives datagrams to a member that is on this host.
func (d *Device) hand(m *member, packets [][]byte) {
	to := d.n.find(m.Key)
	if to == nil {
		return
	}
	from := to.member(d.pub)
	if from == nil || !from.here {
		return
	}
	for _, p := range packets {
		buf := packet.New(len(p))
		n := copy(buf.B, p)
		to.inbox.Put(from.arrival(packet.Train{Buf: buf, Data: buf.B[:n], Seg: n}, route{}))
		buf.Release()
	}
}
