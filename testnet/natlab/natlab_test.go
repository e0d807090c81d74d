//go:build linux

package natlab

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// lab makes a lab for sites of these kinds, or skips the test.
func lab(t *testing.T, kinds ...Kind) *Lab {
	t.Helper()
	if os.Getenv("STARLING_NETNS") == "" {
		t.Skip("set STARLING_NETNS=1 to make network namespaces, as `make test` does")
	}
	if err := Available(kinds...); err != nil {
		t.Skip(err)
	}
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func site(t *testing.T, l *Lab, k Kind) *Site {
	t.Helper()
	s, err := l.Site(k)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// packet opens a UDP socket inside a site.
func packet(t *testing.T, s *Site) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	if err := s.Do(func() (err error) {
		c, err = net.ListenPacket("udp4", s.IP+":7000")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// seen sends a packet to a public site and returns the address it came from, or "" when it did not come. It is sent again
// now and then, so that what a busy machine drops or holds up is not taken for a filter.
func seen(t *testing.T, from, at net.PacketConn) string {
	t.Helper()
	token := []byte(rand.Text())
	for range 8 {
		if _, err := from.WriteTo(token, at.LocalAddr()); err != nil {
			return ""
		}
		_ = at.SetReadDeadline(time.Now().Add(250 * time.Millisecond))
		b := make([]byte, 2*len(token))
		for {
			n, addr, err := at.ReadFrom(b)
			if err != nil {
				break
			}
			if bytes.Equal(b[:n], token) {
				return addr.String()
			}
		}
	}
	return ""
}

// Every kind does to UDP and TCP what its comment says.
func TestKinds(t *testing.T) {
	t.Parallel()
	l := lab(t)
	one, two := site(t, l, Public), site(t, l, Public)
	p1, p2 := packet(t, one), packet(t, two)
	for _, c := range []struct {
		kind      Kind
		udp, same bool
	}{{Cone, true, true}, {Symmetric, true, false}, {Closed, false, false}, {NoUDP, false, false}, {UPnP, true, true}} {
		if err := Available(c.kind); err != nil {
			t.Logf("%s: %v", c.kind, err)
			continue
		}
		s := site(t, l, c.kind)
		inside := packet(t, s)
		a, b := seen(t, inside, p1), seen(t, inside, p2)
		if got := a != "" && b != ""; got != c.udp {
			t.Errorf("%s: UDP gets out: %q, %q", c.kind, a, b)
		}
		if c.udp && (a == b) != c.same {
			t.Errorf("%s: seen as %s and %s", c.kind, a, b)
		}
		if want := fmt.Sprintf("%s:7000", s.Public); c.same && a != want {
			t.Errorf("%s: seen as %s, want %s", c.kind, a, want)
		}
		// TCP gets out and not in.
		ln, err := one.Listen("tcp", fmt.Sprintf("%s:%d", one.IP, 9000+l.sites))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := s.Dial(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Errorf("%s: TCP does not get out: %v", c.kind, err)
		} else {
			conn.Close()
		}
		ln.Close()
		in, err := s.Listen("tcp", s.IP+":9000")
		if err != nil {
			t.Fatal(err)
		}
		if err := one.Do(func() error {
			conn, err := net.DialTimeout("tcp", s.Public+":9000", 500*time.Millisecond)
			if err == nil {
				conn.Close()
			}
			return err
		}); err == nil {
			t.Errorf("%s: TCP gets in", c.kind)
		}
		in.Close()
	}
}

func TestCutAndServe(t *testing.T) {
	t.Parallel()
	l := lab(t)
	one, two := site(t, l, Public), site(t, l, Public)
	p1, p2 := packet(t, one), packet(t, two)
	if err := l.Cut(one, two); err != nil {
		t.Fatal(err)
	}
	if a := seen(t, p1, p2); a != "" {
		t.Errorf("a packet from %s passed the cut", a)
	}
	if err := l.Mend(); err != nil {
		t.Fatal(err)
	}
	if a := seen(t, p1, p2); a == "" {
		t.Error("no packet after the cut was mended")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = c.Write([]byte("hello"))
			c.Close()
		}
	}()
	addr, err := l.Serve(one, 80, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := two.Dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var b [5]byte
	if _, err := c.Read(b[:]); err != nil || string(b[:]) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
}
