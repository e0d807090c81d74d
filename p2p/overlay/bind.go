package overlay

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// A member is the endpoint that WireGuard knows of it, whatever the path.
var (
	_ conn.Bind     = (*bind)(nil)
	_ conn.Endpoint = (*member)(nil)
)

// route is a UDP path: from a port of ours to an address.
type route struct {
	port port
	to   netip.AddrPort
}

func (m *member) ClearSrc()           {}
func (m *member) SrcToString() string { return "" }
func (m *member) DstToString() string { return m.Key.String() }
func (m *member) DstToBytes() []byte  { return m.Key[:] }
func (m *member) DstIP() netip.Addr   { return m.Address }
func (m *member) SrcIP() netip.Addr   { return netip.Addr{} }

const (
	// arrivals is how many trains wait for a device, maxWaiting how many bytes of buffers.
	arrivals   = 2048
	maxWaiting = 8 << 20
	// maxOneWaiting is one member's share: its flood leaves room for the others.
	maxOneWaiting = maxWaiting * 3 / 4
	// inbound is how many packets may be between the device's queue and the TUN: what waits, waits where small ones pass.
	inbound = 512
	// inboundStuck is after how long those that did not come out count as dropped by WireGuard.
	inboundStuck = 5 * time.Millisecond
	// smallDatagram is what the small ones have at most.
	smallDatagram = 512
	// batchSize is how many packets WireGuard handles at once.
	batchSize = conn.IdealBatchSize
)

// arrival are datagrams for a device.
type arrival struct {
	train
	member *member       // nil: an initiation, whose sender is in it
	from   route         // its port is nil for those of a stream or of this host
	taken  chan struct{} // what a stream waits for; nil for datagrams
}

// push queues what has come for a device; what there is no room for is dropped. The caller holds the buffer.
func (d *Device) push(a arrival) bool {
	size := int64(len(a.buf.b))
	full := d.waiting.Add(size) > maxWaiting
	if a.member != nil && a.member.waiting.Add(size) > maxOneWaiting {
		full = true
	}
	if full {
		d.unqueue(a)
		d.n.stats.dropped[dropBusy].Add(1)
		return false
	}
	a.buf.hold()
	select {
	case d.lane(a) <- a:
		return true
	default:
		a.buf.release()
		d.unqueue(a)
		d.n.stats.dropped[dropBusy].Add(1)
		return false
	}
}

// lane is the queue for a train. Only its length tells what is in it: a single datagram that is not full is a heartbeat, an
// acknowledgement or a handshake, and passes bulk.
func (d *Device) lane(a arrival) chan arrival {
	if len(a.data) <= a.seg && len(a.data) <= smallDatagram {
		return d.small
	}
	return d.rx
}

// next takes what is to be handled next; !ok where nothing waits.
func (d *Device) next() (a arrival, ok bool) {
	select {
	case a = <-d.small:
		return a, true
	default:
	}
	select {
	case a = <-d.rx:
		return a, true
	default:
		return a, false
	}
}

// admit waits until WireGuard has less to do.
func (d *Device) admit(closed <-chan struct{}) {
	if d.inside.Load() < inbound {
		return
	}
	if now := time.Now(); now.Sub(d.counted) > time.Second { // those that WireGuard dropped were counted in, and never out
		d.counted = now
		d.inside.Store(0)
		return
	}
	t := time.NewTimer(inboundStuck)
	defer t.Stop()
	for d.inside.Load() >= inbound {
		select {
		case <-d.outside:
		case <-t.C:
			d.inside.Store(0)
		case <-closed:
			return
		}
	}
}

// written says that packets have come out at the TUN.
func (d *Device) written(n int) {
	was := d.inside.Add(int64(-n)) + int64(n)
	if was < int64(n) {
		d.inside.Store(0)
	}
	if was >= inbound {
		select {
		case d.outside <- struct{}{}:
		default:
		}
	}
}

func (d *Device) unqueue(a arrival) {
	size := int64(len(a.buf.b))
	d.waiting.Add(-size)
	if a.member != nil {
		a.member.waiting.Add(-size)
	}
}

// bind carries WireGuard's datagrams: in from the device's queue, out on whatever path the member has.
type bind struct {
	d *Device

	mu     sync.Mutex
	closed chan struct{}
	rest   arrival // what of a train WireGuard had no room for; its reader's alone
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
func (b *bind) BatchSize() int       { return batchSize }

// ParseEndpoint finds a member by its key; it is how the list of members tells WireGuard where one is.
func (b *bind) ParseEndpoint(key string) (conn.Endpoint, error) {
	if m := b.d.named(key); m != nil {
		return m, nil
	}
	return nil, errors.New("no such member")
}

// receive waits for datagrams and copies as many as there is room for.
func (b *bind) receive(closed <-chan struct{}, packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	b.d.admit(closed)
	n := 0
	data := 0
	defer func() { b.d.inside.Add(int64(data)) }()
	for n < len(packets) {
		if len(b.rest.data) == 0 {
			var ok bool
			if b.rest, ok = b.d.next(); !ok {
				if n > 0 {
					return n, nil
				}
				select {
				case b.rest = <-b.d.small:
				case b.rest = <-b.d.rx:
				case <-closed:
					return 0, net.ErrClosed
				}
			}
		}
		m := b.rest.member
		for n < len(packets) && len(b.rest.data) > 0 {
			p := b.rest.pop()
			if b.rest.member == nil {
				if m = b.d.initiator(p); m == nil {
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
		if len(b.rest.data) == 0 {
			b.d.unqueue(b.rest)
			b.rest.buf.release()
			if b.rest.taken != nil {
				<-b.rest.taken
			}
			b.rest = arrival{}
		}
	}
	return n, nil
}

// Send sends WireGuard's datagrams to a member. Nothing is an error to WireGuard: it would log it for each packet, and
// a path that fails is found out by the probes.
func (b *bind) Send(packets [][]byte, ep conn.Endpoint) error {
	m, ok := ep.(*member)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	data := 0
	for _, p := range packets {
		switch kind := kindOf(p); {
		case kind == kindInitiation || kind == kindResponse:
			b.d.n.learn(m, senderOf(p))
		case kind == kindData && len(p) != device.MessageKeepaliveSize:
			data++
		}
	}
	defer b.d.queue.sent(m, data) // when the kernel has taken them
	m.wake()
	if m.here {
		b.d.hand(m, packets)
		return nil
	}
	if r := m.direct.Load(); r != nil {
		if err := r.port.send(packets, r.to); err != nil {
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
		buf := newBuffer(len(p))
		n := copy(buf.b, p)
		to.push(arrival{train: train{buf: buf, data: buf.b[:n], seg: n}, member: from})
		buf.release()
	}
}
