package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// flowKey names a flow of one container.
type flowKey struct {
	tcp  bool
	from uint16 // the container's port
	to   netip.AddrPort
}

// flow is a TCP connection or a UDP pair, from its first packet until its memory is released.
type flow struct {
	key  flowKey
	last atomic.Int64 // time of the last activity, Unix nanoseconds
	idle time.Duration
	// bytes are counted for it in the budget, none once another stack has taken them. The stack's mu guards it.
	bytes int64
	wide  bool
	ctx   context.Context
	stop  context.CancelFunc

	mu     sync.Mutex
	ended  bool
	closes []func()
}

// onCut adds a function that ends the flow. It is called immediately if the flow is cut already.
func (f *flow) onCut(end func()) {
	f.mu.Lock()
	if !f.ended {
		f.closes = append(f.closes, end)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	end()
}

// cut ends a flow. The goroutine that serves it then returns and removes it from the table.
func (f *flow) cut() {
	f.mu.Lock()
	ends := f.closes
	f.ended, f.closes = true, nil
	f.mu.Unlock()
	f.stop()
	for _, end := range ends {
		end()
	}
}

// release frees a flow that has ended by itself.
func (f *flow) release() {
	f.mu.Lock()
	f.closes = nil
	f.mu.Unlock()
}

func (f *flow) moved() { f.last.Store(time.Now().UnixNano()) }

// target is the destination of a packet.
func target(id stack.TransportEndpointID) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(id.LocalAddress.As4()), id.LocalPort)
}

func keyOf(tcp bool, id stack.TransportEndpointID) flowKey {
	return flowKey{tcp: tcp, from: id.RemotePort, to: target(id)}
}

// begin adds a flow to the table, if there is room. Fresh is false if the flow exists already. Only the goroutine that
// delivers packets calls begin, since Close waits for it.
func (s *Stack) begin(key flowKey) (why Reason, fresh, open bool) {
	idle := s.cfg.Limits.IdleUDP
	if key.tcp {
		idle = s.cfg.Limits.IdleTCP
	}
	s.mu.Lock()
	_, found := s.flows[key]
	full := s.closed || len(s.flows) >= s.cfg.Limits.Flows
	s.mu.Unlock()
	switch {
	case found:
		return 0, false, true
	case full:
		return ReasonFlows, false, false
	case !s.newFlows.Allow():
		return ReasonRate, false, false
	}
	bytes := s.cfg.Budget.take(s, key.tcp && key.to.Addr() != s.cfg.Service)
	if bytes == 0 {
		return ReasonShare, false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.cfg.Budget.give(s, bytes)
		return ReasonFlows, false, false
	}
	f := &flow{key: key, idle: idle, bytes: bytes, wide: bytes > flowBytes}
	f.ctx, f.stop = context.WithCancel(context.WithValue(s.ctx, flowCtx{}, f))
	f.moved()
	s.flows[key] = f
	s.wg.Add(1)
	return 0, true, true
}

// end takes a flow out of the table.
func (s *Stack) end(f *flow) {
	f.cut()
	s.mu.Lock()
	delete(s.flows, f.key)
	bytes := f.bytes
	f.bytes = 0
	s.mu.Unlock()
	s.cfg.Budget.give(s, bytes)
	s.wg.Done()
}

// flowOf is the flow that begin has made.
func (s *Stack) flowOf(key flowKey) *flow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flows[key]
}

// sweep cuts flows after their idle timeout.
func (s *Stack) sweep() {
	every := min(s.cfg.Limits.IdleTCP, s.cfg.Limits.IdleUDP, 20*time.Second)/4 + time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-tick.C:
			var idle []*flow
			s.mu.Lock()
			for _, f := range s.flows {
				if now.UnixNano()-f.last.Load() > int64(f.idle) {
					idle = append(idle, f)
				}
			}
			s.mu.Unlock()
			for _, f := range idle {
				f.cut()
			}
		}
	}
}

// admitTCP sees every segment that belongs to no connection. False has the stack answer with RST.
func (s *Stack) admitTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	h := header.TCP(pkt.TransportHeader().Slice())
	if len(h) < header.TCPMinimumSize || h.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return false
	}
	key := keyOf(true, id)
	why, open := s.verdict(true, key.to)
	if key.to.Addr() == s.cfg.Service {
		why, open = ReasonService, s.service(key.to.Port()) != nil
	}
	if !open {
		s.refused.add(why, key.to, "")
		return false
	}
	why, fresh, open := s.begin(key)
	if !open {
		s.refused.add(why, key.to, "")
		return false
	}
	if !fresh {
		return true // sent again, or of a connection that is being ended: it will be sent again
	}
	handled := s.tcp.HandlePacket(id, pkt)
	if !handled { // no segment that a connection begins with after all
		s.end(s.flowOf(key))
	}
	return handled
}

// service is the handler of a port of the service address.
func (s *Stack) service(port uint16) func(context.Context, net.Conn) {
	if port == portDNS {
		return s.dns.serveConn
	}
	return s.cfg.Services[port]
}

// serveTCP carries one connection, in a goroutine of its own.
func (s *Stack) serveTCP(r *tcp.ForwarderRequest) {
	key := keyOf(true, r.ID())
	f := s.flowOf(key)
	defer s.end(f)
	serve := s.service(key.to.Port())
	if key.to.Addr() != s.cfg.Service {
		out, err := s.cfg.Dial(f.ctx, "tcp4", key.to)
		if err != nil {
			r.Complete(true)
			s.refused.add(failed(err), key.to, "")
			return
		}
		defer out.Close()
		f.onCut(func() { out.Close() })
		serve = func(_ context.Context, in net.Conn) { s.splice(f, in, out) }
	}
	var wq waiter.Queue
	ep, err := s.accept(f, r, &wq)
	if err != nil {
		r.Complete(true)
		return
	}
	r.Complete(false)
	in := gonet.NewTCPConn(&wq, ep)
	f.onCut(ep.Abort)
	s.opened.Add(1)
	conn := &watched{TCPConn: in, moved: f.moved, abort: ep.Abort}
	serve(f.ctx, conn)
	s.drain(f, ep)
	f.release()
	in.Close()
}

// accept finishes the container's handshake, or gives it up.
func (s *Stack) accept(f *flow, r *tcp.ForwarderRequest, wq *waiter.Queue) (tcpip.Endpoint, error) {
	id := r.ID()
	abort := func() {
		if ep := s.ns.FindTransportEndpoint(ipv4.ProtocolNumber, tcp.ProtocolNumber, id, nic); ep != nil {
			ep.Abort()
		}
	}
	late := time.AfterFunc(handshakeTime, abort)
	defer late.Stop()
	unhook := context.AfterFunc(f.ctx, abort)
	defer unhook()
	ep, err := r.CreateEndpoint(wq)
	if err != nil {
		return nil, errors.New(err.String())
	}
	if !f.wide {
		ep.SocketOptions().SetReceiveBufferSize(narrowBuffer, true)
		ep.SocketOptions().SetSendBufferSize(narrowBuffer, true)
	}
	return ep, nil
}

// failed returns the reason of a failed dial.
func failed(err error) Reason {
	if errors.Is(err, ErrRefused) {
		return ReasonClosed
	}
	return ReasonUnreachable
}

// drain waits until the container has received everything, for a while, so that the memory of a connection counts
// against its flows as long as it is held.
func (s *Stack) drain(f *flow, ep tcpip.Endpoint) {
	ep.Shutdown(tcpip.ShutdownWrite)
	wait := time.Millisecond
	for end := time.Now().Add(drainTime); time.Now().Before(end); wait = min(2*wait, 100*time.Millisecond) {
		if n, err := ep.GetSockOptInt(tcpip.SendQueueSizeOption); err != nil || n == 0 || gone(ep) {
			return
		}
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(wait):
		}
	}
	ep.Abort()
}

// watched is a connection of the container's that reports its activity.
type watched struct {
	*gonet.TCPConn
	moved func()
	abort func()
}

// Close ends sending, in order, and every Read. The flow must close the rest: with unread data it would be a reset,
// which could overtake the data sent.
func (w *watched) Close() error {
	return errors.Join(w.CloseWrite(), w.SetReadDeadline(time.Unix(1, 0)))
}

// Abort resets the connection.
func (w *watched) Abort() { w.abort() }

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.TCPConn.Read(b)
	if n > 0 {
		w.moved()
	}
	return n, err
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.TCPConn.Write(b)
	if n > 0 {
		w.moved()
	}
	return n, err
}

// splice copies both ways until both have ended, or one has failed. It forwards the end of one side's data.
func (s *Stack) splice(f *flow, in, out net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !s.pour(f, out, in, s.out, &s.sent) {
			f.cut()
		}
	}()
	if !s.pour(f, in, out, s.in, &s.received) {
		f.cut()
	}
	<-done
}

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// pour copies one way and reports whether it reached the end.
func (s *Stack) pour(f *flow, to, from net.Conn, limit *rate.Limiter, count *atomic.Uint64) bool {
	b := chunks.Get().(*[chunk]byte)
	defer chunks.Put(b)
	for {
		n, err := from.Read(b[:])
		if n > 0 {
			if limit != nil && limit.WaitN(f.ctx, n) != nil {
				return false
			}
			if _, err := to.Write(b[:n]); err != nil {
				return false
			}
			count.Add(uint64(n))
		}
		switch {
		case errors.Is(err, io.EOF):
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				return half.CloseWrite() == nil
			}
			return true
		case err != nil:
			return false
		}
	}
}

// admitICMP refuses packets for the outside; the service address answers by itself.
func (s *Stack) admitICMP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	if to := netip.AddrFrom4(pkt.Network().DestinationAddress().As4()); to != s.cfg.Service {
		s.refuse(ReasonProtocol, netip.AddrPortFrom(to, 0), pkt)
	}
	return true
}

// gone reports whether a connection was aborted.
func gone(ep tcpip.Endpoint) bool {
	state := tcp.EndpointState(ep.State())
	return state == tcp.StateError || state == tcp.StateClose
}
