package overlay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/starling-network/starling/p2p/overlay/packet"
	"github.com/starling-network/starling/p2p/overlay/wire"
)

const (
	// streamVersion is that of the framing.
	streamVersion = 1
	// streamQueue is how many packets wait for a stream; beyond it the oldest is dropped.
	streamQueue = 128
	// streamCredit is how many packets of one stream may wait for the device; then the stream itself waits.
	streamCredit = 64
	// openTime bounds opening a stream, helloTime its first bytes, stallTime one write.
	openTime  = 15 * time.Second
	helloTime = 10 * time.Second
	stallTime = 15 * time.Second
	// idleTime is the timeout of an idle stream, for example beside a direct path.
	idleTime = time.Minute
	// openAgain is the pause after a stream could not be opened, doubled up to openMost.
	openAgain = 250 * time.Millisecond
	openMost  = 10 * time.Second
	// maxGreeting bounds the streams of all peers that have not named their member yet.
	maxGreeting = 256
	// writeAtOnce is how many bytes of frames are written in one go.
	writeAtOnce = 32 << 10
	// accepted answers a hello.
	accepted = 1
)

// protocol is the stream protocol on this network.
func (n *Network) protocol() protocol.ID {
	return protocol.ID(fmt.Sprintf("/starling/overlay/%d/%s", streamVersion, n.name))
}

// carrier sends a member's packets over a stream. It has one while there is something to send.
type carrier struct {
	m       *member
	packets chan *packet.Buffer // each with its length in n
	ctx     context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex
	running bool
	closed  bool
	in      network.Stream // the member's own stream to us
}

func newCarrier(m *member) *carrier {
	c := &carrier{m: m, packets: make(chan *packet.Buffer, streamQueue)}
	c.ctx, c.cancel = context.WithCancel(m.d.ctx)
	return c
}

// queue queues copies of packets, and opens a stream if there is none.
func (c *carrier) queue(packets [][]byte) {
	for _, p := range packets {
		if len(p) > wire.MaxPacket {
			c.m.d.n.stats.dropped[dropStream].Add(1)
			continue
		}
		b := packet.New(packet.Small)
		b.N = copy(b.B, p)
		for queued := false; !queued; {
			select {
			case c.packets <- b:
				queued = true
			default:
				select {
				case old := <-c.packets:
					old.Release()
					c.m.d.n.stats.dropped[dropStream].Add(1)
				default:
				}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running && !c.closed {
		c.running = true
		c.m.d.tasks.Go(c.run)
	}
}

// divert sends packets that wait for a stream on a direct path that was found.
func (c *carrier) divert(r route) {
	for {
		select {
		case b := <-c.packets:
			if wire.KindOf(b.B[:b.N]) != wire.Probe {
				c.m.send(r, b.B[:b.N])
			}
			b.Release()
		default:
			return
		}
	}
}

// close ends the streams of a member, both ways.
func (c *carrier) close() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.in != nil {
		_ = c.in.Reset()
	}
}

// run opens streams and sends until there was nothing to send for a while.
func (c *carrier) run() {
	pause := openAgain
	for c.ctx.Err() == nil {
		s, err := c.open()
		if err == nil {
			pause = openAgain
			err = c.pour(s)
			if err == nil {
				_ = s.Close()
			} else {
				_ = s.Reset()
			}
		}
		c.mu.Lock()
		if err == nil && len(c.packets) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if err == nil {
			continue
		}
		c.m.d.log.Debug("stream to a member", "member", c.m.Address, "err", err)
		select {
		case <-c.ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, openMost)
		}
	}
}

// open opens a stream and waits until the member has taken it.
func (c *carrier) open() (network.Stream, error) {
	h := c.m.d.n.host()
	if h == nil {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithTimeout(network.WithAllowLimitedConn(c.ctx, "overlay"), openTime)
	defer cancel()
	s, err := h.NewStream(ctx, c.m.Peer, c.m.d.n.protocol())
	if err != nil {
		return nil, fmt.Errorf("opening: %w", err)
	}
	stop := context.AfterFunc(c.ctx, func() { _ = s.Reset() })
	defer stop()
	_ = s.SetDeadline(time.Now().Add(helloTime))
	var answer [1]byte
	if _, err = s.Write(wire.Hello(c.m.d.pub, c.m.Key)); err == nil {
		_, err = s.Read(answer[:])
	}
	if err == nil && answer[0] != accepted {
		err = fmt.Errorf("%w: the member answered %d", wire.ErrFrame, answer[0])
	}
	if err != nil {
		_ = s.Reset()
		return nil, fmt.Errorf("greeting: %w", err)
	}
	_ = s.SetDeadline(time.Time{})
	return s, nil
}

// pour writes packets as frames until there are none for a while (nil), or the stream breaks.
func (c *carrier) pour(s network.Stream) error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	// The member sends nothing back; a read ends when it has closed the stream.
	over := make(chan struct{})
	go func() {
		defer close(over)
		var b [1]byte
		_, _ = s.Read(b[:])
		cancel()
	}()
	defer func() {
		_ = s.SetReadDeadline(time.Unix(1, 0))
		<-over
	}()
	var out []byte
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for {
		var b *packet.Buffer
		select {
		case b = <-c.packets:
		case <-ctx.Done():
			return errors.New("the member closed it")
		case <-idle.C:
			return nil
		}
		out = out[:0]
		for b != nil {
			out = wire.AppendFrame(out, b.B[:b.N])
			b.Release()
			b = nil
			if len(out) < writeAtOnce {
				select {
				case b = <-c.packets:
				default:
				}
			}
		}
		_ = s.SetWriteDeadline(time.Now().Add(stallTime))
		if _, err := s.Write(out); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		idle.Reset(idleTime)
	}
}

// accept takes a stream of a member.
func (n *Network) accept(s network.Stream) {
	if err := n.serve(s); err != nil {
		n.log.Debug("overlay stream", "peer", s.Conn().RemotePeer(), "err", err)
	}
	_ = s.Reset()
}

func (n *Network) serve(s network.Stream) error {
	if n.greeting.Add(1) > maxGreeting {
		n.greeting.Add(-1)
		return errors.New("too many streams")
	}
	_ = s.SetDeadline(time.Now().Add(helloTime))
	from, to, err := wire.ReadHello(s)
	n.greeting.Add(-1)
	if err != nil {
		return err
	}
	d := n.find(to)
	if d == nil {
		return errors.New("no such device")
	}
	m := d.member(from)
	if m == nil || m.Peer != s.Conn().RemotePeer() {
		n.stats.dropped[dropForged].Add(1)
		return errors.New("not a member on this peer")
	}
	if !m.out.take(s) {
		return ErrClosed
	}
	defer m.out.giveBack(s)
	if _, err := s.Write([]byte{accepted}); err != nil {
		return err
	}
	_ = s.SetDeadline(time.Time{})
	return d.listen(m, s)
}

// take makes s the member's stream to us, and ends the one before.
func (c *carrier) take(s network.Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.in != nil {
		_ = c.in.Reset()
	}
	c.in = s
	return true
}

func (c *carrier) giveBack(s network.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in == s {
		c.in = nil
	}
}

// listen gives the packets of a stream to the device, as fast as it takes them.
func (d *Device) listen(m *member, s network.Stream) error {
	r := bufio.NewReaderSize(s, writeAtOnce)
	credit := make(chan struct{}, streamCredit)
	for {
		b := packet.New(packet.Small)
		p, err := wire.ReadFrame(r, b.B)
		if err != nil {
			b.Release()
			return err
		}
		if wire.KindOf(p) == wire.Probe {
			d.heard(p, m, route{})
			b.Release()
			continue
		}
		select {
		case credit <- struct{}{}:
		case <-d.ctx.Done():
			b.Release()
			return ErrClosed
		}
		a := m.arrival(packet.Train{Buf: b, Data: p, Seg: len(p)}, route{})
		a.Taken = credit
		d.inbox.Put(a)
		b.Release()
	}
}
