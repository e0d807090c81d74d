package turns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/overlay/packet"
)

// rawTCP is a packet as the kernel gives it to a TUN with offloads: size bytes of payload in segments of seg, or whole (0).
func rawTCP(payload []byte, seg int, flags byte) []byte {
	const head = 20 + 32
	b := make([]byte, packet.VirtioHead+head, packet.VirtioHead+head+len(payload))
	b = append(b, payload...)
	b[0] = 1
	if seg > 0 {
		b[1] = 1
		binary.NativeEndian.PutUint16(b[4:], uint16(seg))
	}
	binary.NativeEndian.PutUint16(b[2:], head)
	binary.NativeEndian.PutUint16(b[6:], 20)
	binary.NativeEndian.PutUint16(b[8:], 16)
	ip := b[packet.VirtioHead:]
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, packet.TCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint16(ip[4:], 0xfffe)
	copy(ip[12:], []byte{10, 77, 0, 2, 10, 77, 0, 3})
	binary.BigEndian.PutUint16(ip[10:], ^packet.Fold(packet.Sum(ip[:20], 0)))
	tcp := ip[20:]
	binary.BigEndian.PutUint16(tcp, 40000)
	binary.BigEndian.PutUint16(tcp[2:], 5001)
	binary.BigEndian.PutUint32(tcp[4:], 0xfffffff0)
	tcp[12], tcp[13] = 8<<4, flags
	binary.BigEndian.PutUint16(tcp[16:], packet.Fold(packet.Sum(ip[12:20], uint64(packet.TCP)+uint64(len(tcp)))))
	return b
}

// queued is a packet for a member in a buffer, from a port.
func queued(t rapid.TB, from byte, payload, seg int) *packet.Packet {
	t.Helper()
	raw := rawTCP(bytes.Repeat([]byte{from}, payload), seg, 0x10)
	raw[packet.VirtioHead+21] = from
	p := &packet.Packet{}
	if err := packet.Parse(raw, p); err != nil {
		t.Fatal(err)
	}
	p.Buf = packet.New(len(p.Data))
	p.Data = p.Buf.B[:copy(p.Buf.B, p.Data)]
	return p
}

// apart is a queue in which flows 1, 2 and 3 do not share one.
func apart(t rapid.TB, dropped *atomic.Uint64) *Queue {
	t.Helper()
	for {
		q := NewQueue(dropped)
		seen := map[*flow]bool{}
		for from := byte(1); from <= 3; from++ {
			p := queued(t, from, 1, 0)
			seen[q.flowOf(p.Data)] = true
			p.Release()
		}
		if len(seen) == 3 {
			return q
		}
	}
}

func slots() ([][]byte, []int) {
	bufs := make([][]byte, BatchSize)
	for i := range bufs {
		bufs[i] = make([]byte, packet.Small)
	}
	return bufs, make([]int, BatchSize)
}

func TestASmallPacketPassesBulk(t *testing.T) {
	t.Parallel()
	q := apart(t, &atomic.Uint64{})
	m := &Outlet{}
	for range 60 {
		q.Put(m, queued(t, 1, 60000, 1368))
	}
	bufs, sizes := slots()
	if n, err := q.Get(bufs, sizes, 0); n != BatchSize || err != nil {
		t.Fatal(n, err)
	}
	q.Sent(m, BatchSize)
	q.Put(m, queued(t, 2, 100, 0))
	if n, err := q.Get(bufs, sizes, 0); n == 0 || err != nil || bufs[0][21] != 2 {
		t.Fatalf("the heartbeat is not first: port %d, %v", bufs[0][21], err)
	}
}

func TestFlowsOfBulkShareEqually(t *testing.T) {
	t.Parallel()
	q := apart(t, &atomic.Uint64{})
	m := &Outlet{}
	for from := byte(1); from <= 3; from++ {
		for range 30 * int(from) {
			q.Put(m, queued(t, from, 20000, 1000))
		}
	}
	var bytes [4]int
	bufs, sizes := slots()
	for range 8 {
		n, err := q.Get(bufs, sizes, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			bytes[bufs[i][21]] += sizes[i]
		}
		q.Sent(m, n)
	}
	for from := 2; from <= 3; from++ {
		if d := bytes[from] - bytes[1]; d > 2*quantum || d < -2*quantum {
			t.Errorf("shares: %v", bytes[1:])
		}
	}
}

func TestOneMemberThatTakesNothingHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	q := apart(t, &atomic.Uint64{})
	slow, quick := &Outlet{lastSent: time.Now().Add(time.Hour)}, &Outlet{}
	slow.inflight = paceLeast // and never sent
	for range 10 {
		q.Put(slow, queued(t, 1, 1000, 0))
		q.Put(quick, queued(t, 2, 1000, 0))
	}
	bufs, sizes := slots()
	n, err := q.Get(bufs, sizes, 0)
	if n != 10 || err != nil {
		t.Fatalf("%d packets, %v", n, err)
	}
	slow.lastSent = time.Time{} // long ago: they count as lost
	if n, err = q.Get(bufs, sizes, 0); n != 10 || err != nil {
		t.Fatalf("%d packets, %v", n, err)
	}
}

func TestTheQueueIsBoundedAndTheLongestFlowPays(t *testing.T) {
	t.Parallel()
	dropped := &atomic.Uint64{}
	q := apart(t, dropped)
	m := &Outlet{}
	q.Put(m, queued(t, 2, 100, 0))
	for range 4 * maxQueued / packet.Large {
		q.Put(m, queued(t, 1, 60000, 1368))
	}
	if q.queued > maxQueued || dropped.Load() == 0 {
		t.Fatalf("%d bytes queued, dropped %v", q.queued, dropped.Load())
	}
	bufs, sizes := slots()
	for seen := false; !seen; {
		n, err := q.Get(bufs, sizes, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			seen = seen || bufs[i][21] == 2
		}
		q.Sent(m, n)
	}
	q.Forget(m)
	if q.queued != 0 {
		t.Fatalf("%d bytes are left of a member that is gone", q.queued)
	}
	q.Close()
	if _, err := q.Get(bufs, sizes, 0); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
}

// TestEveryPacketLeavesOnceInTheOrderOfItsFlow whatever is put and taken when.
func TestEveryPacketLeavesOnceInTheOrderOfItsFlow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueue(&atomic.Uint64{})
		ms := []*Outlet{{}, {}}
		var put, got [4]int
		next := [4]byte{}
		bufs, sizes := slots()
		take := func() {
			q.mu.Lock()
			n := q.fill(bufs, sizes, 0)
			q.mu.Unlock()
			sent := map[*Outlet]int{}
			for i := range n {
				from := bufs[i][21]
				if first := bufs[i][52]; first != byte(got[from]) {
					t.Fatalf("flow %d: packet %d came when %d was due", from, first, byte(got[from]))
				}
				got[from]++
				sent[ms[from%2]]++
			}
			for m, n := range sent {
				q.Sent(m, n)
			}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "put") {
				from := byte(rapid.IntRange(0, 3).Draw(t, "flow"))
				p := queued(t, from, rapid.IntRange(1, 1300).Draw(t, "size"), 0)
				p.Data[52] = next[from]
				next[from]++
				put[from]++
				q.Put(ms[from%2], p)
			} else {
				take()
			}
		}
		for q.queued > 0 {
			take()
		}
		if put != got {
			t.Fatalf("put %v, got %v", put, got)
		}
	})
}

func FuzzFlow(f *testing.F) {
	f.Add(rawTCP(make([]byte, 300), 100, 0x10))
	f.Add(rawTCP(make([]byte, 10), 0, 0x10))
	q := NewQueue(&atomic.Uint64{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := &packet.Packet{}
		if len(raw) > packet.Large || packet.Parse(bytes.Clone(raw), p) != nil {
			return
		}
		if a, b := q.flowOf(p.Data), q.flowOf(bytes.Clone(p.Data)); a != b {
			t.Fatal("a packet is of two flows")
		}
	})
}
