package harness

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// steps counts the seconds of its argument in its checkpoint, and continues where an earlier run stopped.
func steps(p guest.Process) int {
	n, _ := strconv.Atoi(p.Args()[0])
	b, _ := guest.ReadFile(p, "/ckpt/step", 100)
	i, _ := strconv.Atoi(string(b))
	fmt.Fprintln(p.Stdout(), "begins at", i)
	for ; i < n; i++ {
		if guest.WriteFile(p, "/ckpt/step", []byte(strconv.Itoa(i))) != nil {
			return 1
		}
		for range 2000 { // at rest for as long
			p.Burn()
		}
	}
	part := fmt.Sprintf("0.%s;", env(p, buyer.EnvRank))
	if guest.WriteFile(p, "/out/part", []byte(part)) != nil {
		return 1
	}
	return 0
}

// stepping makes a job keep its checkpoint.
func stepping(spec job.Job) job.Job {
	spec.Checkpoint = &job.Checkpoint{Path: "/ckpt", Every: job.Span(time.Second)}
	spec.Outputs = []job.Output{{Path: "/out"}}
	spec.Resources.PerUnit.DiskMiB = 16
	return spec
}

// begins returns where the runs of a program began.
func begins(log string) (at []int) {
	for line := range strings.Lines(log) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "begins at "); ok {
			i, _ := strconv.Atoi(text)
			at = append(at, i)
		}
	}
	return at
}

// hasPack waits for a checkpoint of rank 0, at a peer, with at least this number.
func (p *Peer) hasPack(id string, number uint64) buyer.Job {
	return p.until(id, func(j buyer.Job) bool {
		c := j.Ranks[0].Checkpoints
		return len(c) > 0 && c[0].Number >= number
	})
}

// A provider's peer is killed: its rank continues from the checkpoint with another.
func TestCheckpointKilledProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Units: 1, Programs: with("steps", steps), Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(stepping(b.Job("steps", 1, "20"))).ID
		j := b.hasPack(id, 4)
		n.owner(t, j.Ranks[0].Provider).Kill()
		j = b.Wait(id, 5*time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		at := begins(b.log(t, id, 0))
		if len(at) != 2 || at[0] != 0 || at[1] < 2 || j.Ranks[0].Restarts != 1 {
			t.Errorf("begins at %v after %d moves\n%s", at, j.Ranks[0].Restarts, b.Why(id))
		}
		if !strings.Contains(b.Why(id), "continues from checkpoint") {
			t.Errorf("the trace does not say so:\n%s", b.Why(id))
		}
		if len(j.Ranks[0].Checkpoints) != 0 {
			t.Errorf("a rank that is done has checkpoints: %v", j.Ranks[0].Checkpoints)
		}
	})
}

// The buyer's peer is killed and restarted: it goes on to keep checkpoints, and the rank continues from one after that.
func TestCheckpointBuyerRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Units: 1, Programs: with("steps", steps), Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(stepping(b.Job("steps", 1, "30"))).ID
		first := b.hasPack(id, 2).Ranks[0].Checkpoints[0].Number
		b.Kill()
		time.Sleep(1500 * time.Millisecond)
		b.Restart()
		j := b.hasPack(id, first+3)
		n.owner(t, j.Ranks[0].Provider).Kill()
		j = b.Wait(id, 5*time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		if at := begins(b.log(t, id, 0)); len(at) != 2 || at[1] < int(first) {
			t.Errorf("begins at %v\n%s", at, b.Why(id))
		}
	})
}

// The buyer's peer is killed for good, and then the provider's: a guardian has the rank continue from its checkpoint.
func TestCheckpointGuardian(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 8, Units: 1, Programs: with("steps", steps), Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.detached(1, "40")
		steps := b.Job("steps", 1, "40")
		spec.Module, spec.Blobs, spec.Args = steps.Module, steps.Blobs, steps.Args
		id := b.Submit(stepping(spec)).ID
		b.until(id, func(j buyer.Job) bool { return j.Detached.Held })
		b.hasPack(id, 5)
		j := b.until(id, func(j buyer.Job) bool { // a majority say that they have it
			return len(j.Ranks[0].Checkpoints[0].Guardians) > len(j.Detached.Guardians)/2
		})
		b.Kill()
		time.Sleep(6 * time.Second)
		n.peer(j.Ranks[0].Provider).Kill()
		time.Sleep(2 * time.Minute)
		for _, g := range n.guardians(j) {
			if g.Key.Key() == j.Ranks[0].Provider {
				continue
			}
			of, err := g.Node.Buyer().Job(id)
			if err != nil || of.Ranks[0].State != buyer.RankDone {
				continue
			}
			at := begins(g.log(t, id, 0))
			if last := at[len(at)-1]; last < 4 {
				t.Errorf("begins at %v\n%s", at, g.Why(id))
			}
			return
		}
		for _, g := range n.guardians(j) {
			t.Log(g.Why(id))
		}
		t.Error("no guardian ended the job")
	})
}
