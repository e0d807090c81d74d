package wire

import (
	"bytes"
	"net/netip"
	"testing"

	"golang.zx2c4.com/wireguard/device"
)

// datagram is one of a kind, of the length that it has.
func datagram(kind byte, size int) []byte {
	b := bytes.Repeat([]byte{0xab}, size)
	copy(b, []byte{kind, 0, 0, 0})
	return b
}

func TestKindsAreToldApart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		p    []byte
		want int
	}{
		{"initiation", datagram(1, device.MessageInitiationSize), Initiation},
		{"response", datagram(2, device.MessageResponseSize), Response},
		{"cookie", datagram(3, device.MessageCookieReplySize), Cookie},
		{"data", datagram(4, 1452), Data},
		{"keepalive", datagram(4, 32), Data},
		{"probe", datagram(5, MinProbe), Probe},
		{"QUIC, long header", datagram(0xc3, 1200), Other},
		{"QUIC, short header", datagram(0x41, 30), Other},
		{"empty", nil, Junk},
		{"one byte of QUIC", []byte{0x40}, Other},
		{"short initiation", datagram(1, device.MessageInitiationSize-1), Junk},
		{"long response", datagram(2, device.MessageResponseSize+1), Junk},
		{"short data", datagram(4, 31), Junk},
		{"short probe", datagram(5, MinProbe-1), Junk},
		{"type 6", datagram(6, 100), Junk},
		{"reserved bytes", append([]byte{4, 0, 1, 0}, make([]byte, 60)...), Junk},
		{"STUN", append([]byte{0, 1, 0, 0}, make([]byte, 60)...), Junk},
	} {
		if got := KindOf(c.p); got != c.want {
			t.Errorf("%s: kind %d, want %d", c.name, got, c.want)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(AppendFrame(nil, datagram(4, 64)))
	f.Add(AppendFrame(AppendFrame(nil, datagram(1, device.MessageInitiationSize)), datagram(5, MinProbe)))
	f.Add([]byte{0xff, 0xff, 4, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		var again []byte
		for {
			p, err := ReadFrame(r, make([]byte, 2<<10))
			if err != nil {
				break
			}
			if len(p) > MaxPacket || KindOf(p) <= Other {
				t.Fatalf("took a packet of %d bytes, kind %d", len(p), KindOf(p))
			}
			again = AppendFrame(again, p)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatal("frames are not what was read")
		}
	})
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
