package harness

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
)

// Detached is a job of ranks that work for so many seconds and leave something, with three guardians.
func (p *Peer) detached(count uint32, seconds string) job.Job {
	spec := p.Job("train", count, seconds)
	spec.Outputs = []job.Output{{Path: "/out"}}
	spec.Guardians, spec.Standbys = 3, 2
	return spec
}

// peer finds a peer by its key.
func (n *Net) peer(k sign.Key) *Peer {
	return n.Peers[slices.IndexFunc(n.Peers, func(p *Peer) bool { return p.Key.Key() == k })]
}

// guardians of a job, in the order of their keys, which is the order in which they supervise.
func (n *Net) guardians(j buyer.Job) []*Peer {
	var out []*Peer
	for _, m := range j.Detached.Guardians {
		out = append(out, n.peer(m.Key))
	}
	return out
}

// checkDetached fails the test unless a job went well whose owner is back: its outputs and logs are there, nobody did its work twice
// without need, and its money is where it belongs.
func (n *Net) checkDetached(t *testing.T, b *Peer, id string) []buyer.LeaseAccount {
	t.Helper()
	j := b.Wait(id, 5*time.Minute)
	if j.State != buyer.Succeeded {
		t.Fatalf("%s\n%s", j.Summary(), b.Why(id))
	}
	for i, r := range j.Ranks {
		if len(r.Outputs) != 1 {
			t.Errorf("rank %d left %v", i, r.Outputs)
		} else if got, want := b.file(t, r.Outputs[0].Blob, "part"), "0."+string(rune('0'+i))+";"; got != want {
			t.Errorf("rank %d left %q, want %q", i, got, want)
		}
		if log := b.log(t, id, i); log == "" {
			t.Errorf("rank %d has no log", i)
		}
	}
	n.Settle()
	return n.checkEscrow(t, b, id, buyer.Succeeded)
}

// checkWages fails the test unless each guardian that is there has, beside what it sold, its wage but the network's fee: the rate, for
// the slots until enough guardians had heard that the job was over.
func (n *Net) checkWages(t *testing.T, j buyer.Job, accounts []buyer.LeaseAccount) {
	t.Helper()
	var all market.Amount
	var over []market.Slot
	for _, p := range n.guardians(j) {
		if w, panel, ok := p.Node.Guardian().Guarded(j.Detached.Terms); ok {
			panel.Close()
			over = append(over, w.OverAt)
		}
	}
	slices.Sort(over)
	for i, p := range n.guardians(j) {
		w, panel, ok := p.Node.Guardian().Guarded(j.Detached.Terms)
		if !ok || w.OverAt == 0 || len(over) < int(w.Keys.Threshold) {
			t.Errorf("guardian %d forgot the job, or never heard that it is over", i)
			continue
		}
		panel.Close()
		core := j.Detached.Guardians[i].Wage
		until := min(w.OverAt, over[len(over)-int(w.Keys.Threshold)])
		want, err := core.Rate.Owed(uint64(until - core.Start))
		if err != nil {
			t.Fatal(err)
		}
		got := p.Node.Money().Wages()[j.Detached.Terms]
		if want = min(want, core.Cap); want == 0 || got.Claimed != want || got.Lost != 0 {
			t.Errorf("guardian %d guarded for %d slots at %d and has claimed %+v, want %d", i, until-core.Start, core.Rate, got, want)
		}
		have := want - fee(want)
		for _, a := range accounts {
			if a.Provider == p.Key.Key() {
				have += a.Owed - fee(a.Owed)
			}
		}
		if tokens := n.tokens(t, p); tokens != have {
			t.Errorf("guardian %d has %d, want %d", i, tokens, have)
		}
		all += got.Claimed
	}
	if j.Paid+j.Held != j.Owed+all {
		t.Errorf("the job paid %d, it owes %d for leases and %d are wages", j.Paid, j.Owed, all)
	}
}

// With its owner there all the time, a job with guardians goes like any other.
func TestDetachedStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 7, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.detached(2, "8")).ID
		j := b.until(id, func(j buyer.Job) bool { return j.Detached.Held })
		if len(j.Detached.Guardians) != 3 || len(j.Detached.Standbys) != 2 {
			t.Errorf("%d guardians, %d standbys", len(j.Detached.Guardians), len(j.Detached.Standbys))
		}
		for _, g := range n.guardians(j) {
			if jobs := g.Node.Buyer().Jobs(); len(jobs) != 0 {
				t.Errorf("a guardian lists the job as its own: %v", jobs)
			}
		}
		accounts := n.checkDetached(t, b, id)
		if len(accounts) != 2 {
			t.Errorf("%d leases", len(accounts))
		}
		n.checkWages(t, n.job(t, b, id), accounts)
	})
}

// The owner goes, with or without a word, and comes back to the result: guardians kept the job going on the same leases.
func TestDetachedAway(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]time.Duration{"back in time": 8 * time.Second, "back later": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 7, Units: 1, Programs: programs, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				id := b.Submit(b.detached(2, "20")).ID
				b.until(id, func(j buyer.Job) bool { return j.Detached.Held })
				time.Sleep(2 * time.Second)
				b.Kill()
				time.Sleep(back)
				b.Restart()
				accounts := n.checkDetached(t, b, id)
				if len(accounts) != 2 {
					t.Errorf("%d leases\n%s", len(accounts), b.Why(id))
				}
				n.checkWages(t, n.job(t, b, id), accounts)
			})
		})
	}
}

// While the owner is away a provider and the guardian that supervises are gone, too: another guardian hires a standby.
func TestDetachedLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 8, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.detached(2, "20")).ID
		j := b.until(id, func(j buyer.Job) bool { return j.Detached.Held })
		b.Kill()
		time.Sleep(5 * time.Second)
		n.guardians(j)[0].Kill()
		time.Sleep(5 * time.Second)
		n.peer(j.Ranks[1].Provider).Kill()
		time.Sleep(time.Minute)
		b.Restart()
		accounts := n.checkDetached(t, b, id)
		if len(accounts) != 3 {
			t.Errorf("%d leases\n%s", len(accounts), b.Why(id))
		}
	})
}

// A guardian dies before or after any write that has to do with its wage, and comes back: it has its
// wage, once.
func TestDetachedWageCrash(t *testing.T) {
	t.Parallel()
	const kind = "wage"
	_, writes := wageCrash(t, Crash{})
	wages := len(slices.DeleteFunc(writes, func(k string) bool { return k != kind }))
	if wages < 5 {
		t.Fatalf("a guardian wrote %d wages", wages)
	}
	for _, n := range []int{1, 2, 3, wages - 1, wages} { // the first and the last, which are not all alike
		for _, when := range []store.When{store.Before, store.After} {
			crashed, of := wageCrash(t, Crash{Write: n, Kind: kind, When: when})
			if n < wages-1 && (!crashed || of[len(of)-1] != kind) { // another run may have a wage or two fewer
				t.Errorf("no crash at wage %d of %d: the guardian wrote %v", n, wages, of)
			}
		}
	}
}

// wageCrash runs a job of which one guardian crashes on its way, and lists what the guardian's first process wrote.
func wageCrash(t *testing.T, at Crash) (crashed bool, writes []string) {
	const victim = 0
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{
			Providers: 4, Units: 1, Programs: programs, Crash: map[int]Crash{victim: at}, Log: Logger(),
			Configure: func(i int, c *config.Config) { c.Provide.Claim.Every, c.Guard.Accept = time.Second, i < 3 },
		})
		b, m := n.Buyer(0), n.Peers[victim].mayCrash(time.Second)
		m.wait(3 * time.Second)
		spec := b.detached(1, "8")
		spec.Standbys = 0
		id := b.Submit(spec).ID
		for end := time.Now().Add(3 * time.Minute); time.Now().Before(end) && !n.job(t, b, id).State.Ended(); {
			m.wait(500 * time.Millisecond)
		}
		crashed, writes = m.happened()
		n.checkWages(t, n.job(t, b, id), n.checkDetached(t, b, id))
	})
	return crashed, writes
}

// A job may wait for hours in which its guardians earn, longer than what backs its leases alone would last.
func TestDetachedLongQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 7, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.detached(1, "8")
		spec.Timeouts.Queue, spec.Timeouts.Run = 8*time.Hour, time.Hour
		id := b.Submit(spec).ID
		accounts := n.checkDetached(t, b, id)
		n.checkWages(t, n.job(t, b, id), accounts)
	})
}

// A guardian is away when the job ends, and back while the owner takes the rest of the money back: it is paid for as long as the others
// know that there was something to guard.
func TestDetachedGuardianLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 7, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.detached(2, "8")).ID
		j := b.until(id, func(j buyer.Job) bool { return j.Detached.Held })
		p := n.guardians(j)[0]
		p.Kill()
		b.until(id, func(j buyer.Job) bool { return j.State == buyer.Settling })
		time.Sleep(2 * time.Second)
		p.Restart()
		accounts := n.checkDetached(t, b, id)
		n.checkWages(t, n.job(t, b, id), accounts)
	})
}

// A job with secrets has no guardians: whoever supervises it could have its program tell them.
func TestDetachedSecrets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 5, Units: 1, Programs: programs, Log: Logger()})
		b := n.Buyer(0)
		time.Sleep(3 * time.Second)
		spec := b.detached(1, "1")
		spec.Secrets = []job.Secret{{Name: "token", Env: "TOKEN", From: "env:TOKEN"}}
		_, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec, Values: job.Values{Secrets: map[string][]byte{"token": []byte("x")}}})
		if !errors.Is(err, buyer.ErrRefused) || !strings.Contains(err.Error(), "guardians") {
			t.Errorf("a job with secrets and guardians: %v", err)
		}
	})
}
