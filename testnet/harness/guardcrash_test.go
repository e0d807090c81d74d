package harness

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/store"
)

// handover is a job whose owner goes, comes back while a guardian supervises it, and takes it back; with a crash of one of them.
type handover struct {
	owner bool  // crashes; else the guardian whose turn is first
	at    Crash // counted from when the owner is back, or has gone
	down  time.Duration
}

func (c handover) run(t *testing.T) (crashed bool, writes []string) {
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 7, Units: 1, Programs: programs, Log: Logger()})
		b, j := n.leave(twenty)
		victim := n.guardians(j)[0]
		if c.owner {
			victim = b
		}
		b.Kill()
		if victim == b {
			time.Sleep(6 * time.Second)
			b.Restart()
			b.power.crash.CrashAt(c.at.Write, c.at.When)
		} else {
			begun := len(victim.Writes())
			if c.at.Write > 0 {
				victim.power.crash.CrashAt(begun+c.at.Write, c.at.When)
			}
			defer func() { writes = writes[min(begun, len(writes)):] }()
		}
		down, back := victim.Crashed(), victim == b
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			select {
			case <-time.After(6 * time.Second):
			case <-down:
				writes, down, crashed = victim.Writes(), nil, true
				victim.Kill()
				time.Sleep(c.down)
				victim.Restart()
			}
			if !back {
				b.Restart()
				back = true
			}
		}
		if down != nil {
			writes = victim.Writes()
		}
		accounts := n.checkDetached(t, b, j.ID)
		if len(accounts) > 4 { // those that nobody paid for, because two supervisors in a row went, were replaced
			t.Errorf("%d leases", len(accounts))
		}
		if t.Failed() {
			t.Errorf("crash at write %d, %v\n%s", c.at.Write, c.at.When, b.Why(j.ID))
		}
	})
	return crashed, writes
}

// A guardian that takes a job over, or the owner that takes it back, loses power before or after any write that it makes for it: the
// job ends well, and the money is right.
func TestDetachedCrash(t *testing.T) {
	t.Parallel()
	for who, owner := range map[string]bool{"owner": true, "guardian": false} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			_, writes := handover{owner: owner}.run(t)
			if len(writes) < 8 {
				t.Fatalf("the %s wrote %v", who, writes)
			}
			seen, hit := map[string]int{}, 0
			for i, kind := range writes {
				if seen[kind]++; seen[kind] > 1 { // writes of a kind are alike
					continue
				}
				when := []store.When{store.Before, store.After}[i%2]
				down := []time.Duration{1500 * time.Millisecond, 8 * time.Second}[len(seen)%2] // so that the others need not take over, or do
				t.Run(fmt.Sprintf("%d/%s", i+1, kind), func(t *testing.T) {
					if crashed, _ := (handover{owner, Crash{Write: i + 1, When: when}, down}).run(t); crashed {
						hit++
					}
				})
			}
			if 2*hit < len(seen) { // some come only where all goes well until then
				t.Errorf("%d crashes at %d kinds of writes: %v", hit, len(seen), seen)
			}
		})
	}
}
