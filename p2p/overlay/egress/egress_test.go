package egress

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

var internet = Policy{Mode: ModeInternet}

// Bytes go out and come back whole, and the end of what one side sends reaches the other while it still speaks.
func TestTCP(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(outside, echoTCP(t))
	s, c := open(t, config(internet, w))
	conn := c.mustDial(t, outside)
	data := make([]byte, 3<<20)
	rand.Read(data)
	go func() {
		conn.Write(data)
		conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, append(data, "over"...)) {
		t.Fatalf("%d bytes came back of %d, %v", len(got), len(data), err)
	}
	conn.Close()
	until(t, "the flow ends", func() bool { return s.Stats().Flows == 0 })
	if st := s.Stats(); st.Sent != uint64(len(data)) || st.Received != uint64(len(data)+4) || st.Opened != 1 || len(st.Refused) > 0 {
		t.Errorf("counted %+v", st)
	}
}

func TestUDP(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(outside, echoUDP(t))
	s, c := open(t, config(internet, w))
	conn := c.sendUDP(t, outside, "hello")
	b := make([]byte, 1<<16)
	for _, size := range []int{5, 0, 1200, 4000} { // the last one in fragments
		if size != 5 {
			conn.Write(bytes.Repeat([]byte{7}, size))
		}
		if n, err := conn.Read(b); err != nil || n != size {
			t.Fatalf("%d bytes came back of %d, %v", n, size, err)
		}
	}
	until(t, "all is counted", func() bool {
		st := s.Stats()
		return st.Flows == 1 && st.Sent == 5205 && st.Received == 5205
	})
}

// A tenant that scans the provider's network finds nothing, at once, in every mode; nothing is dialled, and the provider
// is told in one line.
func TestScanOfTheProvidersNetwork(t *testing.T) {
	t.Parallel()
	for _, mode := range []Policy{internet, {Mode: ModeNone}, rules(t, "0.0.0.0/0", "pypi.org")} {
		t.Run(string(mode.Mode), func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			var log syncBuffer
			cfg := config(mode, w)
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			own := netip.MustParseAddr("198.41.0.4")
			cfg.Own = func() []netip.Addr { return []netip.Addr{own} }
			s, c := open(t, cfg)
			closedOnes := []string{
				"127.0.0.1", "10.0.0.1", "10.77.0.9", "172.16.3.4", "100.64.1.1", "169.254.169.254", "0.0.0.1", "240.0.0.1", "198.18.0.1",
				"192.0.2.7", "198.51.100.7", "203.0.113.7", "192.88.99.1",
			}
			for i := range 100 {
				closedOnes = append(closedOnes, fmt.Sprintf("192.168.1.%d", i+1))
			}
			for _, a := range closedOnes {
				c.refusedTCP(t, netip.AddrPortFrom(netip.MustParseAddr(a), 22))
			}
			c.refusedTCP(t, netip.AddrPortFrom(own, 22))
			if n := len(w.all()); n > 0 {
				t.Errorf("%d addresses were dialled: %v", n, w.all())
			}
			if st := s.Stats(); st.Refused[ReasonClosed] != uint64(len(closedOnes)) || st.Refused[ReasonHost] != 1 {
				t.Errorf("counted %v", st.Refused)
			}
			s.Close()
			lines := strings.Count(log.String(), `reason="closed address"`)
			if lines < 1 || lines > len(closedOnes)/2 || !strings.Contains(log.String(), "times=") {
				t.Errorf("%d lines for a scan:\n%s", lines, log.String())
			}
		})
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestPolicyOfFlows(t *testing.T) {
	t.Parallel()
	w := newWorld()
	server := echoTCP(t)
	for _, a := range []string{"93.184.216.34:443", "93.184.216.34:80", "93.184.217.1:8080", "151.101.1.1:443"} {
		w.put(netip.MustParseAddrPort(a), server)
	}
	t.Run("list", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, config(rules(t, "93.184.216.34:443", "93.184.217.0/24:8000-8100,9000", "example.org"), w))
		for _, a := range []string{"93.184.216.34:443", "93.184.217.1:8080"} {
			c.mustDial(t, netip.MustParseAddrPort(a)).Close()
		}
		for _, a := range []string{"93.184.216.34:80", "93.184.217.1:8101", "151.101.1.1:443"} {
			c.refusedTCP(t, netip.MustParseAddrPort(a))
		}
		if got := s.Stats().Refused[ReasonList]; got != 3 {
			t.Errorf("%d refused by the list, want 3", got)
		}
	})
	t.Run("mail", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, config(internet, w))
		for _, port := range []uint16{25, 465, 587} {
			w.put(netip.AddrPortFrom(outside.Addr(), port), server)
			c.refusedTCP(t, netip.AddrPortFrom(outside.Addr(), port))
		}
		if s.Stats().Refused[ReasonMail] != 3 {
			t.Errorf("counted %v", s.Stats().Refused)
		}
	})
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, config(internet, w))
		c.refusedTCP(t, netip.MustParseAddrPort("151.101.1.2:443"))
		until(t, "it is counted", func() bool { return s.Stats().Refused[ReasonUnreachable] == 1 && s.Stats().Flows == 0 })
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, config(internet.Asked(false), w))
		c.refusedTCP(t, outside)
		c.refusedTCP(t, netip.AddrPortFrom(service, 9999))
		if got := s.Stats().Refused; got[ReasonMode] != 1 || got[ReasonService] != 1 {
			t.Errorf("counted %v", got)
		}
	})
}

// UDP and pings that are not let out are answered with ICMP "administratively prohibited".
func TestRefusedUDPAndICMP(t *testing.T) {
	t.Parallel()
	s, c := open(t, config(internet, newWorld()))
	prohibited := make(chan struct{}, 16)
	look := func(p []byte) {
		h := header.IPv4(p)
		if h.TransportProtocol() == header.ICMPv4ProtocolNumber {
			if i := header.ICMPv4(h.Payload()); i.Type() == header.ICMPv4DstUnreachable && i.Code() == header.ICMPv4AdminProhibited {
				prohibited <- struct{}{}
			}
		}
	}
	c.seen.Store(&look)
	conn := c.sendUDP(t, netip.MustParseAddrPort("192.168.1.1:53"), "knock")
	defer conn.Close()
	<-prohibited
	c.sendUDP(t, netip.AddrPortFrom(service, 9999), "knock").Close()
	<-prohibited
	s.Deliver([][]byte{ping(outside.Addr())})
	<-prohibited
	if got := s.Stats().Refused; got[ReasonClosed] != 1 || got[ReasonService] != 1 || got[ReasonProtocol] != 1 {
		t.Errorf("counted %v", got)
	}
	answered := make(chan struct{}, 1)
	look = func(p []byte) {
		h := header.IPv4(p)
		if h.TransportProtocol() == header.ICMPv4ProtocolNumber && header.ICMPv4(h.Payload()).Type() == header.ICMPv4EchoReply {
			answered <- struct{}{}
		}
	}
	s.Deliver([][]byte{ping(service)})
	<-answered
}

// ping is an echo request of the container's.
func ping(to netip.Addr) []byte {
	b := make([]byte, header.IPv4MinimumSize+header.ICMPv4MinimumSize)
	h := header.IPv4(b)
	h.Encode(&header.IPv4Fields{TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber), SrcAddr: at(member), DstAddr: at(to)})
	h.SetChecksum(^h.CalculateChecksum())
	i := header.ICMPv4(h.Payload())
	i.SetType(header.ICMPv4Echo)
	i.SetChecksum(^checksum.Checksum(i, 0))
	return b
}

// The dialler looks at the address that the socket connects to, whatever was thought of it before.
func TestDialLooksAgain(t *testing.T) {
	t.Parallel()
	cfg := config(internet, nil)
	cfg.Dial = nil
	s, _ := open(t, cfg)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, network := range []string{"tcp4", "udp4"} {
		if _, err := s.cfg.Dial(context.Background(), network, netip.MustParseAddrPort(l.Addr().String())); !errors.Is(err, ErrRefused) {
			t.Errorf("%s to a loopback address: %v, want it refused", network, err)
		}
	}
	for address, open := range map[string]bool{
		"93.184.216.34:443": true, "[::ffff:192.168.1.1]:443": false, "192.168.1.1:443": false, "169.254.169.254:80": false, "93.184.216.34:25": false,
		"[fe80::1%eth0]:80": false, "[64:ff9b::a00:1]:80": false, "nonsense": false, "93.184.216.34:0": false,
	} {
		if err := s.again("tcp4", address); (err == nil) != open {
			t.Errorf("%s: %v, open is %v", address, err, open)
		}
	}
	if err := s.again("udp4", "93.184.216.34:25"); err != nil {
		t.Errorf("udp/25: %v", err)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		p := netip.MustParsePrefix(a.String())
		if !s.hosts.have(p.Addr().Unmap()) {
			t.Errorf("%v is the host's own, and it does not know", p.Addr())
		}
	}
}

// A service is called with a connection of the container's, and its context ends with the stack.
func TestService(t *testing.T) {
	t.Parallel()
	cfg := config(Policy{Mode: ModeNone}, newWorld())
	ended := make(chan struct{})
	cfg.Services = map[uint16]func(context.Context, net.Conn){
		7000: func(_ context.Context, conn net.Conn) {
			fmt.Fprintf(conn, "hello %v", conn.RemoteAddr().(*net.TCPAddr).IP)
		},
		7001: func(ctx context.Context, _ net.Conn) { <-ctx.Done(); close(ended) },
	}
	s, c := open(t, cfg)
	conn := c.mustDial(t, netip.AddrPortFrom(service, 7000))
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello "+member.String() {
		t.Errorf("%q, %v", got, err)
	}
	c.mustDial(t, netip.AddrPortFrom(service, 7001))
	until(t, "the service runs", func() bool { return s.Stats().Opened == 2 })
	s.Close()
	<-ended
}

func TestLimits(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(outside, echoTCP(t))
	t.Run("flows", func(t *testing.T) {
		t.Parallel()
		cfg := config(internet, w)
		cfg.Limits.Flows = 3
		s, c := open(t, cfg)
		for range 3 {
			defer c.mustDial(t, outside).Close()
		}
		c.refusedTCP(t, outside)
		if got := s.Stats(); got.Refused[ReasonFlows] != 1 || got.Flows != 3 {
			t.Errorf("counted %+v", got)
		}
	})
	t.Run("new flows", func(t *testing.T) {
		t.Parallel()
		cfg := config(internet, w)
		cfg.Limits.NewFlows = 1e-6
		s, c := open(t, cfg)
		c.mustDial(t, outside).Close()
		c.refusedTCP(t, outside)
		if got := s.Stats().Refused[ReasonRate]; got != 1 {
			t.Errorf("%d refused by rate", got)
		}
	})
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		w.put(outside, echoTCP(t))
		u := netip.AddrPortFrom(outside.Addr(), 5353)
		w.put(u, echoUDP(t))
		cfg := config(internet, w)
		cfg.Limits.IdleTCP, cfg.Limits.IdleUDP = 200*time.Millisecond, 200*time.Millisecond
		s, c := open(t, cfg)
		defer c.sendUDP(t, u, "x").Close()
		if conn, err := c.dial(context.Background(), outside); err == nil { // else it was cut before it stood
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("an idle connection goes on")
			}
		}
		until(t, "idle flows end", func() bool { return s.Stats().Flows == 0 })
	})
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		cfg := config(internet, w)
		cfg.Limits.BytesPerSec = 256 << 10
		_, c := open(t, cfg)
		conn := c.mustDial(t, outside)
		defer conn.Close()
		go conn.Write(make([]byte, 512<<10))
		start := time.Now()
		if _, err := io.CopyN(io.Discard, conn, 512<<10); err != nil {
			t.Fatal(err)
		}
		// 256 KiB at once and the rest at 256 KiB a second; a slow machine only makes it longer.
		if took := time.Since(start); took < 900*time.Millisecond {
			t.Errorf("512 KiB took %v at 256 KiB a second", took)
		}
	})
}

// A container that begins connections and never goes on with them holds no more than its flows, and others begin again
// when those are forgotten. The sources of a flood must be its own address: others are dropped.
func TestFloodOfSYN(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(outside, echoTCP(t))
	cfg := config(internet, w)
	cfg.Limits = Limits{Flows: 16, NewFlows: 1 << 20}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 5000 {
		s.Deliver([][]byte{syn(member, uint16(1024+i)), syn(netip.MustParseAddr("10.77.0.77"), uint16(1024+i))})
	}
	st := s.Stats()
	if st.Flows > 16 || st.Refused[ReasonFlows] == 0 || st.Refused[ReasonSource] != 5000 {
		t.Errorf("after a flood: %+v", st)
	}
	if n := len(w.all()); n > 5000-int(st.Refused[ReasonFlows]) {
		t.Errorf("%d connections were begun outside", n)
	}
	until(t, "half-open connections are forgotten", func() bool { return s.Stats().Flows == 0 })
	until(t, "their endpoints are too", func() bool { return len(s.ns.RegisteredEndpoints()) == 1 }) // DNS
}

// syn is a segment that begins a connection to outside.
func syn(from netip.Addr, port uint16) []byte {
	b := make([]byte, header.IPv4MinimumSize+header.TCPMinimumSize)
	h := header.IPv4(b)
	h.Encode(&header.IPv4Fields{TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.TCPProtocolNumber), SrcAddr: at(from), DstAddr: at(outside.Addr())})
	h.SetChecksum(^h.CalculateChecksum())
	s := header.TCP(h.Payload())
	s.Encode(&header.TCPFields{SrcPort: port, DstPort: outside.Port(), SeqNum: 1, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 65535})
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, at(from), at(outside.Addr()), uint16(len(s)))
	s.SetChecksum(^s.CalculateChecksum(sum))
	return b
}

// What a container does not read does not pile up: the server outside is held back.
func TestContainerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(conn, endless{})
		}
	}()
	w := newWorld()
	w.put(outside, l.Addr().String())
	s, c := open(t, config(internet, w))
	conn := c.mustDial(t, outside)
	defer conn.Close()
	last := uint64(1)
	until(t, "it stands still", func() bool {
		now := s.Stats().Received
		still := now == last && now > 0
		last = now
		time.Sleep(50 * time.Millisecond)
		return still
	})
	if last > 16<<20 {
		t.Errorf("%d bytes were taken for a container that reads none", last)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// What is not the container's IPv4 is counted and dropped.
func TestStrayPackets(t *testing.T) {
	t.Parallel()
	s, _ := open(t, config(internet, newWorld()))
	six := make([]byte, 40)
	six[0] = 6 << 4
	truncated := syn(member, 1)[:30]
	s.Deliver([][]byte{nil, {}, {4 << 4}, six, truncated, bytes.Repeat([]byte{0xff}, 2000)})
	got := s.Stats().Refused
	if got[ReasonMalformed] != 4 || got[ReasonProtocol] != 2 {
		t.Errorf("counted %v", got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := config(internet, newWorld())
	for name, change := range map[string]func(*Config){
		"no address": func(c *Config) { c.Address = netip.Addr{} },
		"IPv6":       func(c *Config) { c.Service = netip.MustParseAddr("fd00::1") },
		"same":       func(c *Config) { c.Service = c.Address },
		"no MTU":     func(c *Config) { c.MTU = 0 },
		"port 53": func(c *Config) {
			c.Services = map[uint16]func(context.Context, net.Conn){53: func(context.Context, net.Conn) {}}
		},
		"no mode":  func(c *Config) { c.Policy.Mode = "" },
		"no rules": func(c *Config) { c.Policy.Mode = ModeAllowlist },
		"flows":    func(c *Config) { c.Limits.Flows = -1 },
	} {
		cfg := good
		change(&cfg)
		if s, err := New(cfg); err == nil {
			s.Close()
			t.Errorf("%s: was taken", name)
		}
	}
}

// Not parallel: it counts what runs. Nothing of a stack does after Close, whatever went on at that time.
func TestCloseLeavesNothing(t *testing.T) {
	w := newWorld()
	w.put(outside, echoTCP(t))
	before := ours()
	for range 3 {
		cfg := config(internet, w)
		cfg.Resolve = &stuck{}
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c := plug(t, s)
		for range 4 {
			c.mustDial(t, outside).Write([]byte("x"))
			c.sendUDP(t, netip.AddrPortFrom(service, 53), string(query(t, "example.org.", 1)))
		}
		for i := range 8 {
			s.Deliver([][]byte{syn(member, uint16(100+i))}) // half open
		}
		var closing sync.WaitGroup
		for range 2 {
			closing.Go(func() { s.Close() })
		}
		closing.Wait()
		s.Deliver([][]byte{syn(member, 99)})
		c.close()
	}
	until(t, "goroutines of the stack end\n"+strings.Join(ours(), "\n\n"), func() bool { return len(ours()) <= len(before) })
}

// ours are the goroutines that run something of gVisor's or of this package, but for the test's servers.
func ours() (out []string) {
	b := make([]byte, 4<<20)
	for _, g := range strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if (strings.Contains(g, "gvisor") || strings.Contains(g, "overlay/egress.(*Stack)")) && !strings.Contains(g, "testing.tRunner") {
			out = append(out, g)
		}
	}
	return out
}

// A writer that is taken away, as an overlay does when it closes, is one that takes nothing.
func TestWriterIsTakenAway(t *testing.T) {
	t.Parallel()
	s, err := New(config(internet, newWorld()))
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{}, 1)
	s.SetWriter(func([][]byte) error { written <- struct{}{}; return nil })
	s.Deliver([][]byte{ping(service)})
	<-written
	s.SetWriter(nil)
	s.Deliver([][]byte{ping(service)})
	until(t, "what is for nobody is dropped", func() bool { return s.link.NumQueued() == 0 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
