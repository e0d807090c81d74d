package overlay

import (
	"encoding/binary"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// came is a train of size bytes in all from a member, marked with a number.
func came(m *member, size, seg int, mark uint32) arrival {
	b := newBuffer(size)
	binary.BigEndian.PutUint32(b.b, mark)
	return arrival{train: train{buf: b, data: b.b[:size], seg: seg}, member: m}
}

// putIn puts an arrival and lets its buffer go.
func putIn(i *inbox, a arrival) {
	b := a.buf
	i.put(a)
	b.release()
}

func TestASmallDatagramPassesWhatItsMemberSentBefore(t *testing.T) {
	t.Parallel()
	i := newInbox(&Stats{})
	m := &member{}
	for n := range 20 {
		putIn(i, came(m, 60000, 1452, uint32(n)))
	}
	putIn(i, came(m, 160, 160, 99))
	a, _ := i.get()
	if binary.BigEndian.Uint32(a.data) != 99 || len(a.buf.b) != smallBuffer {
		t.Fatalf("%d bytes came first", len(a.data))
	}
	a.buf.release()
}

func TestASmallDatagramBehindBulkInOneTrainIsOnItsOwn(t *testing.T) {
	t.Parallel()
	d := &Device{inbox: newInbox(&Stats{})}
	m := &member{}
	b := newBuffer(largeBuffer)
	d.take(train{buf: b, data: b.b[:10*1452+160], seg: 1452}, m, route{})
	d.take(train{buf: b, data: b.b[:2*1452+1000], seg: 1452}, m, route{}) // its end is no small one
	b.release()
	var sizes []int
	for a, ok := d.inbox.get(); ok; a, ok = d.inbox.get() {
		sizes = append(sizes, len(a.data))
		a.buf.release()
	}
	if len(sizes) != 3 || sizes[0] != 160 || sizes[1] != 10*1452 || sizes[2] != 2*1452+1000 {
		t.Fatal("taken in this order: ", sizes)
	}
	if refs := b.refs.Load(); refs != 0 {
		t.Errorf("%d hold the train", refs)
	}
}

// TestAMemberThatFloodsLosesItsOwn: of what the others send nothing is lost, and they wait for one turn of it at most.
func TestAMemberThatFloodsLosesItsOwn(t *testing.T) {
	t.Parallel()
	for name, flood := range map[string]struct{ size, seg int }{"large": {60000, 1452}, "small": {400, 400}, "keepalives in trains": {32 * 60, 32}} {
		stats := &Stats{}
		i := newInbox(stats)
		bad, good := &member{}, &member{}
		for range 4 * maxWaiting / smallBuffer {
			putIn(i, came(bad, flood.size, flood.seg, 0))
		}
		for n := range 10 {
			putIn(i, came(good, 60000, 1452, uint32(n)))
			putIn(i, came(good, 100, 100, uint32(n)))
		}
		if i.queued > maxWaiting || stats.Dropped()["busy"] == 0 {
			t.Fatalf("%s: %d bytes wait, dropped %v", name, i.queued, stats.Dropped())
		}
		got, between := [2]uint32{}, 0
		for got != [2]uint32{10, 10} {
			a, ok := i.get()
			if !ok {
				t.Fatalf("%s: lost some of who does not flood: %v", name, got)
			}
			if a.member == bad {
				if between += len(a.data); between > 10*(bulkTurn+smallRun)+largeBuffer {
					t.Fatalf("%s: who does not flood waited for %d bytes, has had %v", name, between, got)
				}
			} else {
				k := 0
				if len(a.data) > smallDatagram {
					k = 1
				}
				if binary.BigEndian.Uint32(a.data) != got[k] {
					t.Fatalf("%s: out of order", name)
				}
				got[k]++
			}
			a.buf.release()
		}
		i.close()
		if i.queued != 0 {
			t.Errorf("%s: %d bytes are left", name, i.queued)
		}
	}
}

// TestWhatComesIsTakenOnceInOrderOrCountedAsDropped whatever comes from whom.
func TestWhatComesIsTakenOnceInOrderOrCountedAsDropped(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		stats := &Stats{}
		i := newInbox(stats)
		ms := []*member{{}, {}, nil}
		type source struct {
			m     int
			small bool
		}
		credit := make(chan struct{}, 1<<16)
		next, last := map[source]uint32{}, map[source]uint32{}
		put, got := 0, 0
		take := func() bool {
			a, ok := i.get()
			if !ok {
				return false
			}
			for n, m := range ms {
				if m != a.member {
					continue
				}
				from, mark := source{n, len(a.data) <= smallDatagram}, binary.BigEndian.Uint32(a.data)
				if mark < last[from] {
					t.Fatalf("%+v: number %d came after %d", from, mark, last[from])
				}
				last[from] = mark + 1
			}
			got++
			a.buf.release()
			a.drop()
			return true
		}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "put") > 0 {
				from := source{m: rapid.IntRange(0, 2).Draw(t, "member")}
				size := rapid.SampledFrom([]int{32, 148, 512, 1452, 20000, 60000}).Draw(t, "size")
				if ms[from.m] == nil {
					size = 148
				}
				from.small = size <= smallDatagram
				a := came(ms[from.m], size, min(size, 1452), next[from])
				next[from]++
				put++
				credit <- struct{}{}
				a.taken = credit
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
		if dropped := int(stats.Dropped()["busy"]); put != got+dropped || i.queued != 0 || len(credit) != 0 {
			t.Fatalf("put %d, got %d, dropped %d, %d bytes and %d credits are left", put, got, dropped, i.queued, len(credit))
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
