package harness

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
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
		// copy leaves its input, which every rank has its own of.
		"copy": func(p guest.Process) int {
			b, err := guest.ReadFile(p, "/data/shard", 1<<20)
			if err == nil {
				err = guest.WriteFile(p, "/out/shard", append([]byte(env(p, buyer.EnvRank)+":"), b...))
			}
			if err != nil {
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
		n.checkPayer(t, b)
		if j.Receipts < 5*10 {
			t.Errorf("%d receipts for 5 ranks of 12 intervals", j.Receipts)
		}
		n.Settle()
		for i := range 5 {
			n.checkQuiet(t, n.Provider(i), b)
		}
	})
}

func TestTwentyPeers(t *testing.T) {
	t.Parallel()
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 19, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		j := b.Wait(b.Submit(b.Job("work", 19, "5")).ID, 5*time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		n.checkPayer(t, b)
		seen := map[sign.Key]bool{}
		for _, r := range j.Ranks {
			seen[r.Provider] = true
		}
		if len(seen) != 19 {
			t.Errorf("19 ranks ran on %d providers", len(seen))
		}
	})
	t.Logf("20 peers, one job over all of them: %v", time.Since(began).Round(time.Millisecond))
}

// Each rank of an array job has its own input and leaves its own output.
func TestArrayJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Programs: programs})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("copy", 4)
		spec.Placement.Pack = true
		spec.Inputs = []job.Input{{Source: "shard-{rank}", Path: "/data/shard"}}
		spec.Outputs = []job.Output{{Path: "/out"}}
		for rank := range 4 {
			spec.Blobs[fmt.Sprintf("shard-%d", rank)] = b.Put(fmt.Sprintf("the shard of rank %d", rank))
		}
		j := b.Wait(b.Submit(spec).ID, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		for rank, r := range j.Ranks {
			if len(r.Outputs) != 1 {
				t.Fatalf("rank %d left %d outputs", rank, len(r.Outputs))
			}
			if got, want := b.file(t, r.Outputs[0].Blob, "shard"), fmt.Sprintf("%d:the shard of rank %d", rank, rank); got != want {
				t.Errorf("rank %d left %q, want %q", rank, got, want)
			}
		}
	})
}

// A provider is killed in the middle of a round: its rank runs again elsewhere,
// the result is the same, and the dead one is paid what its vouchers say.
func TestKilledProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 4, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.rounds(3, 4)).ID
		time.Sleep(6 * time.Second)
		j, err := b.Node.Buyer().Job(id)
		if err != nil || j.Round != 1 {
			t.Fatalf("not in the second round: %s %v", j.Summary(), err)
		}
		dead := n.owner(t, j.Ranks[1].Provider)
		dead.Kill()
		j = b.Wait(id, 5*time.Minute)
		accounts := n.check(t, b, j, buyer.Succeeded)
		n.checkPayer(t, b)
		want := "0.0;0.1;"
		want += "1.0;" + want + "1.1;"
		want += "2.0;" + want + "2.1;"
		if got := b.file(t, *j.Carry, "model"); got != want {
			t.Errorf("the result is %q, want %q", got, want)
		}
		if j.Ranks[1].Restarts != 1 || j.Ranks[0].Restarts != 0 || j.Ranks[1].Provider == dead.Key.Key() {
			t.Errorf("rank 0 was restarted %d times, rank 1 %d times", j.Ranks[0].Restarts, j.Ranks[1].Restarts)
		}
		if len(accounts) != 3 {
			t.Errorf("%d leases, want one for each rank and one more", len(accounts))
		}
		for _, a := range accounts {
			if a.Provider == dead.Key.Key() && a.Owed == 0 {
				t.Error("the dead provider was not paid for the round it did")
			}
			r, err := b.Node.Status().Reputation(a.Provider.String())
			if err != nil || r.Provider.Good == 0 || r.Provider.Bad > 0 != (a.Provider == dead.Key.Key()) {
				t.Errorf("the buyer makes of %s: %+v, %v", a.Provider.Short(), r.Provider, err)
			}
		}
		dead.Restart()
		n.Settle()
		for i := range 4 {
			n.checkQuiet(t, n.Provider(i), b)
		}
	})
}

// owner finds the peer of a key.
func (n *Net) owner(t *testing.T, k sign.Key) *Peer {
	t.Helper()
	for _, p := range n.Peers {
		if p.Key.Key() == k {
			return p
		}
	}
	t.Fatalf("no peer has the key %s", k)
	return nil
}

// A buyer's peer is stopped in good order or killed, and started again, in the
// middle of a job: the programs run on, no lease is lost, and the logs are
// complete and in order.
func TestBuyerRestarts(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stopped", "killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 2, Units: 1, Programs: programs, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				id := b.Submit(b.Job("work", 2, "15")).ID
				time.Sleep(5500 * time.Millisecond)
				if how == "killed" {
					b.Kill()
				} else {
					_, err := waitIn(b, id)
					b.Stop()
					if got := <-err; !errors.Is(got, buyer.ErrUnfinished) {
						t.Errorf("waiting for a job whose peer stopped: %v", got)
					}
				}
				time.Sleep(1500 * time.Millisecond)
				b.Restart()
				j := b.Wait(id, time.Minute)
				accounts := n.check(t, b, j, buyer.Succeeded)
				n.checkPayer(t, b)
				if len(accounts) != 2 {
					t.Errorf("%d leases for 2 ranks: one was lost to the restart\n%s", len(accounts), b.Why(id))
				}
				var want strings.Builder
				for i := range 15 {
					fmt.Fprintln(&want, "second", i)
				}
				for rank := range 2 {
					if got := b.log(t, id, rank); got != want.String() {
						t.Errorf("the log of rank %d is %q", rank, got)
					}
				}
			})
		})
	}
}

// waitIn waits for a job beside the test.
func waitIn(b *Peer, id string) (<-chan buyer.Job, <-chan error) {
	jobs, errs := make(chan buyer.Job, 1), make(chan error, 1)
	buying := b.Node.Buyer()
	go func() {
		j, err := buying.Wait(context.Background(), id)
		jobs <- j
		errs <- err
	}()
	synctest.Wait()
	return jobs, errs
}

// log is what a rank wrote to its standard output.
func (p *Peer) log(t *testing.T, id string, rank int) string {
	t.Helper()
	var frames bytes.Buffer
	if err := p.Node.Buyer().Log(t.Context(), id, rank, buyer.LogQuery{}, &frames); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for b := frames.Bytes(); len(b) >= buyer.FrameHeader; {
		size := int(binary.BigEndian.Uint32(b[4:]))
		if b[0] == buyer.StreamStdout {
			out.Write(b[buyer.FrameHeader : buyer.FrameHeader+size])
		}
		b = b[buyer.FrameHeader+size:]
	}
	return out.String()
}
