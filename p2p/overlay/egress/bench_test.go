package egress

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
)

// BenchmarkTCP is the throughput of one connection through the stack, with the container's own stack in the same process,
// and of the same over loopback without either.
func BenchmarkTCP(b *testing.B) {
	const size = 1 << 20
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				kind := make([]byte, 1)
				if _, err := io.ReadFull(conn, kind); err != nil {
					return
				}
				if kind[0] == 'd' {
					block := make([]byte, size)
					for {
						if _, err := conn.Write(block); err != nil {
							return
						}
					}
				}
				n, _ := io.Copy(io.Discard, conn)
				if n > 0 {
					conn.Write(kind)
				}
			}()
		}
	}()
	w := newWorld()
	w.put(outside, l.Addr().String())
	type half interface {
		net.Conn
		CloseWrite() error
	}
	dials := []struct {
		name string
		dial func(b *testing.B) half
	}{
		{"egress", func(b *testing.B) half {
			_, c := open(b, config(internet, w))
			return c.mustDial(b, outside)
		}},
		{"loopback", func(b *testing.B) half {
			c, err := w.dial(context.Background(), "tcp4", outside)
			if err != nil {
				b.Fatal(err)
			}
			return c.(*net.TCPConn)
		}},
	}
	for _, d := range dials {
		b.Run("down/"+d.name, func(b *testing.B) {
			conn := d.dial(b)
			defer conn.Close()
			conn.Write([]byte("d"))
			b.SetBytes(size)
			b.ReportAllocs()
			block := make([]byte, size)
			for b.Loop() {
				if _, err := io.ReadFull(conn, block); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("up/"+d.name, func(b *testing.B) {
			conn := d.dial(b)
			defer conn.Close()
			conn.Write([]byte("u"))
			b.SetBytes(size)
			b.ReportAllocs()
			block := make([]byte, size)
			for b.Loop() {
				if _, err := conn.Write(block); err != nil {
					b.Fatal(err)
				}
			}
			conn.CloseWrite()
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkVerdict is what a new flow costs before it is dialled, with a full allow list.
func BenchmarkVerdict(b *testing.B) {
	texts := make([]string, MaxRules)
	for i := range texts {
		texts[i] = netip.AddrFrom4([4]byte{93, byte(i >> 8), byte(i), 1}).String() + ":443"
	}
	s, _ := open(b, config(rules(b, texts...), newWorld()))
	b.ReportAllocs()
	for b.Loop() {
		s.verdict(true, netip.AddrPortFrom(outside.Addr(), 80))
	}
}
