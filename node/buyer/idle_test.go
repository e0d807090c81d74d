package buyer

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

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
