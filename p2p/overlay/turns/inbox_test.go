package turns

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/overlay/packet"
)

// mark is a member.
type mark struct{ origin Origin[*mark] }

// came is a train of size bytes in all from a member, marked with a number.
func came(m *mark, size, seg int, number uint32) Arrival[*mark] {
	b := packet.New(size)
	binary.BigEndian.PutUint32(b.B, number)
	a := Arrival[*mark]{Train: packet.Train{Buf: b, Data: b.B[:size], Seg: seg}, From: m}
	if m != nil {
		a.Origin = &m.origin
	}
	return a
}

// putIn puts an arrival and lets its buffer go.
func putIn(i *Inbox[*mark], a Arrival[*mark]) {
	b := a.Buf
	i.Put(a)
	b.Release()
}

func TestASmallDatagramPassesWhatItsMemberSentBefore(t *testing.T) {
	t.Parallel()
	i := NewInbox[*mark](&atomic.Uint64{})
	m := &mark{}
	for n := range 20 {
		putIn(i, came(m, 60000, 1452, uint32(n)))
	}
	putIn(i, came(m, 160, 160, 99))
	a, _ := i.Get()
	if binary.BigEndian.Uint32(a.Data) != 99 || len(a.Buf.B) != packet.Small {
		t.Fatalf("%d bytes came first", len(a.Data))
	}
	a.Buf.Release()
}

// TestAMemberThatFloodsLosesItsOwn: of what the others send nothing is lost, and they wait for one turn of it at most.
func TestAMemberThatFloodsLosesItsOwn(t *testing.T) {
	t.Parallel()
	for name, flood := range map[string]struct{ size, seg int }{"large": {60000, 1452}, "small": {400, 400}, "keepalives in trains": {32 * 60, 32}} {
		dropped := &atomic.Uint64{}
		i := NewInbox[*mark](dropped)
		bad, good := &mark{}, &mark{}
		for range 4 * maxWaiting / packet.Small {
			putIn(i, came(bad, flood.size, flood.seg, 0))
		}
		for n := range 10 {
			putIn(i, came(good, 60000, 1452, uint32(n)))
			putIn(i, came(good, 100, 100, uint32(n)))
		}
		if i.queued > maxWaiting || dropped.Load() == 0 {
			t.Fatalf("%s: %d bytes wait, dropped %v", name, i.queued, dropped.Load())
		}
		got, between := [2]uint32{}, 0
		for got != [2]uint32{10, 10} {
			a, ok := i.Get()
			if !ok {
				t.Fatalf("%s: lost some of who does not flood: %v", name, got)
			}
			if a.From == bad {
				if between += len(a.Data); between > 10*(bulkTurn+smallRun)+packet.Large {
					t.Fatalf("%s: who does not flood waited for %d bytes, has had %v", name, between, got)
				}
			} else {
				k := 0
				if len(a.Data) > SmallDatagram {
					k = 1
				}
				if binary.BigEndian.Uint32(a.Data) != got[k] {
					t.Fatalf("%s: out of order", name)
				}
				got[k]++
			}
			a.Buf.Release()
		}
		i.Close()
		if i.queued != 0 {
			t.Errorf("%s: %d bytes are left", name, i.queued)
		}
	}
}

// TestWhatComesIsTakenOnceInOrderOrCountedAsDropped whatever comes from whom.
func TestWhatComesIsTakenOnceInOrderOrCountedAsDropped(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dropped := &atomic.Uint64{}
		i := NewInbox[*mark](dropped)
		ms := []*mark{{}, {}, nil}
		type kind struct {
			m     int
			small bool
		}
		credit := make(chan struct{}, 1<<16)
		next, last := map[kind]uint32{}, map[kind]uint32{}
		put, got := 0, 0
		take := func() bool {
			a, ok := i.Get()
			if !ok {
				return false
			}
			for n, m := range ms {
				if m != a.From {
					continue
				}
				from, number := kind{n, len(a.Data) <= SmallDatagram}, binary.BigEndian.Uint32(a.Data)
				if number < last[from] {
					t.Fatalf("%+v: number %d came after %d", from, number, last[from])
				}
				last[from] = number + 1
			}
			got++
			a.Buf.Release()
			a.Drop()
			return true
		}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "put") > 0 {
				from := kind{m: rapid.IntRange(0, 2).Draw(t, "member")}
				size := rapid.SampledFrom([]int{32, 148, 512, 1452, 20000, 60000}).Draw(t, "size")
				if ms[from.m] == nil {
					size = 148
				}
				from.small = size <= SmallDatagram
				a := came(ms[from.m], size, min(size, 1452), next[from])
				next[from]++
				put++
				credit <- struct{}{}
				a.Taken = credit
				putIn(i, a)
			} else {
				take()
			}
			if i.queued > maxWaiting {
				t.Fatalf("%d bytes wait", i.queued)
			}
		}
		for take() {
		}
		if lost := int(dropped.Load()); put != got+lost || i.queued != 0 || len(credit) != 0 {
			t.Fatalf("put %d, got %d, dropped %d, %d bytes and %d credits are left", put, got, lost, i.queued, len(credit))
		}
	})
}

func TestThePaceFollowsTheRate(t *testing.T) {
	t.Parallel()
	var p pace
	now := time.Unix(1, 0)
	run := func(packets int, every time.Duration) {
		for range 100 {
			now = now.Add(every)
			p.done(packets, now)
		}
	}
	run(128, 10*time.Millisecond)
	if p.most() != paceLeast {
		t.Errorf("slow: %d", p.most())
	}
	run(128, 500*time.Microsecond) // 256 a millisecond
	if got := p.most(); got < 700 || got > 800 {
		t.Errorf("3 ms of 256 a millisecond: %d", got)
	}
	run(1280, 100*time.Microsecond)
	if p.most() != paceMost {
		t.Errorf("fast: %d", p.most())
	}
	now = now.Add(time.Hour)
	p.done(1, now)
	if p.most() != paceLeast {
		t.Errorf("after a pause: %d", p.most())
	}
}
