package harness

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// programs are what the networks of these tests can run.
var programs map[string]guest.Program

func init() { // they call each other
	programs = allPrograms()
}

func allPrograms() map[string]guest.Program {
	return map[string]guest.Program{
		"hello": func(p guest.Process) int {
			fmt.Fprintln(p.Stdout(), "hello from", env(p, buyer.EnvRank), "of", env(p, buyer.EnvCount))
			return 0
		},
		"work": func(p guest.Process) int { // burns the seconds of its argument
			var n int
			fmt.Sscan(p.Args()[0], &n)
			for i := range n * 1000 {
				if i%1000 == 0 {
					fmt.Fprintln(p.Stdout(), "second", i/1000)
				}
				p.Burn()
			}
			return 0
		},
		"fail": func(p guest.Process) int { return 7 },
		// train reads what the round before left, works for the seconds of its argument and leaves its part.
		"train": func(p guest.Process) int {
			carry, err := guest.ReadFile(p, "/carry/model", 1<<20)
			if err != nil && env(p, buyer.EnvRound) != "0" {
				fmt.Fprintln(p.Stderr(), err)
				return 1
			}
			programs["work"](p)
			part := fmt.Sprintf("%s%s.%s;", carry, env(p, buyer.EnvRound), env(p, buyer.EnvRank))
			if err := guest.WriteFile(p, "/out/part", []byte(part)); err != nil {
				fmt.Fprintln(p.Stderr(), err)
				return 1
			}
			return 0
		},
		// sum is the reduce step: all parts, one after the other.
		"sum": func(p guest.Process) int {
			var model []byte
			for rank := 0; ; rank++ {
				part, err := guest.ReadFile(p, fmt.Sprintf("/in/%d/part", rank), 1<<20)
				if err != nil {
					break
				}
				model = append(model, part...)
			}
			if err := guest.WriteFile(p, "/out/model", model); err != nil {
				return 1
			}
			return 0
		},
	}
}

func env(p guest.Process, name string) string {
	for _, e := range p.Environ() {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

func TestJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Programs: programs, Log: Logger()})
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		j := b.Wait(b.Submit(b.Job("work", 5, "12")).ID, 5*time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		if j.Receipts < 5*10 {
			t.Errorf("%d receipts for 5 ranks of 12 intervals", j.Receipts)
		}
		t.Logf("%s\n%s", j.Summary(), b.Why(j.ID))
	})
}
