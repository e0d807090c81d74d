package packet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/overlay/wire"
)

// rawTCP is a packet as the kernel gives it to a TUN with offloads: size bytes of payload in segments of seg, or whole (0).
func rawTCP(payload []byte, seg int, flags byte) []byte {
	const head = 20 + 32
	b := make([]byte, VirtioHead+head, VirtioHead+head+len(payload))
	b = append(b, payload...)
	b[0] = virtioNeedsChecksum
	if seg > 0 {
		b[1] = virtioTCP4
		binary.NativeEndian.PutUint16(b[4:], uint16(seg))
	}
	binary.NativeEndian.PutUint16(b[2:], head)
	binary.NativeEndian.PutUint16(b[6:], 20)
	binary.NativeEndian.PutUint16(b[8:], 16)
	ip := b[VirtioHead:]
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, TCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint16(ip[4:], 0xfffe)
	copy(ip[12:], []byte{10, 77, 0, 2, 10, 77, 0, 3})
	binary.BigEndian.PutUint16(ip[10:], ^Fold(Sum(ip[:20], 0)))
	tcp := ip[20:]
	binary.BigEndian.PutUint16(tcp, 40000)
	binary.BigEndian.PutUint16(tcp[2:], 5001)
	binary.BigEndian.PutUint32(tcp[4:], 0xfffffff0)
	tcp[12], tcp[13] = 8<<4, flags
	binary.BigEndian.PutUint16(tcp[16:], Fold(Sum(ip[12:20], uint64(TCP)+uint64(len(tcp)))))
	return b
}

func rawUDP(payload []byte, seg int) []byte {
	b := make([]byte, VirtioHead+28, VirtioHead+28+len(payload))
	b = append(b, payload...)
	b[0] = virtioNeedsChecksum
	if seg > 0 {
		b[1] = virtioUDP
		binary.NativeEndian.PutUint16(b[4:], uint16(seg))
	}
	binary.NativeEndian.PutUint16(b[6:], 20)
	binary.NativeEndian.PutUint16(b[8:], 6)
	ip := b[VirtioHead:]
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{10, 77, 0, 2, 10, 77, 0, 3})
	binary.BigEndian.PutUint16(ip[10:], ^Fold(Sum(ip[:20], 0)))
	udp := ip[20:]
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], Fold(Sum(ip[12:20], uint64(UDP)+uint64(len(udp)))))
	return b
}

// sound checks both checksums of a packet, and its lengths.
func sound(t rapid.TB, p []byte) {
	t.Helper()
	if int(binary.BigEndian.Uint16(p[2:])) != len(p) {
		t.Fatalf("a packet of %d bytes says %d", len(p), binary.BigEndian.Uint16(p[2:]))
	}
	if s := Fold(Sum(p[:20], 0)); s != 0xffff {
		t.Fatalf("IP checksum: %#x", s)
	}
	if s := Fold(Sum(p[20:], Sum(p[12:20], uint64(p[9])+uint64(len(p)-20)))); s != 0xffff {
		t.Fatalf("checksum of protocol %d: %#x", p[9], s)
	}
}

// TestSegmentsAreWhatTheKernelMeant: the payload of all segments together is that of the packet, each is sound and none is larger than the path takes.
func TestSegmentsAreWhatTheKernelMeant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		payload := bytes.Repeat([]byte{1, 2, 3, 5, 7, 11, 13}, rapid.IntRange(1, 64000).Draw(t, "payload")/7+1)
		mtu := rapid.IntRange(wire.MinMTU, wire.MaxMTU).Draw(t, "mtu")
		seg := rapid.IntRange(0, 1460).Draw(t, "seg")
		tcp := rapid.Bool().Draw(t, "tcp")
		if seg == 0 {
			payload = payload[:min(len(payload), 1400)]
		}
		raw := rawUDP(payload, seg)
		if tcp {
			raw = rawTCP(payload, seg, 0x19) // FIN, PSH, ACK
		}
		p := &Packet{}
		if err := Parse(raw, p); err != nil {
			t.Fatal(err)
		}
		whole := len(p.Data)
		if !p.Fit(mtu) {
			if tcp || 28+min(max(seg, len(payload)*boolInt(seg == 0)), len(payload)) <= mtu {
				t.Fatalf("a packet of %d bytes in segments of %d does not fit %d", whole, seg, mtu)
			}
			return
		}
		var got []byte
		for i := 0; !p.Empty(); i++ {
			b := make([]byte, Small)
			n := p.Next(b)
			if n == 0 || n > mtu && seg != 0 || n > mtu && tcp {
				t.Fatalf("segment %d has %d bytes, the path takes %d", i, n, mtu)
			}
			b = b[:n]
			sound(t, b)
			head := 28
			if tcp {
				head = 52
				if at := binary.BigEndian.Uint32(b[24:]); at != 0xfffffff0+uint32(len(got)) {
					t.Fatalf("segment %d is at %#x", i, at)
				}
				if last := p.Empty(); (b[33]&(tcpFIN|tcpPSH) != 0) != last {
					t.Fatalf("segment %d has flags %#x", i, b[33])
				}
			}
			got = append(got, b[head:]...)
		}
		if !bytes.Equal(got, payload) {
			t.Fatalf("%d bytes of payload became %d", len(payload), len(got))
		}
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func FuzzPacket(f *testing.F) {
	f.Add(rawTCP(make([]byte, 300), 100, 0x10), 1280)
	f.Add(rawTCP(make([]byte, 10), 0, 0x10), 1280)
	f.Add(rawUDP(make([]byte, 250), 100), 1280)
	f.Add(rawUDP(make([]byte, 60), 0), 1280)
	b := make([]byte, Small)
	f.Fuzz(func(t *testing.T, raw []byte, mtu int) {
		p := &Packet{}
		if len(raw) > Large || Parse(bytes.Clone(raw), p) != nil || !p.Fit(min(max(mtu, wire.MinMTU), wire.MaxMTU)) {
			return
		}
		for n := 0; !p.Empty(); n++ {
			if size := p.Next(b); size > wire.MaxMTU {
				t.Fatalf("a segment of %d bytes", size)
			}
			if n > 1<<16 {
				t.Fatal("no end of segments")
			}
		}
	})
}

// TestTooBig: the error quotes the packet's header and 8 bytes, is sound and no larger than the packet may be; no error
// answers an error, whatever its header says.
func TestTooBig(t *testing.T) {
	t.Parallel()
	from, to := netip.MustParseAddr("10.77.255.254"), netip.MustParseAddr("10.77.0.2")
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.Byte(), 20, 100).Draw(t, "packet")
		p[0] = 0x40 | byte(rapid.IntRange(5, 15).Draw(t, "head"))
		p[9] = rapid.SampledFrom([]byte{ICMP, TCP, UDP, 47}).Draw(t, "protocol")
		head := int(p[0]&15) * 4
		b := TooBig(p, 1200, from, to)
		if b == nil {
			if p[9] != ICMP || len(p) > head && p[head] == 8 {
				t.Fatal("no error")
			}
			return
		}
		if p[9] == ICMP && len(p) > 20 && (len(p) <= head || p[head] != 8) {
			t.Fatal("an error about an error")
		}
		quoted := b[28:]
		if !bytes.HasPrefix(p, quoted) || len(quoted) != min(len(p), head+8) || Source(b) != from || Destination(b) != to ||
			b[20] != 3 || b[21] != 4 || binary.BigEndian.Uint16(b[26:]) != 1200 {
			t.Fatalf("%x answers %x", b, p)
		}
		if Fold(Sum(b[:20], 0)) != 0xffff || Fold(Sum(b[20:], 0)) != 0xffff {
			t.Fatalf("%x is not sound", b)
		}
	})
}
