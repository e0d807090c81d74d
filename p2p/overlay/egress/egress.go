// Package egress is one container's access to other networks: it handles packets to destinations other than members of
// its cluster. It is a TCP/IP stack in this process (gVisor's netstack), so it needs no configuration of the host: no
// rule, no route, no privilege.
//
//	container ──ovl0──> overlay ──Deliver──> Stack ── service address ──> DNS, Services
//	          <────────          <──writer──       ── allowed ──────────> a socket of the host's, dialled here
//	                                               ── anything else ────> refused at once: RST, ICMP 3/13; counted
//
// A TCP connection ends in the stack and continues as a connection of the host. The host's is dialled before the
// container's is accepted, so that an unreachable address refuses the container's connection too. UDP works in the same
// way, by pairs of address and port. ICMP reaches only the service address, which answers pings.
//
// The policy is checked three times: on the lookup of a name, at the begin of a flow, and on the final address of the
// socket. The last check is decisive: neither DNS rebinding nor a redirect can bypass it. Always closed, regardless of
// the policy, are the addresses of package closed, the host's own addresses, and the TCP ports of mail servers. An
// allow list of names opens the addresses that the container's lookups of these names returned, for a while and on the
// rule's ports. Other sites at the same address are then open too, as with any filter that does not inspect TLS.
//
// Measured on two cores that others used too: 2.2 Gbit/s of one TCP connection from a namespace through its TUN, the
// overlay and the stack to a server of the host's (BenchmarkWayOut in p2p/overlay).
//
// One Stack is for one container. All its memory in this process is bounded: flows and their rate by Limits, queued
// packets (4 MiB), datagrams in pieces (4 MiB) and remembered names by constants. The memory of the flows of all
// containers of a peer, with the buffers of their sockets in the kernel, is bounded by a Budget, which guarantees each
// container its share.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// Stack is one container's network access. Its methods may be called concurrently.
type Stack struct {
	cfg    Config
	ns     *stack.Stack
	link   *channel.Endpoint
	reject stack.RejectIPv4WithHandler
	tcp    *tcp.Forwarder
	udp    *udp.Forwarder
	writer atomic.Pointer[func([][]byte) error]

	inlet inlet

	refused  refusals
	hosts    hostAddrs
	dns      *nameServer
	newFlows *rate.Limiter
	out, in  *rate.Limiter // nil: no limit
	opened   atomic.Uint64
	sent     atomic.Uint64
	received atomic.Uint64

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	flows  map[flowKey]*flow
}

// New makes a stack and starts it; Close ends it. Errors: ErrConfig, ErrPolicy.
func New(cfg Config) (*Stack, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	ns := stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: true}),
		},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	link := channel.New(queueBytes/cfg.MTU, uint32(cfg.MTU), "")
	link.LinkEPCapabilities = stack.CapabilityRXChecksumOffload // the kernel made them, on this machine
	ctx, stop := context.WithCancel(context.Background())
	s := &Stack{
		cfg: cfg, ns: ns, link: link, ctx: ctx, stop: stop, flows: map[flowKey]*flow{},
		refused:  refusals{log: cfg.Log},
		newFlows: limiter(cfg.Limits.NewFlows), hosts: hostAddrs{own: cfg.Own},
	}
	s.dns = newNameServer(s)
	if b := cfg.Limits.BytesPerSec; b > 0 {
		s.out, s.in = rate.NewLimiter(rate.Limit(b), max(int(b), 64<<10)),
			rate.NewLimiter(rate.Limit(b), max(int(b), 64<<10))
	}
	if s.cfg.Dial == nil {
		s.cfg.Dial = s.dial
	}
	cfg.Budget.join(s)
	s.inlet.gro.Dispatcher = inbound{link}
	s.inlet.gro.Init(true)
	if err := s.start(); err != nil {
		stop()
		cfg.Budget.leave(s)
		ns.Destroy()
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return s, nil
}

func limiter(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond*burstSeconds)))
}

// start makes the stack ready and starts its goroutines.
func (s *Stack) start() error {
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(false)
	snd := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: wideBuffer, Max: wideBuffer}
	rcv := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: wideBuffer, Max: wideBuffer}
	// A container's half-open connections are forgotten soon: it is one hop away, on the same machine.
	retries, wait := tcpip.TCPMaxRetriesOption(8), tcpip.TCPTimeWaitTimeoutOption(2*time.Second)
	linger := tcpip.TCPLingerTimeoutOption(10 * time.Second)
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &snd, &rcv, &retries, &wait, &linger} {
		if err := s.ns.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("setting TCP up: %v", err)
		}
	}
	if err := s.ns.CreateNIC(nic, s.link); err != nil {
		return fmt.Errorf("making the interface: %v", err)
	}
	service := tcpip.AddrFrom4(s.cfg.Service.As4())
	if err := s.ns.AddProtocolAddress(nic, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber,
		AddressWithPrefix: service.WithPrefix()}, stack.AddressProperties{}); err != nil {
		return fmt.Errorf("setting the service address: %v", err)
	}
	// It takes packets for every address, and answers from it.
	if err := s.ns.SetPromiscuousMode(nic, true); err != nil {
		return fmt.Errorf("opening the interface: %v", err)
	}
	if err := s.ns.SetSpoofing(nic, true); err != nil {
		return fmt.Errorf("opening the interface: %v", err)
	}
	s.ns.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	var ok bool
	if s.reject, ok = s.ns.NetworkProtocolInstance(ipv4.ProtocolNumber).(stack.RejectIPv4WithHandler); !ok {
		return errors.New("this netstack cannot refuse packets")
	}
	s.tcp = tcp.NewForwarder(s.ns, narrowBuffer, s.cfg.Limits.Flows, s.serveTCP)
	s.udp = udp.NewForwarder(s.ns, s.serveUDP)
	s.ns.SetTransportProtocolHandler(tcp.ProtocolNumber, s.admitTCP)
	s.ns.SetTransportProtocolHandler(udp.ProtocolNumber, s.admitUDP)
	s.ns.SetTransportProtocolHandler(icmp.ProtocolNumber4, s.admitICMP)
	dns, err := gonet.DialUDP(s.ns, &tcpip.FullAddress{NIC: nic, Addr: service, Port: portDNS}, nil,
		ipv4.ProtocolNumber)
	if err != nil {
		return fmt.Errorf("opening DNS: %w", err)
	}
	s.run(func() { s.dns.serve(dns) })
	s.run(s.write)
	s.run(s.sweep)
	return nil
}

// run starts a goroutine that Close waits for.
func (s *Stack) run(f func()) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f()
	}()
}

// enter reports whether the stack is open. If it is, Close waits until leave.
func (s *Stack) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Add(1)
	return true
}

func (s *Stack) leave() { s.wg.Done() }

// SetWriter sets the writer of packets for the container. It is called by one goroutine at a time, with packets that it
// may keep. Packets that it cannot take are lost, as on any line. Without one, or with nil, they are dropped.
func (s *Stack) SetWriter(write func(packets [][]byte) error) { s.writer.Store(&write) }

// Deliver takes packets of the container's, as they came from its interface; they are copied. It does not block.
func (s *Stack) Deliver(packets [][]byte) {
	if !s.enter() {
		return
	}
	defer s.leave()
	s.inlet.put(packets, func(p []byte) bool {
		why, ok := sound(p, s.cfg.Address)
		if !ok {
			s.refused.add(why, netip.AddrPort{}, "")
		}
		return ok
	})
}

// sound reports whether a packet from the container may enter the stack, and otherwise the reason.
func sound(p []byte, container netip.Addr) (why Reason, ok bool) {
	h := header.IPv4(p)
	switch {
	case len(p) > 0 && p[0]>>4 != 4:
		return ReasonProtocol, false
	case !h.IsValid(len(p)):
		return ReasonMalformed, false
	case netip.AddrFrom4(h.SourceAddress().As4()) != container:
		return ReasonSource, false
	// its sender is not notified of the drop (RFC 1812, 4.3.2.7)
	case header.IsV4MulticastAddress(h.DestinationAddress()):
		return ReasonClosed, false
	}
	return why, true
}

// inlet puts packets into the stack, one batch at a time. It joins segments of one connection that arrive together.
type inlet struct {
	mu  sync.Mutex
	gro gro.GRO
}

// put puts in the packets that pass check. They are IPv4 packets then.
func (i *inlet) put(packets [][]byte, check func([]byte) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range packets {
		if !check(p) {
			continue
		}
		data := p[:header.IPv4(p).TotalLength()]
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(data)})
		pkt.NetworkProtocolNumber, pkt.RXChecksumValidated = ipv4.ProtocolNumber, true
		i.gro.Enqueue(pkt)
		pkt.DecRef()
	}
	i.gro.Flush()
}

// inbound is the stack as the segments come to it that gro has put together.
type inbound struct{ link *channel.Endpoint }

func (i inbound) DeliverNetworkPacket(p tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	i.link.InjectInbound(p, pkt)
}

func (inbound) DeliverLinkPacket(tcpip.NetworkProtocolNumber, *stack.PacketBuffer) {}

// write passes the stack's packets to the writer, many at a time.
func (s *Stack) write() {
	packets := make([][]byte, 0, batch)
	for {
		pkt := s.link.ReadContext(s.ctx)
		if pkt == nil {
			return
		}
		packets = packets[:0]
		for ; pkt != nil; pkt = s.link.Read() {
			packets = append(packets, flat(pkt))
			pkt.DecRef()
			if len(packets) == batch {
				break
			}
		}
		if w := s.writer.Load(); w != nil && *w != nil {
			_ = (*w)(packets) // the interface is gone or full: lost packets are sent again, or their sender is gone too
		}
		clear(packets)
	}
}

// flat is a packet in one piece.
func flat(pkt *stack.PacketBuffer) []byte {
	b := make([]byte, 0, pkt.Size())
	for _, part := range pkt.AsSlices() {
		b = append(b, part...)
	}
	return b
}

// Close cuts every flow, and returns when all goroutines of the stack have ended.
func (s *Stack) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.closed = true
	cut := make([]*flow, 0, len(s.flows))
	for _, f := range s.flows {
		cut = append(cut, f)
	}
	s.mu.Unlock()
	s.stop()
	for _, f := range cut {
		f.cut()
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.wg.Wait()
	}()
	for left := true; left; { // a handshake that begins just now is found the next time
		select {
		case <-gone:
			left = false
		case <-time.After(5 * time.Millisecond):
			for _, ep := range s.ns.RegisteredEndpoints() {
				ep.Abort()
			}
		}
	}
	s.ns.Destroy()
	s.link.Close()
	s.cfg.Budget.leave(s)
	s.refused.flush()
	return nil
}

// Stats are a stack's counters since it was made.
type Stats struct {
	Flows    int    // at this time
	Opened   uint64 // flows let out, and connections to services
	Sent     uint64 // bytes of content from the container to the outside
	Received uint64 // bytes of content from the outside to the container
	Refused  map[Reason]uint64
}

// Stats are the counters.
func (s *Stack) Stats() Stats {
	s.mu.Lock()
	n := len(s.flows)
	s.mu.Unlock()
	return Stats{Flows: n, Opened: s.opened.Load(), Sent: s.sent.Load(), Received: s.received.Load(),
		Refused: s.refused.sum()}
}
