package buyer

import (
	"fmt"
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
			seen := busy{streams: rapid.Bool().Draw(t, "streams"), jobs: rapid.Bool().Draw(t, "jobs"), milli: rapid.Uint64Range(0, 3000).Draw(t, "milli"), members: n}
			nothing := !seen.streams && !seen.jobs && seen.milli < idleMilliCPU*max(n, 1)
			if !nothing {
				quiet = time.Time{}
			} else if quiet.IsZero() {
				quiet = now
			}
			if since = idleSince(since, now, seen); !since.Equal(quiet) {
				t.Fatalf("idle since %v, nothing was seen since %v", since, quiet)
			}
		}
	})
	now := time.Unix(1_000_000, 0)
	if got := idleSince(now.Add(time.Hour), now, busy{members: 1}); !got.Equal(now) {
		t.Errorf("idle since %v, which is to come", got)
	}
}

// A plan's version and what it says change together, and never back.
func TestReplan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := Job{Cluster: &Cluster{}, Ranks: make([]Rank, rapid.IntRange(1, 5).Draw(t, "ranks"))}
		says := map[uint64]string{}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			i := rapid.IntRange(0, len(j.Ranks)-1).Draw(t, "rank")
			r := &j.Ranks[i]
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if r.State != RankJoining {
					r.State = RankWaiting
				}
			case 1: // of ranks that join, all or none
				joins := r.State == RankJoining
				for k := range j.Ranks {
					if r := &j.Ranks[k]; k == i || joins && r.State == RankJoining {
						r.State, r.Epoch = RankLeased, r.Epoch+1
						r.Lease[0], r.Lease[1] = byte(k)+1, byte(r.Epoch)
					}
				}
			case 2:
				j.Ranks = append(j.Ranks, Rank{State: RankJoining})
			case 3:
				j.Ranks = j.Ranks[:max(1, len(j.Ranks)-1)]
			}
			before := j.clone()
			j.replan()
			text := seats(j.Cluster)
			if was, ok := says[j.Cluster.Version]; ok && was != text {
				t.Fatalf("version %d says two things:\n%s\n%s", j.Cluster.Version, was, text)
			}
			says[j.Cluster.Version] = text
			if d := j.Cluster.Version - before.Cluster.Version; d > 1 || (d == 0) != (text == seats(before.Cluster)) {
				t.Fatalf("version %d after %d", j.Cluster.Version, before.Cluster.Version)
			}
			for _, m := range j.Cluster.Members {
				if r := j.Ranks[m.Rank]; r.Lease != m.Lease || r.Epoch != m.Epoch || r.State == RankWaiting || r.State == RankJoining || m.Rank >= j.Cluster.Size {
					t.Fatalf("member %+v of rank %+v, size %d", m, r, j.Cluster.Size)
				}
			}
		}
	})
}

func seats(c *Cluster) string { return fmt.Sprint(c.Size, c.Members) }
