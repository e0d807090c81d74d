package overlay

import (
	"bytes"
	"encoding/binary"
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
		{"initiation", datagram(1, device.MessageInitiationSize), kindInitiation},
		{"response", datagram(2, device.MessageResponseSize), kindResponse},
		{"cookie", datagram(3, device.MessageCookieReplySize), kindCookie},
		{"data", datagram(4, 1452), kindData},
		{"keepalive", datagram(4, 32), kindData},
		{"probe", datagram(5, minProbe), kindProbe},
		{"QUIC, long header", datagram(0xc3, 1200), kindOther},
		{"QUIC, short header", datagram(0x41, 30), kindOther},
		{"empty", nil, kindJunk},
		{"one byte of QUIC", []byte{0x40}, kindOther},
		{"short initiation", datagram(1, device.MessageInitiationSize-1), kindJunk},
		{"long response", datagram(2, device.MessageResponseSize+1), kindJunk},
		{"short data", datagram(4, 31), kindJunk},
		{"short probe", datagram(5, minProbe-1), kindJunk},
		{"type 6", datagram(6, 100), kindJunk},
		{"reserved bytes", append([]byte{4, 0, 1, 0}, make([]byte, 60)...), kindJunk},
		{"STUN", append([]byte{0, 1, 0, 0}, make([]byte, 60)...), kindJunk},
	} {
		if got := kindOf(c.p); got != c.want {
			t.Errorf("%s: kind %d, want %d", c.name, got, c.want)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(nil, datagram(4, 64)))
	f.Add(appendFrame(appendFrame(nil, datagram(1, device.MessageInitiationSize)), datagram(5, minProbe)))
	f.Add([]byte{0xff, 0xff, 4, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		var again []byte
		for {
			p, err := readFrame(r, make([]byte, smallBuffer))
			if err != nil {
				break
			}
			if len(p) > maxPacket || kindOf(p) <= kindOther {
				t.Fatalf("took a packet of %d bytes, kind %d", len(p), kindOf(p))
			}
			again = appendFrame(again, p)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatal("frames are not what was read")
		}
	})
}

// FuzzDatagrams sorts a train of anything at a host with one member.
func FuzzDatagrams(f *testing.F) {
	n := New("test", nil)
	d := &Device{n: n, inbox: newInbox(&n.stats), probes: make(chan probe, 8), pub: PublicKey{1: 1}}
	d.macs.Init(device.NoisePublicKey(d.pub))
	m := &member{d: d, theirs: tag{1, 2, 3, 4, 5, 6, 7, 8}}
	n.know(m)
	n.learn(m, 0x01020304)
	n.list.Store(&[]*Device{d})
	valid := datagram(1, device.MessageInitiationSize)
	var g device.CookieGenerator
	g.Init(device.NoisePublicKey(d.pub))
	g.AddMacs(valid)
	data := datagram(4, 64)
	binary.LittleEndian.PutUint32(data[4:], 0x01020304)
	ping := datagram(5, minProbe)
	copy(ping[4:], m.theirs[:])
	f.Add(valid, 148)
	f.Add(append(bytes.Clone(data), data...), 64)
	f.Add(ping, minProbe)
	f.Add(datagram(0x43, 1200), 1200)
	f.Fuzz(func(t *testing.T, b []byte, seg int) {
		if len(b) == 0 || len(b) > largeBuffer {
			return
		}
		buf := newBuffer(len(b))
		copy(buf.b, b)
		got := sortFor(n, train{buf: buf, data: buf.b[:len(b)], seg: min(max(seg, 1), len(b))}, netip.MustParseAddrPort("192.0.2.1:1"))
		if got > len(b) {
			t.Fatal("QUIC got more than there was")
		}
		for {
			if a, ok := d.inbox.get(); ok {
				for len(a.data) > 0 {
					p := a.pop()
					kind := kindOf(p)
					if kind != kindInitiation && (kind != kindData && kind != kindResponse && kind != kindCookie || receiverOf(kind, p) != 0x01020304 || a.member != m) {
						t.Fatalf("a device got what is not its own: kind %d", kind)
					}
					if kind == kindInitiation && a.member != nil {
						t.Fatal("an initiation has a sender before it was opened")
					}
				}
				a.buf.release()
				continue
			}
			select {
			case p := <-d.probes:
				if tagOf(p.b) != m.theirs {
					t.Fatal("a device got another's probe")
				}
				if _, _, _, _, ok := (&member{seal: seal(t), theirs: m.theirs}).openProbe(p.b); ok {
					t.Fatal("a probe opened that nobody sealed")
				}
				continue
			default:
			}
			break
		}
		if refs := buf.refs.Load(); refs != 1 {
			t.Fatalf("%d hold the buffer", refs)
		}
		buf.release()
		if d.inbox.queued != 0 {
			t.Fatal("bytes wait though nothing does")
		}
	})
}
