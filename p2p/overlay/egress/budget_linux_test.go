package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// sharing opens a stack and a container that take from a budget.
func sharing(t *testing.T, b *Budget, w *world, dial func(context.Context, string, netip.AddrPort) (net.Conn, error)) (*Stack, *container) {
	t.Helper()
	cfg := config(internet, w)
	cfg.Budget, cfg.Limits = b, Limits{Flows: MaxFlows, NewFlows: 1 << 20}
	if dial != nil {
		cfg.Dial = dial
	}
	return open(t, cfg)
}

// says tells whether a connection is alive: what is said on it comes back.
func says(c *gonet.TCPConn) bool {
	b := make([]byte, 2)
	_, err := c.Write([]byte("hi"))
	if err == nil {
		_, err = c.Read(b)
	}
	return err == nil
}

// A container that has all the flows that it can get leaves another one its share, and takes none of that back. What all hold together
// never exceeds the budget.
func TestAttackFlowBudget(t *testing.T) {
	t.Parallel()
	const most = 40
	b := NewBudget(most * flowBytes)
	w := newWorld()
	w.put(outside, echoTCP(t))
	greedyStack, greedy := sharing(t, b, w, nil)
	_, honest := sharing(t, b, w, nil)
	within := func() {
		t.Helper()
		if used := b.Used(); used > b.max {
			t.Errorf("%d bytes are counted, the budget is %d", used, b.max)
		}
	}
	all := func() (n int) {
		for range 3 * most {
			if c, err := greedy.dial(context.Background(), outside); err == nil {
				n++
				t.Cleanup(func() { c.Close() })
			}
			within()
		}
		return n
	}
	if n := all(); n != most {
		t.Errorf("alone it has %d flows, want %d", n, most)
	}
	if greedyStack.Stats().Refused[ReasonShare] == 0 {
		t.Error("none of its flows was refused")
	}
	var mine []*gonet.TCPConn
	for range most / 2 {
		c := honest.mustDial(t, outside)
		t.Cleanup(func() { c.Close() })
		mine = append(mine, c)
		within()
	}
	until(t, "the greedy one has its share left", func() bool { return greedyStack.Stats().Flows == most/2 })
	if n := all(); n != 0 {
		t.Errorf("it took %d flows back", n)
	}
	for _, c := range mine {
		if !says(c) {
			t.Error("a flow of the honest one is broken")
		}
	}
	if c, err := honest.dial(context.Background(), outside); err == nil {
		c.Close()
		t.Error("the honest one has more than its share")
	}
}

// Thousands of connections that are never answered, and thousands of pairs of ports, hold no more than the budget, and others begin theirs.
func TestAttackFlowFlood(t *testing.T) {
	t.Parallel()
	const most = 200
	datagrams := netip.AddrPortFrom(outside.Addr(), 5353)
	for name, send := range map[string]func(s *Stack, port uint16){
		"half open": func(s *Stack, port uint16) { s.Deliver([][]byte{syn(member, port)}) },
		"datagrams": func(s *Stack, port uint16) { s.Deliver([][]byte{datagram(port, datagrams)}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := NewBudget(most * flowBytes)
			w := newWorld()
			w.put(outside, echoTCP(t))
			w.put(datagrams, echoUDP(t))
			s, _ := sharing(t, b, w, nil)
			_, honest := sharing(t, b, w, nil)
			for i := range 4000 {
				send(s, uint16(1024+i))
				if used := b.Used(); used > b.max {
					t.Fatalf("%d bytes are counted, the budget is %d", used, b.max)
				}
			}
			if got := s.Stats(); got.Refused[ReasonShare] == 0 || got.Flows > most {
				t.Errorf("after a flood: %+v", got)
			}
			for range 8 {
				c := honest.mustDial(t, outside)
				defer c.Close()
				if !says(c) {
					t.Error("a flow of the honest one is broken")
				}
			}
		})
	}
}

// datagram is one from the container to an address.
func datagram(port uint16, to netip.AddrPort) []byte {
	const payload = 1
	b := make([]byte, header.IPv4MinimumSize+header.UDPMinimumSize+payload)
	h := header.IPv4(b)
	h.Encode(&header.IPv4Fields{TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.UDPProtocolNumber), SrcAddr: at(member), DstAddr: at(to.Addr())})
	h.SetChecksum(^h.CalculateChecksum())
	header.UDP(h.Payload()).Encode(&header.UDPFields{SrcPort: port, DstPort: to.Port(), Length: header.UDPMinimumSize + payload})
	return b
}

// Containers that begin flows as fast as they can leave others theirs: what all may begin is divided.
func TestAttackFlowsBegunByManyContainers(t *testing.T) {
	t.Parallel()
	b := NewBudget(DefaultBudget)
	var all []*Stack
	for range 20 {
		cfg := config(internet, newWorld())
		cfg.Budget = b
		s, _ := open(t, cfg)
		all = append(all, s)
	}
	sum := 0.0
	for _, s := range all {
		if s.newFlows.Limit() != all[0].newFlows.Limit() {
			t.Errorf("%v new flows a second, another has %v", s.newFlows.Limit(), all[0].newFlows.Limit())
		}
		sum += float64(s.newFlows.Limit())
	}
	if sum > allNewFlows {
		t.Errorf("all together begin %v flows a second, at most %d", sum, allNewFlows)
	}
	for _, s := range all[5:] {
		s.Close()
	}
	if got := all[0].newFlows.Limit(); got != DefaultNewFlows {
		t.Errorf("with room for all one begins %v flows a second, want %d", got, DefaultNewFlows)
	}
	n := b.take(all[0], false)
	for _, s := range all[:5] {
		s.Close()
	}
	b.give(all[0], n) // as who has cut a flow of it does that late
	if used := b.Used(); used != 0 || len(b.stacks) != 0 {
		t.Errorf("%d bytes are counted, %d stacks are known after all have closed", used, len(b.stacks))
	}
}

// The kernel holds no more for the sockets of a container than is counted: the buffers of a few grow, those of the rest do not.
func TestAttackFlowsHoldTheKernelsMemory(t *testing.T) {
	t.Parallel()
	w, server := newWorld(), echoTCP(t)
	var mu sync.Mutex
	var sockets []*net.TCPConn
	b := NewBudget(DefaultBudget)
	stack, c := sharing(t, b, w, func(ctx context.Context, network string, _ netip.AddrPort) (net.Conn, error) {
		d := net.Dialer{ControlContext: func(ctx context.Context, _, _ string, c syscall.RawConn) error { return bound(ctx, c) }}
		conn, err := d.DialContext(ctx, network, server)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			sockets = append(sockets, conn.(*net.TCPConn))
		}
		return conn, err
	})
	for range 3 * maxWide {
		conn := c.mustDial(t, outside)
		t.Cleanup(func() { conn.Close() })
	}
	if used, want := b.Used(), maxWide*b.wide+2*maxWide*flowBytes; used != want {
		t.Errorf("%d bytes are counted, want %d", used, want)
	}
	narrow := 0
	for _, s := range sockets {
		read, write := buffersOf(t, s)
		if read <= 2*narrowBuffer && write <= 2*narrowBuffer {
			narrow++
		} else if read > wideRead().counts || write > wideWrite().counts {
			t.Errorf("a socket's buffers are of %d and %d bytes, counted are %d and %d", read, write, wideRead().counts, wideWrite().counts)
		}
	}
	if narrow != 2*maxWide {
		t.Errorf("the buffers of %d of %d sockets are narrow, want %d", narrow, len(sockets), 2*maxWide)
	}
	// a connection is narrowed after its handshake, of which the container may know before
	until(t, "narrow connections in the stack", func() bool {
		narrow := 0
		for _, ep := range stack.ns.RegisteredEndpoints() {
			if ep, ok := ep.(tcpip.Endpoint); ok && ep.SocketOptions().GetReceiveBufferSize() == narrowBuffer &&
				ep.SocketOptions().GetSendBufferSize() == narrowBuffer {
				narrow++
			}
		}
		return narrow == 2*maxWide
	})
}

// buffersOf are the sizes of a socket's buffers now.
func buffersOf(t *testing.T, s *net.TCPConn) (read, write int64) {
	t.Helper()
	raw, err := s.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		for option, n := range map[int]*int64{unix.SO_RCVBUF: &read, unix.SO_SNDBUF: &write} {
			size, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, option)
			if err != nil {
				t.Error(err)
			}
			*n = int64(size)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return read, write
}
