package rates

import (
	"testing"
	"time"
)

// A key is let through for its burst and then at its rate, keys do not count against each other, and however many
// ask, memory is bounded and quiet ones make room.
func TestLimiter(t *testing.T) {
	t.Parallel()
	const burst, most = 3, 50
	now := time.Unix(1000, 0)
	l := New[int](2, burst, most)
	count := func(k int) (n int) {
		for l.Allow(k, now) {
			n++
		}
		return n
	}
	if n := count(1); n != burst {
		t.Errorf("%d at once were let through, want %d", n, burst)
	}
	if n := count(2); n != burst {
		t.Errorf("%d of another key, want %d", n, burst)
	}
	now = now.Add(time.Second)
	if n := count(1); n != 2 {
		t.Errorf("%d after a second, want 2", n)
	}
	for k := range 2 * most {
		l.Allow(k, now)
	}
	if len(l.m) > most {
		t.Errorf("%d keys are remembered, at most %d should be", len(l.m), most)
	}
	if l.Allow(1000, now) {
		t.Error("a new key was let through while all remembered ones are busy")
	}
	if now = now.Add(time.Hour); !l.Allow(1000, now) {
		t.Error("nobody makes room")
	}
}
