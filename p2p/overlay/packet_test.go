package overlay

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// rawTCP is a packet as the kernel gives it to a TUN with offloads: size bytes of payload in segments of seg, or whole (0).
func rawTCP(payload []byte, seg int, flags byte) []byte {
	const head = 20 + 32
	b := make([]byte, virtioHead+head, virtioHead+head+len(payload))
	b = append(b, payload...)
	b[0] = virtioNeedsChecksum
	if seg > 0 {
		b[1] = virtioTCP4
		binary.NativeEndian.PutUint16(b[4:], uint16(seg))
	}
	binary.NativeEndian.PutUint16(b[2:], head)
	binary.NativeEndian.PutUint16(b[6:], 20)
	binary.NativeEndian.PutUint16(b[8:], 16)
	ip := b[virtioHead:]
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, protoTCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint16(ip[4:], 0xfffe)
	copy(ip[12:], []byte{10, 77, 0, 2, 10, 77, 0, 3})
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum(ip[:20], 0)))
	tcp := ip[20:]
	binary.BigEndian.PutUint16(tcp, 40000)
	binary.BigEndian.PutUint16(tcp[2:], 5001)
	binary.BigEndian.PutUint32(tcp[4:], 0xfffffff0)
	tcp[12], tcp[13] = 8<<4, flags
	binary.BigEndian.PutUint16(tcp[16:], fold(sum(ip[12:20], uint64(protoTCP)+uint64(len(tcp)))))
	return b
}

func rawUDP(payload []byte, seg int) []byte {
	b := make([]byte, virtioHead+28, virtioHead+28+len(payload))
	b = append(b, payload...)
	b[0] = virtioNeedsChecksum
	if seg > 0 {
		b[1] = virtioUDP
		binary.NativeEndian.PutUint16(b[4:], uint16(seg))
	}
	binary.NativeEndian.PutUint16(b[6:], 20)
	binary.NativeEndian.PutUint16(b[8:], 6)
	ip := b[virtioHead:]
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, protoUDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{10, 77, 0, 2, 10, 77, 0, 3})
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum(ip[:20], 0)))
	udp := ip[20:]
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], fold(sum(ip[12:20], uint64(protoUDP)+uint64(len(udp)))))
	return b
}

// sound checks both checksums of a packet, and its lengths.
func sound(t rapid.TB, p []byte) {
	t.Helper()
	if int(binary.BigEndian.Uint16(p[2:])) != len(p) {
		t.Fatalf("a packet of %d bytes says %d", len(p), binary.BigEndian.Uint16(p[2:]))
	}
	if s := fold(sum(p[:20], 0)); s != 0xffff {
		t.Fatalf("IP checksum: %#x", s)
	}
	if s := fold(sum(p[20:], sum(p[12:20], uint64(p[9])+uint64(len(p)-20)))); s != 0xffff {
		t.Fatalf("checksum of protocol %d: %#x", p[9], s)
	}
}

// TestSegmentsAreWhatTheKernelMeant: the payload of all segments together is that of the packet, each is sound and none is larger than the path takes.
func TestSegmentsAreWhatTheKernelMeant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		payload := bytes.Repeat([]byte{1, 2, 3, 5, 7, 11, 13}, rapid.IntRange(1, 64000).Draw(t, "payload")/7+1)
		mtu := rapid.IntRange(MinMTU, MaxMTU).Draw(t, "mtu")
		seg := rapid.IntRange(0, 1460).Draw(t, "seg")
		tcp := rapid.Bool().Draw(t, "tcp")
		if seg == 0 {
			payload = payload[:min(len(payload), 1400)]
		}
		raw := rawUDP(payload, seg)
		if tcp {
			raw = rawTCP(payload, seg, 0x19) // FIN, PSH, ACK
		}
		p := &packet{}
		if err := parsePacket(raw, p); err != nil {
			t.Fatal(err)
		}
		whole := len(p.data)
		if !p.fit(mtu) {
			if tcp || 28+min(max(seg, len(payload)*boolInt(seg == 0)), len(payload)) <= mtu {
				t.Fatalf("a packet of %d bytes in segments of %d does not fit %d", whole, seg, mtu)
			}
			return
		}
		var got []byte
		for i := 0; !p.empty(); i++ {
			b := make([]byte, smallBuffer)
			n := p.next(b)
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
				if last := p.empty(); (b[33]&(tcpFIN|tcpPSH) != 0) != last {
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
	q := newQueue(&Stats{})
	b := make([]byte, smallBuffer)
	f.Fuzz(func(t *testing.T, raw []byte, mtu int) {
		p := &packet{}
		if len(raw) > largeBuffer || parsePacket(bytes.Clone(raw), p) != nil || !p.fit(min(max(mtu, MinMTU), MaxMTU)) {
			return
		}
		q.flowOf(p.data)
		for n := 0; !p.empty(); n++ {
			if size := p.next(b); size > MaxMTU {
				t.Fatalf("a segment of %d bytes", size)
			}
			if n > 1<<16 {
				t.Fatal("no end of segments")
			}
		}
	})
}
