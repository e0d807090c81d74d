package mesh

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A cluster is idle from the first time that nothing was seen of it until something is, whatever the clock does.
func TestIdleSince(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		var since, quiet time.Time
		for range rapid.IntRange(1, 40).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 600).Draw(t, "seconds")) * time.Second)
			n := uint64(rapid.IntRange(0, 8).Draw(t, "members"))
			seen := Use{Streams: rapid.Bool().Draw(t, "streams"), Jobs: rapid.Bool().Draw(t, "jobs"), MilliCPU: rapid.Uint64Range(0, 3000).Draw(t, "milli"), Members: n}
			nothing := !seen.Streams && !seen.Jobs && seen.MilliCPU < idleMilliCPU*max(n, 1)
			if !nothing {
				quiet = time.Time{}
			} else if quiet.IsZero() {
				quiet = now
			}
			if since = IdleSince(since, now, seen); !since.Equal(quiet) {
				t.Fatalf("idle since %v, nothing was seen since %v", since, quiet)
			}
		}
	})
	now := time.Unix(1_000_000, 0)
	if got := IdleSince(now.Add(time.Hour), now, Use{Members: 1}); !got.Equal(now) {
		t.Errorf("idle since %v, which is to come", got)
	}
}
