package overlay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/starling-network/starling/p2p/overlay"
	"github.com/starling-network/starling/p2p/overlay/egress"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// outsideOf makes the way out of a namespace and joins it to an overlay with nobody else in it. All of the internet that there
// is is one server at 93.184.216.34:443.
func outsideOf(t testing.TB, server string) (*space, *egress.Stack) {
	t.Helper()
	s, out := spaceWithWayOut(t, server, 1420)
	join(t, p2ptest.Loopback(t, 1)[0], s, 0, func(c *overlay.Config) { c.Outside = out })
	return s, out
}

// aloneOf is the same of a namespace that is in no overlay.
func aloneOf(t testing.TB, server string) (*space, *egress.Stack) {
	t.Helper()
	s, out := spaceWithWayOut(t, server, aloneMTU)
	a, err := overlay.NewAlone(overlay.AloneConfig{Address: s.addr, Tun: s.tun, Outside: out})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return s, out
}

// headOnly is the directory of a cluster of one member.
type headOnly struct{ at netip.Addr }

func (h headOnly) Addresses(name string) []netip.Addr {
	if name == "head" {
		return []netip.Addr{h.at}
	}
	return nil
}

func (headOnly) Name(netip.Addr) string { return "" }

func spaceWithWayOut(t testing.TB, server string, mtu int) (*space, *egress.Stack) {
	t.Helper()
	s := newSpace(t, "10.77.0.2", mtu)
	out, err := egress.New(egress.Config{
		Address: s.addr, Service: netip.MustParseAddr("10.77.255.254"), MTU: mtu, Policy: egress.Policy{Mode: egress.ModeInternet},
		Names:    headOnly{s.addr},
		Services: map[uint16]func(context.Context, net.Conn){514: func(_ context.Context, c net.Conn) { _, _ = io.WriteString(c, "here") }},
		Dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
			if to != netip.MustParseAddrPort("93.184.216.34:443") {
				return nil, errors.New("nobody is there")
			}
			return (&net.Dialer{}).DialContext(ctx, network, server)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return s, out
}

// aloneMTU is that of executions of no cluster.
const aloneMTU = 9000

// What a kernel's own TCP, UDP and ICMP make of the way out: it carries what is allowed, and says at once what is not.
func TestWayOutOfANamespace(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	for name, of := range map[string]func(testing.TB, string) (*space, *egress.Stack){"overlay": outsideOf, "alone": aloneOf} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testWayOut(t, of)
		})
	}
}

func testWayOut(t *testing.T, of func(testing.TB, string) (*space, *egress.Stack)) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go echo(l)
	s, out := of(t, l.Addr().String())

	c := s.dial(t, "93.184.216.34:443")
	data := bytes.Repeat([]byte("outside!"), 1<<20)
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back of %d, %v", len(got), len(data), err)
	}
	if got, err := io.ReadAll(s.dial(t, "10.77.255.254:514")); err != nil || string(got) != "here" {
		t.Errorf("the service said %q, %v", got, err)
	}

	for _, address := range []string{"192.168.1.1:22", "169.254.169.254:80", "10.0.0.1:443", "10.78.0.9:1", "10.77.255.254:80", "93.184.216.34:25", "93.184.216.34:80", "127.0.0.2:1"} {
		s.do(t, func() error {
			c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", address)
			if err == nil {
				c.Close()
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: %v, want it refused", address, err)
			}
			return nil
		})
	}
	var udp net.Conn
	s.do(t, func() (err error) {
		udp, err = (&net.Dialer{}).DialContext(t.Context(), "udp4", "192.168.1.1:53")
		return err
	})
	defer udp.Close()
	if _, err := udp.Write([]byte("knock")); err != nil {
		t.Error(err)
	}
	if _, err := udp.Read(make([]byte, 1)); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("UDP to a private address: %v, want it unreachable", err)
	}
	if got := out.Stats().Refused; got[egress.ReasonClosed] != 5 || got[egress.ReasonMail] != 1 || got[egress.ReasonService] != 1 || got[egress.ReasonUnreachable] != 1 {
		t.Errorf("counted %v", got)
	}

	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("Head."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	query, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	dns := s.packet(t, "10.77.0.2:0")
	if _, err := dns.WriteTo(query, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.77.255.254:53"))); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1500)
	n, _, err := dns.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Unpack(b[:n]); err != nil || len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.AResource).A != s.addr.As4() {
		t.Errorf("head is %+v, %v", m.Answers, err)
	}
}

// BenchmarkWayOut is the throughput of one TCP connection from a namespace to a server of the host's, through TUN and stack, with an
// overlay between them and without.
func BenchmarkWayOut(b *testing.B) {
	needsNamespaces(b)
	const size = 1 << 20
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go pourAndDrink(l, size)
	for _, c := range []struct {
		name string
		out  func(testing.TB, string) (*space, *egress.Stack)
	}{{"overlay", outsideOf}, {"alone", aloneOf}} {
		s, _ := c.out(b, l.Addr().String())
		b.Run(c.name+"/up", func(b *testing.B) {
			conn := s.dial(b, "93.184.216.34:443")
			defer conn.Close()
			block := make([]byte, size)
			b.SetBytes(size)
			for b.Loop() {
				if _, err := conn.Write(block); err != nil {
					b.Fatal(err)
				}
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			if _, err := io.Copy(io.Discard, conn); err != nil { // all of it has arrived
				b.Fatal(err)
			}
		})
		b.Run(c.name+"/down", func(b *testing.B) {
			conn := s.dial(b, "93.184.216.34:443")
			defer conn.Close()
			if _, err := conn.Write([]byte("d")); err != nil {
				b.Fatal(err)
			}
			block := make([]byte, size)
			b.SetBytes(size)
			for b.Loop() {
				if _, err := io.ReadFull(conn, block); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// pourAndDrink sends without end to who begins with a d, and reads what others send.
func pourAndDrink(l net.Listener, size int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			kind := make([]byte, 1)
			if _, err := io.ReadFull(c, kind); err != nil || kind[0] != 'd' {
				_, _ = io.Copy(io.Discard, c)
				return
			}
			for block := make([]byte, size); err == nil; {
				_, err = c.Write(block)
			}
		}()
	}
}
