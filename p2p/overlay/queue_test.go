package overlay

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// queued is a packet for a member in a buffer, from a port.
func queued(t rapid.TB, m *member, from byte, payload, seg int) *packet {
	t.Helper()
	raw := rawTCP(bytes.Repeat([]byte{from}, payload), seg, 0x10)
	raw[virtioHead+21] = from
	p := &packet{member: m}
	if err := parsePacket(raw, p); err != nil {
		t.Fatal(err)
	}
	p.buf = newBuffer(len(p.data))
	p.data = p.buf.b[:copy(p.buf.b, p.data)]
	return p
}

// apart is a queue in which flows 1, 2 and 3 do not share one.
func apart(t rapid.TB, stats *Stats) *queue {
	t.Helper()
	for {
		q := newQueue(stats)
		seen := map[*flow]bool{}
		for from := byte(1); from <= 3; from++ {
			p := queued(t, nil, from, 1, 0)
			seen[q.flowOf(p.data)] = true
			p.release()
		}
		if len(seen) == 3 {
			return q
		}
	}
}

func slots() ([][]byte, []int) {
	bufs := make([][]byte, batchSize)
	for i := range bufs {
		bufs[i] = make([]byte, smallBuffer)
	}
	return bufs, make([]int, batchSize)
}

func TestASmallPacketPassesBulk(t *testing.T) {
	t.Parallel()
	q := apart(t, &Stats{})
	m := &member{}
	for range 60 {
		q.put(queued(t, m, 1, 60000, 1368))
	}
	bufs, sizes := slots()
	if n, err := q.get(bufs, sizes, 0); n != batchSize || err != nil {
		t.Fatal(n, err)
	}
	q.sent(m, batchSize)
	q.put(queued(t, m, 2, 100, 0))
	if n, err := q.get(bufs, sizes, 0); n == 0 || err != nil || bufs[0][21] != 2 {
		t.Fatalf("the heartbeat is not first: port %d, %v", bufs[0][21], err)
	}
}

func TestFlowsOfBulkShareEqually(t *testing.T) {
	t.Parallel()
	q := apart(t, &Stats{})
	m := &member{}
	for from := byte(1); from <= 3; from++ {
		for range 30 * int(from) {
			q.put(queued(t, m, from, 20000, 1000))
		}
	}
	var bytes [4]int
	bufs, sizes := slots()
	for range 8 {
		n, err := q.get(bufs, sizes, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			bytes[bufs[i][21]] += sizes[i]
		}
		q.sent(m, n)
	}
	for from := 2; from <= 3; from++ {
		if d := bytes[from] - bytes[1]; d > 2*quantum || d < -2*quantum {
			t.Errorf("shares: %v", bytes[1:])
		}
	}
}

func TestOneMemberThatTakesNothingHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	q := apart(t, &Stats{})
	slow, quick := &member{lastSent: time.Now().Add(time.Hour)}, &member{}
	slow.inflight = paceLeast // and never sent
	for range 10 {
		q.put(queued(t, slow, 1, 1000, 0))
		q.put(queued(t, quick, 2, 1000, 0))
	}
	bufs, sizes := slots()
	n, err := q.get(bufs, sizes, 0)
	if n != 10 || err != nil {
		t.Fatalf("%d packets, %v", n, err)
	}
	slow.lastSent = time.Time{} // long ago: they count as lost
	if n, err = q.get(bufs, sizes, 0); n != 10 || err != nil {
		t.Fatalf("%d packets, %v", n, err)
	}
}

func TestTheQueueIsBoundedAndTheLongestFlowPays(t *testing.T) {
	t.Parallel()
	stats := &Stats{}
	q := apart(t, stats)
	m := &member{}
	q.put(queued(t, m, 2, 100, 0))
	for range 4 * maxQueued / largeBuffer {
		q.put(queued(t, m, 1, 60000, 1368))
	}
	if q.queued > maxQueued || stats.Dropped()["queue"] == 0 {
		t.Fatalf("%d bytes queued, dropped %v", q.queued, stats.Dropped())
	}
	bufs, sizes := slots()
	for seen := false; !seen; {
		n, err := q.get(bufs, sizes, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			seen = seen || bufs[i][21] == 2
		}
		q.sent(m, n)
	}
	q.forget(m)
	if q.queued != 0 {
		t.Fatalf("%d bytes are left of a member that is gone", q.queued)
	}
	q.close()
	if _, err := q.get(bufs, sizes, 0); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
}

// TestEveryPacketLeavesOnceInTheOrderOfItsFlow whatever is put and taken when.
func TestEveryPacketLeavesOnceInTheOrderOfItsFlow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue(&Stats{})
		ms := []*member{{}, {}}
		var put, got [4]int
		next := [4]byte{}
		bufs, sizes := slots()
		take := func() {
			q.mu.Lock()
			n := q.fill(bufs, sizes, 0)
			q.mu.Unlock()
			sent := map[*member]int{}
			for i := range n {
				from := bufs[i][21]
				if first := bufs[i][52]; first != byte(got[from]) {
					t.Fatalf("flow %d: packet %d came when %d was due", from, first, byte(got[from]))
				}
				got[from]++
				sent[ms[from%2]]++
			}
			for m, n := range sent {
				q.sent(m, n)
			}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "put") {
				from := byte(rapid.IntRange(0, 3).Draw(t, "flow"))
				p := queued(t, ms[from%2], from, rapid.IntRange(1, 1300).Draw(t, "size"), 0)
				p.data[52] = next[from]
				p.sum = 0
				next[from]++
				put[from]++
				q.put(p)
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
