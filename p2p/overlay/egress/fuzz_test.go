package egress

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// FuzzDeliver holds that no packet makes the stack panic, hold more flows than it may, or dial what is closed. Each input
// is delivered as it is, as the container's with a header that is right, and in two halves.
func FuzzDeliver(f *testing.F) {
	f.Add(syn(member, 1024))
	f.Add(ping(service))
	f.Add([]byte{})
	udp := make([]byte, 40)
	udp[0], udp[3], udp[9] = 0x45, 40, 17
	copy(udp[16:], outside.Addr().AsSlice())
	copy(udp[20:], []byte{1, 2, 0, 80, 0, 20})
	f.Add(udp)
	w := newWorld()
	cfg := config(internet, w)
	cfg.Limits = Limits{Flows: 64, NewFlows: 1 << 20, Queries: 1 << 19, IdleTCP: 50 * time.Millisecond, IdleUDP: 50 * time.Millisecond}
	cfg.Resolve = &book{}
	wrong := make(chan netip.AddrPort, 1)
	var s *Stack
	cfg.Dial = func(_ context.Context, network string, to netip.AddrPort) (net.Conn, error) {
		if _, open := s.verdict(network == "tcp4", to); !open {
			select {
			case wrong <- to:
			default:
			}
		}
		here, there := net.Pipe()
		go io.Copy(there, there)
		return here, nil
	}
	cfg.Services = map[uint16]func(context.Context, net.Conn){80: func(_ context.Context, c net.Conn) { io.Copy(c, c) }}
	s, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	s.SetWriter(func([][]byte) error { return nil })
	f.Cleanup(func() { s.Close() })
	f.Fuzz(func(t *testing.T, packet []byte) {
		s.Deliver([][]byte{packet})
		if len(packet) >= header.IPv4MinimumSize && len(packet) < 1<<16 {
			b := append([]byte(nil), packet...)
			b[0] = 4<<4 | max(b[0]&15, 5)
			h := header.IPv4(b)
			if int(h.HeaderLength()) > len(b) {
				b[0] = 0x45
			}
			h.SetTotalLength(uint16(len(b)))
			h.SetSourceAddress(at(member))
			h.SetChecksum(0)
			h.SetChecksum(^h.CalculateChecksum())
			s.Deliver([][]byte{b, b[:len(b)/2], b[len(b)/2:], b})
		}
		if n := s.Stats().Flows; n > 64 {
			t.Fatalf("%d flows", n)
		}
		select {
		case to := <-wrong:
			t.Fatalf("%v was dialled", to)
		default:
		}
	})
}
