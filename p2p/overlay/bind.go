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
	// insideStuck is after how long those that did not come out count as dropped by WireGuard.
	insideStuck = 5 * time.Millisecond
	// batchSize is how many packets WireGuard handles at once.
	batchSize = conn.IdealBatchSize
)

// arrival are datagrams for a device.
type arrival struct {
	train
	member *member       // nil: an initiation, which has its sender inside
	from   route         // its port is nil for those of a stream or of this host
	taken  chan struct{} // a stream waits for it; nil for datagrams
}

// drop releases the stream of a packet that was handled, or will not be.
func (a arrival) drop() {
	if a.taken != nil {
		<-a.taken
	}
}

// passage counts the packets between a device's inbox and the TUN. Further ones wait in the inbox, where small ones
// overtake.
type passage struct {
	mu      sync.Mutex
	inside  int
	pace    pace
	counted time.Time     // when inside was last set right
	less    chan struct{} // 1: some have come out
}

// enter counts packets in.
func (p *passage) enter(n int) {
	p.mu.Lock()
	p.inside += n
	p.mu.Unlock()
}

// leave says that packets have come out at the TUN.
func (p *passage) leave(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := p.inside >= p.pace.most()
	p.inside = max(0, p.inside-n)
	p.pace.done(n, time.Now())
	if full {
		select {
		case p.less <- struct{}{}:
		default:
		}
	}
}

// full reports whether more must wait.
func (p *passage) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside < p.pace.most() {
		return false
	}
	// those that WireGuard dropped were counted in, and never out
	if now := time.Now(); now.Sub(p.counted) > time.Second {
		p.counted, p.inside = now, 0
		return false
	}
	return true
}

func (p *passage) reset() {
	p.mu.Lock()
	p.inside = 0
	p.mu.Unlock()
}

// admit waits until WireGuard has less to do.
func (p *passage) admit(closed <-chan struct{}) {
	if !p.full() {
		return
	}
	t := time.NewTimer(insideStuck)
	defer t.Stop()
	for p.full() {
		select {
		case <-p.less:
		case <-t.C:
			p.reset()
		case <-closed:
			return
		}
	}
}

// bind carries WireGuard's datagrams: in from the device's queue, out on whatever path the member has.
type bind struct {
	d *Device

	mu     sync.Mutex
	closed chan struct{}
	rest   arrival // rest of a train that WireGuard had no room for; its reader's alone
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

// ParseEndpoint finds a member by its key; the list of members sets WireGuard's endpoints with it.
func (b *bind) ParseEndpoint(key string) (conn.Endpoint, error) {
	if m := b.d.named(key); m != nil {
		return m, nil
	}
	return nil, errors.New("no such member")
}

// receive waits for datagrams and copies as many as there is room for.
func (b *bind) receive(closed <-chan struct{}, packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	b.d.passage.admit(closed)
	n := 0
	data := 0
	defer func() { b.d.passage.enter(data) }()
	for n < len(packets) {
		if len(b.rest.data) == 0 {
			var ok bool
			if b.rest, ok = b.d.inbox.get(); !ok {
				if n > 0 {
					return n, nil
				}
				select {
				case <-b.d.inbox.ready:
					continue
				case <-closed:
					return 0, net.ErrClosed
				}
			}
		}
		m := b.rest.member
		for n < len(packets) && len(b.rest.data) > 0 {
			p := b.rest.pop()
			if b.rest.member == nil {
				if m = b.d.initiator(p, b.rest.from.to); m == nil {
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
			b.rest.buf.release()
			b.rest.drop()
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
		to.inbox.put(arrival{train: train{buf: buf, data: buf.b[:n], seg: n}, member: from})
		buf.release()
	}
}
