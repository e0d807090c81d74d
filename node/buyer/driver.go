package buyer

import (
	"context"
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/webhook"
)

// driver carries out the effects of a job's machine, and shows the job's state. Its executions, orders and
// leases report events to the machine.
type driver struct {
	s      *supervisor
	b      *Buyer
	execs  *execs
	orders *orders
	chains chains
	guards *command
	loaded *jobs.State // as the journal has it, until the machine is made

	extending sync.Mutex // one extension, or scaling, at a time; taken before the buyer's mu

	// Under the supervisor's mu:
	phase      jobs.Phase
	bases      []base   // by rank
	reasons    []string // by rank: why its last lease was lost
	noted      int      // lines of the machine that are in the trace
	candidate  [32]byte // digest of the newest state, and of the one that the journal has
	written    [32]byte
	upTo       int                          // lines of the trace that the journal has with the machine's last write
	deliveries map[State][]webhook.Delivery // that the journal has with it
	reducing   context.CancelFunc           // ends the reduce program; nil: none runs
	asked      jobs.Req                     // last request of the API that waits for its answer
	waiting    map[jobs.Req]chan<- error    // for the answers
	idling     context.CancelFunc           // ends the watch for a cluster that nobody uses; optional
	// mandate is of work under the present command of a job with guardians; made with the first.
	mandate context.Context
	revoke  context.CancelFunc
}

func newDriver(s *supervisor, j Job) *driver {
	n := len(j.Ranks)
	d := &driver{s: s, b: s.b, bases: make([]base, n), reasons: make([]string, n),
		deliveries: map[State][]webhook.Delivery{}, waiting: map[jobs.Req]chan<- error{}}
	d.execs = &execs{driver: d, following: make([]*following, n)}
	d.orders = &orders{driver: d, gangs: map[jobs.GangID]context.CancelFunc{}, offers: map[market.LeaseID]offered{}}
	d.chains, d.guards = chains{d}, &command{driver: d}
	for i, r := range j.Ranks {
		d.bases[i] = base{jobs.Exec{Rank: uint32(i), Lease: r.Lease, Seq: r.Seq}, r.LogBase}
	}
	return d
}

// load reads the state of the job's machine as an earlier process left it.
func (d *driver) load(record []byte) error {
	st, err := jobs.Decode(record)
	d.loaded = &st
	return err
}

// base is where the log of an execution begins in its rank's log.
type base struct {
	exec jobs.Exec
	at   int64
}

// baseLocked is where the log of rank i's execution in a state begins in the rank's log, also if it is not followed
// yet. The supervisor's mu is held.
func (d *command) baseLocked(st jobs.State, i int) int64 {
	r := &st.Ranks[i]
	if b := d.bases[i]; b.exec == (jobs.Exec{Rank: uint32(i), Lease: r.Lease, Seq: r.Seq}) {
		return b.at
	}
	return d.s.logs[i].Len()
}

// projectLocked returns the job as its user sees it in a state of its machine. The values that the machine does not
// have stay. The supervisor's mu is held.
func (d *driver) projectLocked(st jobs.State) Job {
	d.resizeLocked(len(st.Ranks))
	was := d.s.job.Ranks
	j := d.s.job.Clone()
	j.Follow(d.b.cfg.Genesis, st, d.reasons)
	for i := range j.Ranks {
		k, before := &j.Ranks[i], Rank{}
		if i < len(was) {
			before = was[i]
		}
		if o, ok := d.orders.offers[k.Lease]; ok && k.Lease != before.Lease {
			k.Route, k.Units = o.route, o.units
		}
		if k.State != RankRunning {
			continue
		}
		x := jobs.Exec{Rank: uint32(i), Lease: st.Ranks[i].Lease, Seq: k.Seq}
		if fresh := d.bases[i].exec != x; fresh || before.State != RankRunning || before.Seq != k.Seq {
			if k.Live = (Live{}); fresh {
				d.bases[i] = base{x, d.s.logs[i].Len()}
			}
		}
		k.LogBase = d.bases[i].at
	}
	return j
}

// record notes a step for the journal: the job as its user sees it, the machine's state, and new lines of the trace.
func (d *driver) record(b *journal.Batch, old, next task, effects []any) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	at, more := old.notes, false
	for _, f := range effects {
		switch f := f.(type) {
		case records:
			b.Add(f...)
			more = more || len(f) > 0
		case *amendment:
			if more = true; !f.made { // else the write of it failed, and is repeated
				j := d.s.job.Clone()
				f.change(&j)
				d.s.job, f.made = j, true
			}
		case jobs.Note:
			if at >= d.noted { // else the write of it failed, and is repeated
				d.noted = at + 1
				d.noteLocked(next.State, f)
			}
			at, more = at+1, true
		}
	}
	state, err := next.State.Encode()
	if err != nil { // a State always encodes
		d.b.cfg.Log.Error("a job's state cannot be journalled", "job", d.s.trace.Job, "err", err)
	}
	sum := sha256.Sum256(state)
	news := sum != d.written || sum != d.candidate
	if d.candidate = sum; !news && !more {
		return
	}
	j := d.projectLocked(next.State)
	rec := record.Record{Job: j}
	if next.Phase != jobs.Ended {
		rec.Work = state
	}
	record.Records.Put(b, j.ID, rec)
	if j.State != record.StateOf(old.State) {
		told, puts := d.b.tellHooks(j)
		d.deliveries[j.State] = told
		b.Add(puts...)
	}
	var steps []store.Put
	steps, d.upTo = d.s.trace.Pending()
	b.Add(steps...)
}

// noteLocked adds a line of the job's machine to its trace. The supervisor's mu is held.
func (d *driver) noteLocked(st jobs.State, n jobs.Note) {
	step := trace.Step{At: time.Now(), Kind: trace.Kind(n.Kind), Detail: strings.TrimSuffix(n.Detail, ": ")}
	if i := n.Rank; i >= 0 && i < len(st.Ranks) {
		step.Rank, step.Provider = &i, st.Ranks[i].Provider.String()
		if n.Kind == jobs.NoteLost {
			d.reasons[i] = n.Detail
		}
	}
	if n.Kind == jobs.NoteLeased {
		step.Took = d.orders.took
	}
	d.s.trace.Add(step)
}

// changed takes in a state of the job's machine that is in the journal.
func (d *driver) changed(st jobs.State) {
	d.s.mu.Lock()
	before := d.s.job.State
	d.s.job, d.phase = d.projectLocked(st), st.Phase
	n := len(st.Ranks)
	d.s.leases = d.s.leases[:n:n]
	d.s.plans.trim(n)
	for i := range d.s.leases {
		if d.s.leases[i] = nil; !st.Ranks[i].Lease.IsZero() && st.Phase < jobs.Settling {
			d.s.leases[i] = d.chains.chainLocked(st.Ranks[i].Lease)
		}
	}
	d.execs.goneLocked(n)
	for i, f := range d.execs.following {
		r := &st.Ranks[i]
		if f != nil && (r.State != jobs.RankRunning || f.exec.Lease != r.Lease || f.exec.Seq != r.Seq) {
			f.cancel()
			d.execs.following[i] = nil
		}
	}
	if d.reducing != nil && st.Phase != jobs.Reducing {
		d.reducing()
		d.reducing = nil
	}
	if d.s.job.Cluster != nil {
		d.s.plans.ring()
	}
	d.watchUseLocked(st)
	d.guards.followLocked(st)
	d.written = d.candidate
	j, told, upTo := d.s.job, d.deliveries[d.s.job.State], d.upTo
	delete(d.deliveries, d.s.job.State)
	d.s.mu.Unlock()
	d.s.trace.Written(upTo)
	d.b.hooks.Added(told...)
	d.s.trace.Poke()
	if st.Phase < jobs.Settling {
		return
	}
	for _, l := range d.s.ranklogs() { // who follows them need not wait until all is paid
		l.End()
	}
	if j.State != before {
		d.b.cfg.Log.Info("job's work is over", "job", j.ID, "state", j.State, "outcome", j.Outcome, "reason", j.Reason)
	}
	if st.Phase == jobs.Ended {
		d.s.trace.Retire()
	}
	if st.Phase == jobs.Ended && !st.Params.Guarded { // its guardians are dismissed first
		d.s.close()
		d.b.hasEnded()
	}
}

// closeAccount takes back the job's deposits less its debts, and anchors its receipts.
func (d *driver) closeAccount() {
	run := d.commanded()
	d.b.wg.Go(func() {
		for {
			err := d.settleWork(run)
			if err == nil || run.Err() != nil {
				return
			}
			d.b.cfg.Log.Error("settling failed; trying again", "job", d.s.trace.Job, "err", err)
			if pause(run, journalRetry) != nil {
				return
			}
		}
	})
}

// settleWork settles the job once.
func (d *driver) settleWork(ctx context.Context) error {
	leases := d.s.bought()
	if d.s.guard != nil {
		if err := d.s.signLast(ctx, leases); err != nil {
			return err
		}
	}
	due := &bill{s: d.s, leases: leases}
	if _, err := due.Owed(ctx); err != nil {
		return err
	}
	paid, anchored, err := d.b.pay.Settle(ctx, d.s.trace.Job, payables(leases), due)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	total, receipts := due.counted()
	if total > 0 {
		amount := d.b.cfg.Genesis.FormatAmount(paid)
		detail := amount + " are the providers', claimed or to be claimed"
		d.s.trace.Add(trace.Step{At: time.Now(), Kind: trace.Paid, Detail: detail})
	}
	d.s.mu.Lock()
	d.s.job.Transactions = anchored
	d.s.mu.Unlock()
	d.post(
		jobs.AccountCounted{Owed: total, Receipts: receipts},
		jobs.ReceiptsAnchored{Tx: append(anchored, "")[0]},
		jobs.EscrowReleased{Paid: paid},
	)
	return nil
}
