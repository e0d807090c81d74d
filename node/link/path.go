package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Limits of one stream, which both ends hold to.
const (
	// MaxEchoes is how many round trips are measured at most.
	MaxEchoes = 64
	// MaxBytes is how many bytes are sent at most, to see how many get through in how long.
	MaxBytes = 32 << 20
	// maxEcho and maxBulk bound one frame, bytes.
	maxEcho = 64
	maxBulk = 64 << 10
	// leastSpan is how long bytes are sent, and spanRTTs how many round trips at the least, up to maxSpan: congestion
	// control has to begin.
	leastSpan = 60 * time.Millisecond
	spanRTTs  = 6
	maxSpan   = 400 * time.Millisecond
	// window is how long the other end counts at a time, for the most that it saw.
	window = 20 * time.Millisecond
)

// The kinds of frames.
const (
	frameEcho = 1
	frameBulk = 2
	frameEnd  = 3

	headSize = 5
	endSize  = 16
)

// ErrFrame means that the other end broke the protocol, or its limits.
var ErrFrame = errors.New("bad frame")

// Result is the measurement of one path.
type Result struct {
	RTT     time.Duration // the shortest round trip
	Mbit    uint32        // carried; 0: not measured
	Relayed bool
}

// clock is the time, for tests to stop.
type clock func() time.Time

// echoes measures rounds round trips and returns the shortest.
func echoes(rw io.ReadWriter, rounds int, now clock) (time.Duration, error) {
	var best time.Duration
	out, in := make([]byte, headSize+8), make([]byte, headSize+8)
	out[0] = frameEcho
	binary.BigEndian.PutUint32(out[1:], 8)
	for i := range min(max(rounds, 1), MaxEchoes) {
		binary.BigEndian.PutUint64(out[headSize:], uint64(i)+1)
		began := now()
		if _, err := rw.Write(out); err != nil {
			return 0, fmt.Errorf("sending an echo: %w", err)
		}
		if _, err := io.ReadFull(rw, in); err != nil {
			return 0, fmt.Errorf("waiting for an echo: %w", err)
		}
		if string(in) != string(out) {
			return 0, fmt.Errorf("%w: the echo is another", ErrFrame)
		}
		if rtt := max(now().Sub(began), time.Microsecond); best == 0 || rtt < best {
			best = rtt
		}
	}
	return best, nil
}

// bulk sends at most most bytes and returns the achieved rate, in Mbit/s. The other end's reported peak counts up to
// twice the mean at this end.
func bulk(rw io.ReadWriter, most int, rtt time.Duration, now clock) (uint32, error) {
	chunk := make([]byte, headSize+maxBulk)
	chunk[0] = frameBulk
	binary.BigEndian.PutUint32(chunk[1:], maxBulk)
	span := min(max(leastSpan, spanRTTs*rtt), maxSpan)
	began, sent := now(), 0
	for sent+maxBulk <= min(most, MaxBytes) && now().Sub(began) < span {
		if _, err := rw.Write(chunk); err != nil {
			return 0, fmt.Errorf("sending bytes: %w", err)
		}
		sent += maxBulk
	}
	if _, err := rw.Write([]byte{frameEnd, 0, 0, 0, 0}); err != nil {
		return 0, fmt.Errorf("sending the end: %w", err)
	}
	var end [headSize + endSize]byte
	if _, err := io.ReadFull(rw, end[:]); err != nil {
		return 0, fmt.Errorf("waiting for the count: %w", err)
	}
	if end[0] != frameEnd || binary.BigEndian.Uint32(end[1:]) != endSize ||
		binary.BigEndian.Uint64(end[headSize:]) != uint64(sent) {
		return 0, fmt.Errorf("%w: the other end counted other bytes than were sent", ErrFrame)
	}
	took := max(now().Sub(began)-rtt, time.Microsecond)
	mean := mbit(uint64(sent), took)
	peak := binary.BigEndian.Uint64(end[headSize+8:]) / 125_000
	return uint32(min(max(mean, min(peak, 2*mean)), 1<<31)), nil
}

func mbit(bytes uint64, took time.Duration) uint64 {
	return uint64(float64(bytes) * 8 / 1e6 / took.Seconds())
}

// answer is the other end of echoes and bulk: it returns when the stream ends. take reports whether bytes more bytes
// are allowed.
func answer(rw io.ReadWriter, now clock, take func(bytes int) error) error {
	echoed, got := 0, uint64(0)
	var peak uint64
	var began time.Time
	inWindow := uint64(0)
	count := func(n int, at time.Time) {
		if began.IsZero() {
			began = at // the first bytes begin the count: how long they took is not known
			return
		}
		inWindow += uint64(n)
		if took := at.Sub(began); took >= window {
			peak = max(peak, uint64(float64(inWindow)/took.Seconds()))
			began, inWindow = at, 0
		}
	}
	buf := make([]byte, maxBulk)
	var head [headSize]byte
	for {
		if _, err := io.ReadFull(rw, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		n := binary.BigEndian.Uint32(head[1:])
		switch {
		case head[0] == frameEcho && n <= maxEcho && echoed < MaxEchoes:
			echoed++
			if _, err := io.ReadFull(rw, buf[:n]); err != nil {
				return err
			}
			if _, err := rw.Write(append(head[:], buf[:n]...)); err != nil {
				return err
			}
		case head[0] == frameBulk && n <= maxBulk && got+uint64(n) <= MaxBytes:
			if err := take(int(n)); err != nil {
				return err
			}
			if _, err := io.ReadFull(rw, buf[:n]); err != nil {
				return err
			}
			got += uint64(n)
			count(int(n), now())
		case head[0] == frameEnd && n == 0:
			end := append([]byte{frameEnd, 0, 0, 0, endSize}, make([]byte, endSize)...)
			binary.BigEndian.PutUint64(end[headSize:], got)
			binary.BigEndian.PutUint64(end[headSize+8:], peak)
			if _, err := rw.Write(end); err != nil {
				return err
			}
			return nil
		default:
			return fmt.Errorf("%w: kind %d of %d bytes after %d echoes and %d bytes", ErrFrame, head[0], n, echoed, got)
		}
	}
}

// Pair is two members of a cluster, by their number.
type Pair struct{ A, B int }

// Rounds returns the rounds of a tournament in which each of n meets each other once, and only one at a time. So
// concurrent measurements share no end.
func Rounds(n int) [][]Pair {
	if n < 2 {
		return nil
	}
	even := n + n%2
	var out [][]Pair
	for r := range even - 1 {
		var round []Pair
		at := func(i int) int { // the last one stays, the others turn
			if i == even-1 {
				return i
			}
			return (i + r) % (even - 1)
		}
		for i := range even / 2 {
			if a, b := at(i), at(even-1-i); a < n && b < n {
				round = append(round, Pair{min(a, b), max(a, b)})
			}
		}
		out = append(out, round)
	}
	return out
}
