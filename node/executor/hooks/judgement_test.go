package hooks

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/node/nodepb"
)

// A program is unhealthy after so many failures in a row and never before, healthy after each success, and is not blamed
// for failures while it starts.
func TestJudgement(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		j := judgement{
			health: nodepb.Health_HEALTH_STARTING, retries: uint32(rapid.IntRange(1, 5).Draw(t, "retries")),
			grace: now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "grace")) * time.Second),
		}
		row, ever := uint32(0), false // failures in a row that count; whether a check has succeeded
		for range rapid.IntRange(1, 40).Draw(t, "checks") {
			now = now.Add(time.Second)
			ok := rapid.Bool().Draw(t, "ok")
			starting := j.health == nodepb.Health_HEALTH_STARTING && now.Before(j.grace)
			j = j.after(ok, now)
			switch {
			case ok:
				row, ever = 0, true
			case !starting:
				row++
			}
			want := nodepb.Health_HEALTH_STARTING
			if ever || j.health != nodepb.Health_HEALTH_STARTING {
				want = nodepb.Health_HEALTH_HEALTHY
			}
			if row >= j.retries {
				want = nodepb.Health_HEALTH_UNHEALTHY
			}
			if j.health == nodepb.Health_HEALTH_UNHEALTHY && row < j.retries || row >= j.retries && j.health != want || ok && j.health != want {
				t.Fatalf("after %d failures in a row of %d: %v, want %v", row, j.retries, j.health, want)
			}
		}
	})
}
