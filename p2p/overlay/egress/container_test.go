package egress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

var (
	member  = netip.MustParseAddr("10.77.0.3")
	service = netip.MustParseAddr("10.77.255.254")
	outside = netip.MustParseAddrPort("93.184.216.34:443") // what the tests' Dial leads to a server of theirs
)

const mtu = 1280

// container is the other end: what runs in a container, with a network stack of its own in memory.
type container struct {
	ns   *stack.Stack
	link *channel.Endpoint
	stop context.CancelFunc
	done chan struct{}
	seen atomic.Pointer[func([]byte)] // looks at what comes in
}

// plug makes a container and connects it to a stack.
func plug(t testing.TB, s *Stack) *container {
	t.Helper()
	c := &container{done: make(chan struct{}), link: channel.New(8192, mtu, "")}
	c.ns = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: true})},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	sack := tcpip.TCPSACKEnabled(true)
	c.ns.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	if err := c.ns.CreateNIC(1, c.link); err != nil {
		t.Fatal(err)
	}
	if err := c.ns.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: at(member).WithPrefix()}, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	c.ns.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	s.SetWriter(func(packets [][]byte) error {
		for _, p := range packets {
			if f := c.seen.Load(); f != nil {
				(*f)(p)
			}
			pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(p)})
			c.link.InjectInbound(ipv4.ProtocolNumber, pkt)
			pkt.DecRef()
		}
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() {
		defer close(c.done)
		for {
			pkt := c.link.ReadContext(ctx)
			if pkt == nil {
				return
			}
			var packets [][]byte
			for ; pkt != nil; pkt = c.link.Read() {
				packets = append(packets, flat(pkt))
				pkt.DecRef()
				if len(packets) == batch {
					break
				}
			}
			s.Deliver(packets)
		}
	}()
	return c
}

func (c *container) close() {
	c.ns.Close()
	c.stop()
	<-c.done
	c.ns.Wait()
}

func at(a netip.Addr) tcpip.Address { return tcpip.AddrFrom4(a.As4()) }

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: at(a.Addr()), Port: a.Port()}
}

func (c *container) dial(ctx context.Context, to netip.AddrPort) (*gonet.TCPConn, error) {
	return gonet.DialContextTCP(ctx, c.ns, full(to), ipv4.ProtocolNumber)
}

// mustDial connects, with as much time as it takes.
func (c *container) mustDial(t testing.TB, to netip.AddrPort) *gonet.TCPConn {
	t.Helper()
	conn, err := c.dial(context.Background(), to)
	if err != nil {
		t.Fatalf("dialling %v: %v", to, err)
	}
	return conn
}

// refusedTCP holds that a connection is refused by RST, not by silence.
func (c *container) refusedTCP(t testing.TB, to netip.AddrPort) {
	t.Helper()
	var wq waiter.Queue
	entry, notify := waiter.NewChannelEntry(waiter.WritableEvents)
	wq.EventRegister(&entry)
	ep, terr := c.ns.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &wq)
	if terr != nil {
		t.Fatal(terr)
	}
	defer ep.Close()
	terr = ep.Connect(full(to))
	if _, started := terr.(*tcpip.ErrConnectStarted); started {
		<-notify
		terr = ep.LastError()
	}
	if _, refused := terr.(*tcpip.ErrConnectionRefused); !refused {
		t.Errorf("%v: %v, want a connection refused", to, terr)
	}
}

// sendUDP sends a datagram and returns the socket.
func (c *container) sendUDP(t testing.TB, to netip.AddrPort, data string) *gonet.UDPConn {
	t.Helper()
	raddr := full(to)
	conn, err := gonet.DialUDP(c.ns, nil, &raddr, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// world stands for the internet: an address there is a server of the test's.
type world struct {
	mu      sync.Mutex
	servers map[netip.AddrPort]string // network address of ours
	dialled []netip.AddrPort
}

func newWorld() *world { return &world{servers: map[netip.AddrPort]string{}} }

func (w *world) put(to netip.AddrPort, real string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[to] = real
}

func (w *world) dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	real, found := w.servers[to]
	w.dialled = append(w.dialled, to)
	w.mu.Unlock()
	if !found {
		return nil, errors.New("connection refused")
	}
	var d net.Dialer
	return d.DialContext(ctx, network, real)
}

func (w *world) all() []netip.AddrPort {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]netip.AddrPort(nil), w.dialled...)
}

// echoTCP is a server that says what it is told; and that it was told all.
func echoTCP(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.Copy(c, c); err == nil {
					c.Write([]byte("over"))
				}
			}()
		}
	}()
	return l.Addr().String()
}

func echoUDP(t testing.TB) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(b[:n], from)
		}
	}()
	return c.LocalAddr().String()
}

// config is that of the tests: a policy, and a world to dial.
func config(p Policy, w *world) Config {
	return Config{Address: member, Service: service, MTU: mtu, Policy: p, Dial: w.dial, Log: slog.New(slog.DiscardHandler)}
}

// open makes a stack and a container that is plugged into it.
func open(t testing.TB, cfg Config) (*Stack, *container) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := plug(t, s)
	t.Cleanup(func() {
		s.Close()
		c.close()
	})
	return s, c
}

// until waits for what happens by itself, with as much time as it takes.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for i := 0; !done(); i++ {
		if i > 60000 {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func rules(t testing.TB, texts ...string) Policy {
	t.Helper()
	r, err := ParseRules(texts)
	if err != nil {
		t.Fatal(err)
	}
	return Policy{Mode: ModeAllowlist, Allow: r}
}
