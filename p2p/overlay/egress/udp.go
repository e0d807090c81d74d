package egress

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// admitUDP sees every datagram that belongs to no pair.
func (s *Stack) admitUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	key := keyOf(false, id)
	why, open := s.verdict(false, key.to)
	if key.to.Addr() == s.cfg.Service {
		why, open = ReasonService, false
	}
	fresh := false
	if open {
		why, fresh, open = s.begin(key)
	}
	switch {
	case !open:
		s.refuse(why, key.to, pkt)
	case fresh:
		return s.udp.HandlePacket(id, pkt)
	}
	return true // of a pair that is being made or ended: lost, as datagrams are
}

// refuse notifies the container that a packet is not let out, and counts it.
func (s *Stack) refuse(why Reason, to netip.AddrPort, pkt *stack.PacketBuffer) {
	s.refused.add(why, to, "")
	_ = s.reject.SendRejectionError(pkt, stack.RejectIPv4WithICMPAdminProhibited, false) // at a rate of the stack's own
}

// serveUDP makes a pair and starts its relays.
func (s *Stack) serveUDP(r *udp.ForwarderRequest) {
	key := keyOf(false, r.ID())
	f := s.flowOf(key)
	out, err := s.cfg.Dial(f.ctx, "udp4", key.to) // connects a socket, sends nothing: it does not block
	if err != nil {
		s.refused.add(failed(err), key.to, "")
		s.end(f)
		return
	}
	var wq waiter.Queue
	ep, terr := r.CreateEndpoint(&wq)
	if terr != nil {
		out.Close()
		s.end(f)
		return
	}
	ep.SocketOptions().SetReceiveBufferSize(narrowBuffer, true)
	in := gonet.NewUDPConn(&wq, ep)
	f.onCut(func() { out.Close(); in.Close() })
	s.opened.Add(1)
	go func() { // the flow's: end is Close's to wait for
		defer s.end(f)
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.relay(f, out, in, s.out, &s.sent)
		}()
		s.relay(f, in, out, s.in, &s.received)
		<-done
	}()
}

var datagrams = sync.Pool{New: func() any { return new([1 << 16]byte) }}

// relay copies datagrams one way until the pair ends. Datagrams over the limit are lost.
func (s *Stack) relay(f *flow, to, from net.Conn, limit *rate.Limiter, count *atomic.Uint64) {
	b := datagrams.Get().(*[1 << 16]byte)
	defer datagrams.Put(b)
	defer f.cut()
	for {
		n, err := from.Read(b[:])
		if err != nil {
			return // closed, or the other side reported an unreachable port
		}
		f.moved()
		if limit != nil && !limit.AllowN(time.Now(), n) {
			continue
		}
		if _, err := to.Write(b[:n]); err == nil {
			count.Add(uint64(n))
		}
	}
}
