package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// wire is a stream between two ends under a clock of its own: every Write takes as long as its bytes take at a rate, every frame that
// waits for an answer half a round trip each way. It is used by one goroutine at a time.
type wire struct {
	mu    sync.Mutex
	at    time.Time
	rtt   time.Duration
	bytes float64 // a second
}

func (w *wire) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *wire) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = w.at.Add(d)
}

type end struct {
	net.Conn
	w *wire
}

func (e end) Write(p []byte) (int, error) {
	d := time.Duration(float64(len(p)) / e.w.bytes * float64(time.Second))
	if p[0] != frameBulk {
		d += e.w.rtt / 2
	}
	e.w.pass(d)
	return e.Conn.Write(p)
}

// What is measured is what the wire is: the round trip, and a rate that is the mean at the least and twice that at the most, for the two ends
// look at the clock when they will.
func TestPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rtt  time.Duration
		mbit uint32
	}{{200 * time.Microsecond, 10_000}, {3 * time.Millisecond, 940}, {40 * time.Millisecond, 100}, {300 * time.Millisecond, 8}} {
		w := &wire{at: time.Unix(1000, 0), rtt: c.rtt, bytes: float64(c.mbit) * 125_000}
		near, far := net.Pipe()
		var taken int
		done := make(chan error, 1)
		go func() {
			done <- answer(end{far, w}, w.now, func(n int) error { taken += n; return nil })
			_ = far.Close()
		}()
		rtt, err := echoes(end{near, w}, 4, w.now)
		if slack := time.Duration(2 * 13 / w.bytes * 1e9); err != nil || rtt < c.rtt || rtt > c.rtt+2*slack+time.Microsecond {
			t.Errorf("%v: measured %v, %v", c.rtt, rtt, err)
		}
		got, err := bulk(end{near, w}, MaxBytes, rtt, w.now)
		if err != nil || got < c.mbit*9/10 || got > c.mbit*22/10+1 {
			t.Errorf("%d Mbit/s: measured %d, %v", c.mbit, got, err)
		}
		if err := <-done; err != nil || taken == 0 || taken > MaxBytes {
			t.Errorf("%d bytes, %v", taken, err)
		}
	}
}

// The most that was seen is that of the best twentieth of a second, the first bytes not counted.
func TestAnswerCountsThePeak(t *testing.T) {
	t.Parallel()
	frame := append([]byte{frameBulk, 0, 0, 0x40, 0}, make([]byte, 0x4000)...)
	in := append(bytes.Repeat(frame, 13), frameEnd, 0, 0, 0, 0)
	s, n, at := &script{in: bytes.NewReader(in)}, 0, time.Unix(0, 0)
	err := answer(s, func() time.Time { // slow at first, five milliseconds a frame in the middle, then slow again
		if n++; n > 4 && n <= 8 {
			at = at.Add(5 * time.Millisecond)
		} else {
			at = at.Add(20 * time.Millisecond)
		}
		return at
	}, func(int) error { return nil })
	if got, peak := binary.BigEndian.Uint64(s.last[headSize:]), binary.BigEndian.Uint64(s.last[headSize+8:]); err != nil || got != 13*0x4000 || peak != 4*0x4000*50 {
		t.Error(got, peak, err)
	}
}

// Whoever breaks off, or is told that it is too much, ends the other with an error, and nobody waits.
func TestPathBreaks(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	enough := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		done <- answer(far, time.Now, func(int) error { return enough })
		_ = far.Close()
	}()
	if _, err := bulk(near, MaxBytes, 0, time.Now); err == nil {
		t.Error("bytes were counted that were not taken")
	}
	if err := <-done; !errors.Is(err, enough) {
		t.Error(err)
	}
	for name, b := range map[string][]byte{
		"unknown frame":  {9, 0, 0, 0, 0},
		"long echo":      {frameEcho, 0, 0, 0, maxEcho + 1},
		"long bulk":      {frameBulk, 0xff, 0xff, 0xff, 0xff},
		"end with bytes": {frameEnd, 0, 0, 0, 1, 0},
	} {
		if err := answer(&script{in: bytes.NewReader(b)}, time.Now, func(int) error { return nil }); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := bytes.Repeat([]byte{frameEcho, 0, 0, 0, 0}, MaxEchoes+1)
	if err := answer(&script{in: bytes.NewReader(many)}, time.Now, func(int) error { return nil }); !errors.Is(err, ErrFrame) {
		t.Error(err)
	}
}

// script answers with bytes prepared, whatever is written.
type script struct {
	in   io.Reader
	out  int
	last []byte
}

func (s *script) Read(p []byte) (int, error) { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error) {
	s.out, s.last = s.out+len(p), bytes.Clone(p)
	return len(p), nil
}

// FuzzAnswer: whatever a peer sends, the other end says no more than it got, and takes no more than the limits.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{frameEcho, 0, 0, 0, 2, 7, 8, frameBulk, 0, 0, 0, 3, 1, 2, 3, frameEnd, 0, 0, 0, 0})
	f.Add([]byte{frameBulk, 0, 0, 0, 0, frameEnd, 0, 0, 0, 0})
	f.Add([]byte{frameEcho, 0, 0, 0, 65})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, taken := &script{in: bytes.NewReader(b)}, 0
		at := time.Unix(0, 0)
		_ = answer(s, func() time.Time { at = at.Add(time.Millisecond); return at }, func(n int) error { taken += n; return nil })
		if taken > MaxBytes || s.out > len(b)+endSize {
			t.Fatalf("%d bytes in, %d taken, %d out", len(b), taken, s.out)
		}
	})
}

// FuzzMeasuring: whatever the other end answers, measuring ends, and believes nothing that this end did not see about as much of itself.
func FuzzMeasuring(f *testing.F) {
	count := make([]byte, headSize+endSize)
	count[0], count[4] = frameEnd, endSize
	binary.BigEndian.PutUint64(count[headSize:], 128<<10)
	binary.BigEndian.PutUint64(count[headSize+8:], ^uint64(0))
	f.Add(count)
	f.Add([]byte{frameEcho, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		at := time.Unix(0, 0)
		now := func() time.Time { at = at.Add(time.Millisecond); return at }
		if rtt, err := echoes(&script{in: bytes.NewReader(b)}, 2, now); err == nil && rtt <= 0 {
			t.Fatal(rtt)
		}
		// 128 KiB, and the clock of this end shows two milliseconds at least: a gigabit a second, of which twice is believed at the most.
		if got, err := bulk(&script{in: bytes.NewReader(b)}, 128<<10, 0, now); err == nil && got > 2*1100 {
			t.Fatal(got)
		}
	})
}

// TestRoundsProperties: each pair meets once, nobody meets two at a time, in as few rounds as there can be.
func TestRoundsProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "n")
		met := map[Pair]bool{}
		rounds := Rounds(n)
		if want := max(n-1, 0) + n%2*min(n/2, 1); len(rounds) != want {
			t.Fatalf("%d rounds of %d, want %d", len(rounds), n, want)
		}
		for _, r := range rounds {
			busy := map[int]bool{}
			for _, p := range r {
				if p.A < 0 || p.A >= p.B || p.B >= n || met[p] || busy[p.A] || busy[p.B] {
					t.Fatalf("%v of %d: twice, or two at a time", p, n)
				}
				met[p], busy[p.A], busy[p.B] = true, true, true
			}
		}
		if len(met) != n*max(n-1, 0)/2 {
			t.Fatalf("%d pairs of %d met", len(met), n)
		}
	})
}
