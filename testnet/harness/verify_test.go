package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/rerun"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/verify/replica"
)

// summing leaves a sum of its input, what the clock and chance gave it, and who it is: all that a replica must find the same.
func summing(forge uint64) guest.Program {
	return func(p guest.Process) int {
		b, err := guest.ReadFile(p, "/in/data", 1<<20)
		if err != nil {
			fmt.Fprintln(p.Stderr(), err)
			return 1
		}
		for range 1500 {
			p.Burn()
		}
		sum := forge
		for _, c := range b {
			sum += uint64(c)
		}
		text := fmt.Sprintln(sum, p.Now().UnixNano(), p.Random(), env(p, buyer.EnvJob), env(p, buyer.EnvRank), env(p, buyer.EnvCount))
		if err := guest.WriteFile(p, "/out/sum", []byte(text)); err != nil {
			fmt.Fprintln(p.Stderr(), err)
			return 1
		}
		return 0
	}
}

func sumPrograms(forge uint64) map[string]guest.Program {
	return map[string]guest.Program{"sum-it": summing(forge)}
}

// verified is a job of so many ranks whose results are checked.
func (p *Peer) verified(count uint32) job.Job {
	spec := p.Job("sum-it", count)
	spec.Verify = job.VerifyReplicate
	spec.Resources.PerUnit = market.Resources{MemoryMiB: 64, DiskMiB: 16}
	spec.Inputs = []job.Input{{Source: "data-{rank}", Path: "/in/data"}}
	spec.Outputs = []job.Output{{Path: "/out"}}
	for rank := range count {
		spec.Blobs[fmt.Sprintf("data-%d", rank)] = p.Put(fmt.Sprintf("the data of rank %d", rank))
	}
	return spec
}

// replicas are the jobs that a job's checks bought.
func (p *Peer) replicas(t *testing.T, j buyer.Job) []buyer.Job {
	t.Helper()
	var out []buyer.Job
	for _, r := range p.Node.Buyer().Jobs() {
		if r.Replica != nil && r.Replica.Job == j.ID {
			out = append(out, r)
		}
	}
	return out
}

// Honest providers: with nothing at stake every result is computed again, by somebody else, who finds the same; what both signed is the
// same output.
func TestVerifiedEqual(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 4, Programs: sumPrograms(0), Log: Logger()})
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.verified(2)).ID
		held := false
		for range 600 { // what is there already is held back
			j, err := b.Node.Buyer().Job(id)
			if err != nil {
				t.Fatal(err)
			}
			if len(j.Ranks[0].Outputs) > 0 && j.State == buyer.Settling {
				held = held || j.Unchecked()
			}
			if j.State.Ended() {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		j := b.Wait(id, 2*time.Minute)
		if j.State != buyer.Succeeded || j.Unchecked() || !held {
			t.Fatalf("%s, held back before: %v\n%s", j.Summary(), held, b.Why(id))
		}
		all := b.replicas(t, j)
		for i, v := range j.Verified {
			if v.State != replica.Equal || len(v.Verdict.Results) != 2 || v.Evidence != "" {
				t.Fatalf("rank %d: %s\n%s", i, v.Text(), b.Why(id))
			}
			if a, r := v.Verdict.Results[0], v.Verdict.Results[1]; a.Provider == r.Provider || a.Output != r.Output || a.Lease == r.Lease || a.Provider != j.Ranks[i].Provider {
				t.Errorf("rank %d: %+v", i, v.Verdict.Results)
			}
		}
		if len(all) != 2 {
			t.Errorf("%d replicas were bought", len(all))
		}
		for _, r := range all {
			b.Wait(r.ID, time.Minute)
		}
		n.Settle()
		n.checkPayer(t, b)
		if text := j.VerifyText(); text != "2 replicated, equal" {
			t.Error(text)
		}
	})
}

// forger is the number of the provider that forges: the cheapest, so that it is chosen.
const forger = 1

func forgery(crash map[int]Crash) Options {
	return Options{
		Providers: 4, Programs: sumPrograms(0), Forged: map[int]map[string]guest.Program{forger: sumPrograms(1)}, Price: map[int]string{forger: "0.2"},
		Crash: crash, Log: Logger(),
	}
}

// right reports whether a job that was forged ended as it should: the result is right, the forger is named, the proof
// of it holds.
func (n *Net) right(t *testing.T, b *Peer, j buyer.Job) {
	t.Helper()
	if j.State != buyer.Succeeded || len(j.Verified) != 1 || j.Verified[0].State != replica.Differs {
		t.Fatalf("%s\n%s", j.Summary(), b.Why(j.ID))
	}
	v := j.Verified[0]
	forged := n.Provider(forger).Key.Key()
	if len(v.Verdict.Results) != 3 || !slices.Equal(v.Verdict.Wrong, []int{0}) || v.Verdict.Results[0].Provider != forged {
		t.Errorf("%+v", v.Verdict)
	}
	var sum uint64
	for _, c := range []byte("the data of rank 0") {
		sum += uint64(c)
	}
	var got uint64
	if _, err := fmt.Sscan(b.file(t, j.Ranks[0].Outputs[0].Blob, "sum"), &got); err != nil || got != sum {
		t.Errorf("the job left %d, right is %d: %v", got, sum, err)
	}
	kept := b.Node.Proofs().Proofs(proof.KindDispute)
	if len(kept) != 1 || kept[0].Hash.String() != v.Evidence {
		t.Fatalf("%+v", kept)
	}
	p, err := b.Node.Proofs().Proof(t.Context(), sign.Key{}, kept[0].Hash)
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	f, err := proof.Check(d, n.Genesis)
	if err != nil {
		t.Fatal(err)
	}
	found := f.Detail.(*proof.DisputeDetail)
	if len(found.Wrong) != 1 || found.Signed[found.Wrong[0]].Provider != forged || len(found.Signed) != 3 {
		t.Errorf("%+v", found)
	}
	n.rerun(t, b, d.(proof.Dispute), found.Wrong)
}

// rerun runs the work of a proof again, as anybody can who has its files.
func (n *Net) rerun(t *testing.T, b *Peer, found proof.Dispute, majority []int) {
	t.Helper()
	at := func(name, content string) string {
		p := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	program, data := at("program", string(runtimetest.FakeModule("sum-it"))), at("data", "the data of rank 0")
	r, err := rerun.Work(t.Context(), b.Fake, found.Work, rerun.Files{Program: program, Inputs: map[string]string{"/in/data": data}}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if wrong := found.Against(r); !slices.Equal(wrong, majority) {
		t.Errorf("run again, %v are wrong; by majority %v", wrong, majority)
	}
	for name, f := range map[string]rerun.Files{
		"another program": {Program: data, Inputs: map[string]string{"/in/data": data}},
		"another input":   {Program: program, Inputs: map[string]string{"/in/data": program}},
		"no input":        {Program: program},
		"one too many":    {Program: program, Inputs: map[string]string{"/in/data": data, "/in/more": data}},
		"no program":      {Inputs: map[string]string{"/in/data": data}},
	} {
		if _, err := rerun.Work(t.Context(), b.Fake, found.Work, f, t.TempDir()); !errors.Is(err, rerun.ErrFiles) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A provider that signs a forged result is caught: a third decides, the job has the right result, and anybody can check who signed what.
func TestForgedResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, forgery(nil))
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		j := b.Wait(b.Submit(b.verified(1)).ID, 5*time.Minute)
		n.right(t, b, j)
		n.alike(t, b, j)
		n.Settle()
		n.checkPayer(t, b)
	})
}

// alike reports whether providers could tell a replica from what it repeats: by its order, or by the workload that they
// are given.
func (n *Net) alike(t *testing.T, b *Peer, j buyer.Job) {
	t.Helper()
	order := func(j buyer.Job, id market.OrderID) market.Order {
		env, err := b.Journal.Get(t.Context(), "order", id.String())
		if err != nil {
			t.Fatal(err)
		}
		o, err := market.DecodeOrder(n.Genesis.Domain(), env, j.Created)
		if err != nil {
			t.Fatal(err)
		}
		o.ID, o.Nonce, o.Expires, o.Slots, o.JobTerms = market.OrderID{}, market.Nonce{}, time.Time{}, 0, sign.Hash{} // every order's are its own
		o.ReplyKey, o.Draw = market.ReplyKey{}, 0
		return o
	}
	first := order(j, j.Orders[0])
	for _, r := range b.replicas(t, j) {
		for _, id := range r.Orders {
			if o := order(r, id); !reflect.DeepEqual(o, first) || len(o.Exclude) > 0 {
				t.Errorf("a replica's order is %+v, the first was %+v", o, first)
			}
		}
	}
	var all []*nodepb.Workload
	for i := range n.opts.Providers {
		if err := n.Provider(i).Journal.List(t.Context(), "execution", "", func(_ string, value []byte) error {
			var rec struct{ Workload json.RawMessage }
			w := &nodepb.Workload{}
			err := json.Unmarshal(value, &rec)
			if err == nil {
				err = protojson.Unmarshal(rec.Workload, w)
			}
			all = append(all, w)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(all) != 3 {
		t.Fatalf("%d executions", len(all))
	}
	for _, w := range all[1:] {
		if !proto.Equal(w, all[0]) {
			t.Errorf("a replica is asked for by %v, the first was by %v", w, all[0])
		}
	}
}

// stake has providers, by number, put so much at stake, each from a wallet of its own that is not the one it is paid to.
func (n *Net) stake(amount uint64, providers ...int) {
	for _, i := range providers {
		k := n.Provider(i).Key.Key()
		n.Programs.Register(account.Provider{Peer: k, Owner: sign.Key(sign.Sum([]byte("owner"), k[:])), Payout: k, Stake: amount})
	}
}

// Where jobs are paid from escrows: replicas go to those who have something at stake before those who have not, are paid as any
// other job, and two providers of one owner do not check one another.
func TestForgedWithStakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := forgery(nil)
		o.Providers = 6
		n := New(t, o)
		time.Sleep(5 * time.Second)
		n.stake(1_000_000_000, forger, 3, 4)
		accomplice, k := n.Provider(5).Key.Key(), n.Provider(forger).Key.Key()
		n.Programs.Register(account.Provider{Peer: accomplice, Owner: sign.Key(sign.Sum([]byte("owner"), k[:])), Payout: accomplice, Stake: 5})
		b := n.Buyer(0)
		j := b.Wait(b.Submit(b.verified(1)).ID, 20*time.Minute)
		n.right(t, b, j)
		for _, r := range j.Verified[0].Verdict.Results[1:] {
			if p := r.Provider; p != n.Provider(3).Key.Key() && p != n.Provider(4).Key.Key() {
				t.Errorf("a replica was computed by %s, who has nothing at stake or is the forger's", p)
			}
		}
		for _, r := range b.replicas(t, j) {
			if r = b.Wait(r.ID, 20*time.Minute); r.Paid == 0 || len(r.Escrows) != 1 {
				t.Errorf("replica %s: paid %d, %d escrows", r.ID, r.Paid, len(r.Escrows))
			}
		}
	})
}

// A provider with a record is checked seldom, one without always, and a result that is not drawn costs nothing.
func TestVerifiedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 5, Programs: sumPrograms(0), Price: map[int]string{0: "0.2"}, Log: Logger()})
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		b.Stop()
		if err := b.Journal.Write(t.Context(), store.Put{Kind: "trust", Key: n.Provider(0).Key.Key().String(), Value: []byte(`{"valid":1000}`)}); err != nil {
			t.Fatal(err)
		}
		b.Restart()
		time.Sleep(5 * time.Second)
		spec := b.verified(1)
		j := b.Wait(b.Submit(spec).ID, 20*time.Minute)
		v := j.Verified[0]
		if j.State != buyer.Succeeded || v.Verdict.Odds != 10*replica.Billion/replica.MaxTrust {
			t.Fatalf("odds of %d billionths: %s\n%s", v.Verdict.Odds, j.Summary(), b.Why(j.ID))
		}
		if bought := len(b.replicas(t, j)); (v.State == replica.NotDrawn) != (bought == 0) {
			t.Errorf("%s, and %d replicas were bought", v.Text(), bought)
		}
		spec.Placement.Exclude = []sign.Key{n.Provider(0).Key.Key()}
		if j = b.Wait(b.Submit(spec).ID, 20*time.Minute); j.Verified[0].State != replica.Equal || j.Verified[0].Verdict.Odds != replica.Always {
			t.Errorf("of one without a record: %s", j.Summary())
		}
	})
}

// Two that differ, and nobody else to ask: the job fails rather than to pass one of them off as checked, and nobody is blamed.
func TestForgedUndecided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := forgery(nil)
		o.Providers = 2
		n := New(t, o)
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		j := b.Wait(b.Submit(b.verified(1)).ID, 30*time.Minute)
		if j.State != buyer.Failed || j.Code != buyer.CodeVerify || j.Verified[0].State != replica.Unverified || len(j.Verified[0].Verdict.Wrong) > 0 {
			t.Fatalf("%s\n%s", j.Summary(), b.Why(j.ID))
		}
		kept := b.Node.Proofs().Proofs(proof.KindDispute)
		if len(kept) != 1 || !strings.HasSuffix(kept[0].Proves, "no majority") {
			t.Errorf("%+v", kept)
		}
	})
}

// The buyer loses power at every kind of write of a checked job: it goes on, buys no replica twice, and ends with the right result.
func TestVerifyCrash(t *testing.T) {
	t.Parallel()
	var writes []string
	var taken int    // writes when the job is taken
	const victim = 4 // the buyer
	run := func(t *testing.T, at *Crash) {
		synctest.Test(t, func(t *testing.T) {
			crash := map[int]Crash{}
			if at != nil {
				crash[victim] = *at
			}
			n := New(t, forgery(crash))
			b := n.Buyer(0)
			crashed := b.Crashed()
			time.Sleep(5 * time.Second)
			id := b.Submit(b.verified(1)).ID
			if at == nil {
				taken = len(b.Writes())
				j := b.Wait(id, 5*time.Minute)
				n.right(t, b, j)
				writes = b.Writes()
				return
			}
			select {
			case <-crashed:
				b.Kill()
				time.Sleep(3 * time.Second)
				b.Restart()
			case <-time.After(2 * time.Minute):
			}
			j := b.Wait(id, 10*time.Minute)
			n.right(t, b, j)
			seen := map[uint32]string{}
			for _, r := range b.replicas(t, j) {
				if other := seen[r.Replica.Attempt]; other != "" {
					t.Errorf("replica %d was bought twice: %s and %s", r.Replica.Attempt, other, r.ID)
				}
				seen[r.Replica.Attempt] = r.ID
				b.Wait(r.ID, time.Minute)
			}
			n.Settle()
			n.checkPayer(t, b)
		})
	}
	run(t, nil)
	// The last writes are those of the check: one of each kind that is seldom, and some of the others.
	last := map[string]int{}
	for i, kind := range writes[taken:] {
		last[kind] = taken + i + 1
	}
	at := slices.Collect(maps.Values(last))
	for i := (taken + len(writes)) / 2; i < len(writes); i += 7 {
		at = append(at, i+1)
	}
	slices.Sort(at)
	for _, w := range slices.Compact(at) {
		if testing.Short() && w%3 != 0 {
			continue
		}
		t.Run(fmt.Sprintf("%03d-%s", w, writes[w-1]), func(t *testing.T) {
			t.Parallel()
			run(t, &Crash{Write: w})
		})
	}
}

// A buyer asks its provider to stop a checked program: the final receipt that the provider signs has no result of it.
func TestAttackStoppedWorkHasNoResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: sumPrograms(0), Log: Logger()})
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.verified(1)).ID
		b.until(id, func(buyer.Job) bool { return n.Provider(0).Fake.Running() > 0 })
		if err := b.Node.Buyer().Stop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		b.Wait(id, 2*time.Minute)
		n.Settle()
		ended := 0
		n.Provider(0).list(t, "execution", func(value []byte) {
			var rec struct{ Workload, State json.RawMessage }
			w, e := &nodepb.Workload{}, &nodepb.Execution{}
			if err := errors.Join(json.Unmarshal(value, &rec), protojson.Unmarshal(rec.Workload, w), protojson.Unmarshal(rec.State, e)); err != nil {
				t.Fatal(err)
			}
			ended++
			if w.Seed == 0 || e.Reason == "" || !workload.Digest(w, e).IsZero() {
				t.Errorf("%v, %v: the output is %s", w, e, workload.Digest(w, e))
			}
		})
		if ended != 1 {
			t.Errorf("%d executions", ended)
		}
	})
}
