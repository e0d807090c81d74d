package overlay

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/starling-network/starling/p2p/overlay/index"
	"github.com/starling-network/starling/p2p/overlay/packet"
	"github.com/starling-network/starling/p2p/overlay/turns"
	"github.com/starling-network/starling/p2p/overlay/wire"
)

// datagram is one of a kind, of the length that it has.
func datagram(kind byte, size int) []byte {
	b := bytes.Repeat([]byte{0xab}, size)
	copy(b, []byte{kind, 0, 0, 0})
	return b
}

// FuzzDatagrams sorts a train of anything at a host with one member.
func FuzzDatagrams(f *testing.F) {
	n := New("test", nil)
	d := &Device{n: n, inbox: turns.NewInbox[sentBy](&n.stats.dropped[dropBusy]), probes: make(chan probe, 8), pub: PublicKey{1: 1}}
	d.macs.Init(device.NoisePublicKey(d.pub))
	m, _ := members(f)
	m.d = d
	m.entry = index.NewEntry(m, m.keys.Theirs)
	n.index.Add(m.entry)
	n.index.Learn(m.entry, 0x01020304, time.Now())
	n.list.Store(&[]*Device{d})
	valid := datagram(1, device.MessageInitiationSize)
	var g device.CookieGenerator
	g.Init(device.NoisePublicKey(d.pub))
	g.AddMacs(valid)
	data := datagram(4, 64)
	binary.LittleEndian.PutUint32(data[4:], 0x01020304)
	ping := datagram(5, wire.MinProbe)
	copy(ping[4:], m.keys.Theirs[:])
	f.Add(valid, 148)
	f.Add(append(bytes.Clone(data), data...), 64)
	f.Add(ping, wire.MinProbe)
	f.Add(datagram(0x43, 1200), 1200)
	f.Fuzz(func(t *testing.T, b []byte, seg int) {
		if len(b) == 0 || len(b) > packet.Large {
			return
		}
		buf := packet.New(len(b))
		copy(buf.B, b)
		got := sortFor(n, packet.Train{Buf: buf, Data: buf.B[:len(b)], Seg: min(max(seg, 1), len(b))}, netip.MustParseAddrPort("192.0.2.1:1"))
		if got > len(b) {
			t.Fatal("QUIC got more than there was")
		}
		for {
			if a, ok := d.inbox.Get(); ok {
				for len(a.Data) > 0 {
					p := a.Pop()
					kind := wire.KindOf(p)
					if kind != wire.Initiation && (kind != wire.Data && kind != wire.Response && kind != wire.Cookie || wire.Receiver(kind, p) != 0x01020304 || a.From.member != m) {
						t.Fatalf("a device got what is not its own: kind %d", kind)
					}
					if kind == wire.Initiation && a.From.member != nil {
						t.Fatal("an initiation has a sender before it was opened")
					}
				}
				a.Buf.Release()
				continue
			}
			select {
			case p := <-d.probes:
				if wire.TagOf(p.b) != m.keys.Theirs {
					t.Fatal("a device got another's probe")
				}
				if _, _, _, _, ok := m.keys.Open(p.b); ok {
					t.Fatal("a probe opened that nobody sealed")
				}
				continue
			default:
			}
			break
		}
		if refs := buf.Held(); refs != 1 {
			t.Fatalf("%d hold the buffer", refs)
		}
		buf.Release()
		if d.inbox.Queued() != 0 {
			t.Fatal("bytes wait though nothing does")
		}
	})
}
