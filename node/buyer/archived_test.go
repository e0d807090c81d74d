package buyer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify/meter"
	"runtime"
)

var testGenesis = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10}

// pastWorld is a buyer on a free network with what lasts when it is started again.
type pastWorld struct {
	t     testing.TB
	cfg   Config
	began time.Time
}

func newPastWorld(t testing.TB, st store.Store) *pastWorld {
	g := testGenesis
	g.Free = true
	return &pastWorld{t, Config{
		Host: p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1)}), Genesis: g, Key: sign.NewPrivate([32]byte{1}), Store: st, Files: uploads{},
		Slots: slots.New(nil, g.SlotMillis, time.Second, p2ptest.Quiet()), Dir: t.TempDir(), Log: p2ptest.Quiet(),
	}, time.Now().Add(-time.Hour).Truncate(time.Millisecond)}
}

// start is a new process of the buyer.
func (w *pastWorld) start() *Buyer {
	b, err := New(w.t.Context(), w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func pastID(i int) string { return fmt.Sprintf("j%016d", i) }

func pastSpec(name string) job.Job {
	return job.Job{Name: name, Runtime: job.RuntimeDocker, Image: "docker.io/library/python@sha256:" + strings.Repeat("0123456789abcdef", 4), Args: []string{"python", "train.py"}, Count: 1,
		Resources: job.Resources{Class: "cpu", Units: 1}, Timeouts: job.Timeouts{Queue: time.Minute, Run: time.Hour}, Payment: job.Payment{Free: true}}
}

// ended is the i-th job that the journal has, and its one lease; the later ones are the newer ones.
func (w *pastWorld) ended(i int) Job {
	at := w.began.Add(time.Duration(i) * time.Millisecond)
	j := Job{
		ID: pastID(i), State: Succeeded, Outcome: Succeeded, Created: at, Started: at, Ended: at.Add(time.Second), Owed: market.Amount(i + 1), Receipts: 1,
		Spec:  pastSpec(fmt.Sprintf("train-%d", i%7)),
		Ranks: []Rank{{State: RankDone, Epoch: 1, Lease: w.core(i).ID(), Provider: w.core(i).Provider, Outputs: []Output{{Path: "/out", Blob: Blob{CID: w.left(i).String()}}}}},
	}
	j.Spec.Inputs, j.Spec.Blobs = []job.Input{{Source: "in", Path: "/data/in"}}, map[string]job.Blob{"in": {CID: w.input(i).String(), Size: 2}}
	if i%3 == 0 {
		j.Key = "ci"
	}
	if i%5 == 0 {
		j.State, j.Outcome, j.Transactions = Failed, Failed, []string{"tx" + j.ID}
	}
	return j
}

// running is the record of a job whose programs run.
func (w *pastWorld) running(j Job) []byte {
	p, err := j.Params(w.cfg.Genesis, time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	st, _ := run.Beginning{Params: p, Owner: true, Created: j.Created}.State(jobs.Now{Time: j.Created})
	st.Phase, st.Started = jobs.Working, j.Started
	st.Ranks[0] = jobs.Rank{State: jobs.RankRunning, Epoch: 1, Lease: j.Ranks[0].Lease, Provider: j.Ranks[0].Provider, Seq: 1}
	work, err := st.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	return encoded(w.t, record.Record{Job: j, Work: work})
}

func (w *pastWorld) left(i int) cid.Cid  { return blob.Sum(fmt.Append(nil, "out", i)) }
func (w *pastWorld) input(i int) cid.Cid { return blob.Sum(fmt.Append(nil, "in", i)) }

func (w *pastWorld) core(i int) market.LeaseCore {
	set, err := market.NewKeySet(1, w.cfg.Key.Key())
	if err != nil {
		w.t.Fatal(err)
	}
	p := sign.NewPrivate([32]byte{byte(2 + i%50)}).Key()
	return market.LeaseCore{Version: market.LeaseVersion, Units: 1, Order: market.OrderID{byte(i), byte(i >> 8), 1}, Buyer: w.cfg.Key.Key(), Provider: p, Payout: p,
		VoucherKeys: set.Hash(), Rate: 1_000_000, Cap: 9000, Start: 10, ActivateBefore: 20, End: 9010, RankEpoch: 1, Nonce: market.Nonce{byte(i), byte(i >> 8)}}
}

// journal writes ended jobs as their supervisors leave them.
func (w *pastWorld) journal(jobs ...Job) {
	for i, j := range jobs {
		n := i
		if _, err := fmt.Sscanf(j.ID, "j%d", &n); err != nil {
			w.t.Fatal(err)
		}
		core := w.core(n)
		set, err := market.NewKeySet(1, w.cfg.Key.Key())
		if err != nil {
			w.t.Fatal(err)
		}
		signed := market.Lease{Core: core}
		rec := leases.Record{Job: j.ID, Lease: signed.Marshal(), Keys: set.Marshal(), Route: exchange.RouteDirect, At: j.Created, Active: true, Reason: "the job is done",
			Addrs: []string{"/ip4/192.0.2.1/udp/4001/quic-v1", "/ip6/2001:db8::1/udp/4001/quic-v1"}}
		payer, err := meter.NewPayer(metering.Terms(w.cfg.Genesis, core, set, rec.Escrow, rec.PerUnit, 0))
		for _, turn := range []struct {
			at market.Slot
			ev meter.Event
		}{{15, meter.Started{}}, {16, meter.Stopped{}}, {100_000, meter.Ticked{}}} {
			if err == nil {
				payer, _, err = payer.Step(turn.at, turn.ev)
			}
		}
		if err != nil || payer.State() != meter.PayerSettled || payer.Voucher() == nil {
			w.t.Fatal(payer.State(), err)
		}
		state, err := payer.Marshal()
		if err != nil {
			w.t.Fatal(err)
		}
		puts := []store.Put{
			{Kind: leases.Payers.Kind(), Key: core.ID().String(), Value: state},
			{Kind: trace.Records.Kind(), Key: fmt.Sprintf("%s/%06d", j.ID, 0), Value: encoded(w.t, trace.Step{At: j.Created, Kind: trace.Ordered, Detail: "of " + j.ID})},
			{Kind: record.Records.Kind(), Key: j.ID, Value: encoded(w.t, j)}, {Kind: leases.Records.Kind(), Key: core.ID().String(), Value: encoded(w.t, rec)},
		}
		if err := w.cfg.Store.Write(w.t.Context(), puts...); err != nil {
			w.t.Fatal(err)
		}
	}
}

func encoded(t testing.TB, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// heap is how many bytes what f makes takes.
func heap(f func() any) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// counting is a journal that counts the bytes that are read of each kind.
type counting struct {
	store.Store
	mu   sync.Mutex
	read map[string]int
}

func (c *counting) List(ctx context.Context, kind, prefix string, fn func(key string, value []byte) error) error {
	return c.Store.List(ctx, kind, prefix, func(key string, value []byte) error {
		c.mu.Lock()
		c.read[kind] += len(value)
		c.mu.Unlock()
		return fn(key, value)
	})
}

func (c *counting) Get(ctx context.Context, kind, key string) ([]byte, error) {
	v, err := c.Store.Get(ctx, kind, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[kind] += len(v)
	return v, err
}

// TestAttackEndlessJobs: of jobs that ended long ago little is in memory, and little is read at the start, however many there are.
func TestAttackEndlessJobs(t *testing.T) {
	const jobs, keep, each = 2000, 50, 400 // bytes
	st := &counting{Store: store.NewMemory(), read: map[string]int{}}
	w := newPastWorld(t, st)
	for i := range jobs {
		w.journal(w.ended(i))
	}
	var b *Buyer
	all := heap(func() any { b = w.start(); return b })
	w.tidy(b, keep)
	if n := len(b.jobs); n != keep || b.leases.Len() != keep || b.archive.Len() != jobs-keep {
		t.Errorf("%d jobs and %d leases are in memory, want %d; %d are past", n, b.leases.Len(), keep, b.archive.Len())
	}
	b = nil
	clear(st.read)
	few := heap(func() any { b = w.start(); return b })
	read := 0
	for kind, n := range st.read {
		if read += n; strings.HasPrefix(kind, "past") && kind != "past" {
			t.Errorf("%d bytes of kind %s are read at the start", n, kind)
		}
	}
	t.Logf("%d jobs take %d bytes, %d when they have left memory; %d bytes are read at the start", jobs, all, few, read)
	if full := int(all) / jobs * keep; few > int64(2*full+jobs*each) || read > 2*full+jobs*each {
		t.Errorf("%d past jobs take %d bytes, and %d are read; all took %d", jobs-keep, few, read, all)
	}
}

// tidy takes jobs out of memory as a peer does that runs.
func (w *pastWorld) tidy(b *Buyer, keep int) {
	for _, s := range b.supervisors() {
		if s.Peek().State.Ended() && !s.over() {
			s.Close()
		}
	}
	if err := (retiring{b}).tidy(w.t.Context(), keep); err != nil {
		w.t.Fatal(err)
	}
}

// view is all that a buyer shows of its jobs.
func (w *pastWorld) view(b *Buyer, jobs int) string {
	t, ctx := w.t, w.t.Context()
	must := func(v any, err error) any {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		return v
	}
	view := []any{b.Jobs(), b.Open(), b.States(), b.Anchored()}
	ci := "ci"
	for _, q := range []Query{{Limit: 7}, {Limit: 3, Key: &ci}, {Limit: 5, State: "failed"}, {Limit: 4, Name: "train-3"}, {Limit: 6, Since: w.began.Add(20 * time.Millisecond)}} {
		for {
			p, err := b.List(ctx, q)
			if view = append(view, must(p, err)); p.Next == "" {
				break
			}
			q.After = p.Next
		}
	}
	for i := range jobs {
		id := pastID(i)
		steps, _, err := b.Trace(id, 0)
		view = append(view, must(b.Job(id)), must(b.Receipts(ctx, id)), must(steps, err), must(b.Probes(ctx, id)))
		c := w.left(i)
		view = append(view, b.Uses(c), b.Holds(ci, c), b.Holds("other", c), b.Holds(ci, w.input(i)))
		var log bytes.Buffer
		view = append(view, must(log.String(), b.Log(ctx, id, 0, LogQuery{Follow: true}, &log)))
	}
	blobs, err := b.Blobs()
	view = append(view, len(blobs), must(blobs[w.left(1)], err), blobs[w.input(1)])
	for _, all := range []bool{true, false} {
		report := b.Spending(2, ci, all)
		report.Resets = time.Time{}
		view = append(view, report)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	paid := spending{b}.paidTo(w.core(3).Provider, time.Now())
	view = append(view, paid)
	if paid == 0 && spend.DayOf(w.began) == spend.DayOf(time.Now()) {
		t.Error("nothing was paid to a provider")
	}
	return string(encoded(t, view))
}

// unlike shows where two views do.
func unlike(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	part := func(s string) string { return s[max(0, i-300):min(len(s), i+100)] }
	return fmt.Sprintf("shown is\n%s\nwant\n%s", part(got), part(want))
}

// What a buyer shows and counts is the same whether its jobs are in memory or have left it, and after a restart.
func TestPastJobs(t *testing.T) {
	t.Parallel()
	const jobs, keep = 40, 10
	w := newPastWorld(t, store.NewMemory())
	for i := range jobs {
		w.journal(w.ended(i))
	}
	running := w.ended(jobs)
	running.ID, running.State, running.Created = pastID(jobs), Running, w.began.Add(-time.Hour)
	w.journal(running)
	if err := w.cfg.Store.Write(t.Context(), store.Put{Kind: record.Records.Kind(), Key: running.ID, Value: w.running(running)}, record.Submissions.Encode("ci/again", []byte(pastID(3)))); err != nil {
		t.Fatal(err)
	}
	b := w.start()
	want := w.view(b, jobs)
	if !strings.Contains(want, `"of `+pastID(3)) || len(want) < 10_000 {
		t.Fatalf("all that is shown: %s", want)
	}
	w.tidy(b, keep)
	if len(b.jobs) != keep+1 || b.archive.Len() != jobs-keep || b.jobs[running.ID] == nil {
		t.Fatalf("%d jobs are in memory, %d are past", len(b.jobs), b.archive.Len())
	}
	again := w.start()
	if len(again.jobs) != keep+1 || again.archive.Len() != jobs-keep {
		t.Errorf("after a restart %d jobs are in memory, %d are past", len(again.jobs), again.archive.Len())
	}
	for name, b := range map[string]*Buyer{"past": b, "restarted": again} {
		if got := w.view(b, jobs); got != want && spend.DayOf(w.began) == spend.DayOf(time.Now()) {
			t.Errorf("%s: %s", name, unlike(got, want))
		}
		s, err := b.get(pastID(3)[:len(pastID(3))-1])
		if !errors.Is(err, ErrNoJob) {
			t.Errorf("%s: the beginning of ten: %v, %v", name, s, err)
		}
		if s, err = b.get(pastID(3)); err != nil {
			t.Fatal(err)
		}
		if err := s.Save(t.Context(), func(j *Job) { j.State = Running }); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: a past job is changed: %v", name, err)
		}
		if err := b.Stop(t.Context(), pastID(3)); err != nil {
			t.Errorf("%s: a past job is stopped: %v", name, err)
		}
		j, ok, err := b.submitted(t.Context(), "ci/again")
		_, none, no := b.submitted(t.Context(), "ci/other")
		if !ok || err != nil || j.ID != pastID(3) || none || no != nil {
			t.Errorf("%s: submitted again it is %s, %v; another: %v, %v", name, j.ID, err, none, no)
		}
		var spent, all market.Amount
		for i := range jobs {
			if j := w.ended(i); spend.DayOf(j.Created) == spend.DayOf(time.Now()) {
				if all += j.Owed; j.Key == "ci" {
					spent += j.Owed
				}
			}
		}
		for key, used := range map[string]market.Amount{"ci": spent, "": all} {
			keys := map[string]Limits{"ci": {}, "": {}}
			keys[key] = Limits{PerDay: used + 5}
			if b.Ledger, err = spend.Load(t.Context(), store.NewMemory(), b.cfg.Genesis, keys[""], spending{b}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.AddKey(t.Context(), "ci", keys["ci"]); err != nil {
				t.Fatal(err)
			}
			b.mu.Lock()
			fits := spending{b}.allowed(spend.Request{ID: running.ID, Key: key, Cost: 5, Today: 5}, time.Now())
			over := spending{b}.allowed(spend.Request{ID: running.ID, Key: key, Cost: 6, Today: 6}, time.Now())
			b.mu.Unlock()
			if fits != nil || !errors.Is(over, ErrLimit) {
				t.Errorf("%s: with %d used by key %q: %v, %v", name, used, key, fits, over)
			}
		}
	}
}

// A crash at any write while jobs leave memory, and a journal that fails, lose nothing and count nothing twice.
func TestPastJobsCrash(t *testing.T) {
	t.Parallel()
	const jobs = 2*leaveBatch + 10
	for n := 0; n <= 3; n++ {
		for _, when := range []store.When{store.Before, store.After} {
			disk := store.NewMemory()
			st := store.NewCrashing(disk)
			w := newPastWorld(t, disk)
			for i := range jobs {
				w.journal(w.ended(i))
			}
			want := w.view(w.start(), 3)
			w.cfg.Store = st
			b := w.start()
			for _, s := range b.supervisors() {
				s.Close()
			}
			st.CrashAt(st.Count()+n, when)
			err := retiring{b}.tidy(t.Context(), 0)
			if (err == nil) != (n == 0) {
				t.Errorf("crash at write %d: %v", n, err)
			}
			if in, past := len(b.jobs), b.archive.Len(); in+past != jobs || n > 0 && in != jobs-(n-1)*leaveBatch {
				t.Errorf("crash at write %d: %d jobs are in memory, %d are past", n, in, past)
			}
			w.cfg.Store = disk
			b = w.start()
			if got := w.view(b, 3); got != want && spend.DayOf(w.began) == spend.DayOf(time.Now()) {
				t.Errorf("crash at write %d: %s", n, unlike(got, want))
			}
			if w.tidy(b, 0); len(b.jobs) != 0 || b.archive.Len() != jobs || b.leases.Len() != 0 {
				t.Errorf("crash at write %d: %d jobs stay in memory, %d are past", n, len(b.jobs), b.archive.Len())
			}
		}
	}
}

// holding has money of one job that can still move.
type holding struct {
	pay.Free
	job  string
	kept *[]string
}

func (h holding) LetGo(job string) ([]store.Put, func(bool), bool) {
	return nil, func(gone bool) {
		if !gone {
			*h.kept = append(*h.kept, job)
		}
	}, job != h.job
}

// A job whose money is not settled for good stays in memory, as does one that this process still does something for.
func TestPastJobsWaitForTheirMoney(t *testing.T) {
	t.Parallel()
	st := store.NewCrashing(store.NewMemory())
	w := newPastWorld(t, st)
	for i := range 4 {
		w.journal(w.ended(i))
	}
	b := w.start()
	var kept []string
	b.pay = holding{job: pastID(1), kept: &kept}
	for id, s := range b.jobs {
		if id != pastID(2) {
			s.Close()
		}
	}
	if err := (retiring{b}).tidy(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if len(b.jobs) != 2 || b.jobs[pastID(1)] == nil || b.jobs[pastID(2)] == nil || b.leases.Len() != 2 || len(kept) > 0 {
		t.Errorf("in memory are %v", slices.Collect(maps.Keys(b.jobs)))
	}
	b.pay = holding{kept: &kept}
	st.Cut()
	if err := (retiring{b}).tidy(t.Context(), 0); err == nil || len(b.jobs) != 2 || !slices.Equal(kept, []string{pastID(1)}) {
		t.Errorf("without a journal: %v; in memory are %v, kept is the money of %v", err, slices.Collect(maps.Keys(b.jobs)), kept)
	}
}
