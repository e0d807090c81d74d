package jobs_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
	"pgregory.net/rapid"
)

// world is everything around one job: the rooms of this peer, which a crash clears, and providers, which it does not.
type world struct {
	t    *rapid.T
	s    jobs.State
	disk []byte // the journal's record
	now  jobs.Now
	kind bool // everything works from now on
	log  []string
	checks

	// Rooms. A crash loses them.
	inbox    []jobs.Event
	pending  []jobs.Effect
	gangs    []*worldGang
	renewing []jobs.RenewLease
	follows  map[jobs.Exec]bool // executions of which the run room reports

	// Providers and the journals of other rooms.
	leases []*worldLease
	execs  []*worldExec
	spent  map[[2]uint32]market.Amount // replicas
	ids    uint32
	others uint64 // epochs of command that were given out
	theirs []byte // standing of another supervisor
}

type worldLease struct {
	jobs.Lease
	ended bool // EndLease arrived
}

type worldGang struct {
	jobs.OrderGang
	placed, cancelled bool
}

type worldExec struct {
	jobs.Exec
	running, ended, stopping bool
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: jobs.Now{Time: epoch}, others: 1}
	w.follows, w.spent = map[jobs.Exec]bool{}, map[[2]uint32]market.Amount{}
	w.checks = newChecks(w)
	p := drawParams(t)
	owner := !p.Guarded || !rapid.Bool().Draw(t, "guardian")
	s, fx := jobs.New(p, owner, w.now)
	w.accept(jobs.State{}, nil, s, fx)
	if !owner {
		w.others++
		_ = w.step(jobs.CommandGranted{Epoch: w.others})
	}
	return w
}

func drawParams(t *rapid.T) jobs.Params {
	p := jobs.Params{
		Count: uint32(rapid.IntRange(1, 4).Draw(t, "count")), Rounds: uint32(rapid.IntRange(1, 3).Draw(t, "rounds")),
		Restart: jobs.Restart{
			Max: uint32(rapid.IntRange(0, 4).Draw(t, "max")), OnFailure: rapid.Bool().Draw(t, "on failure"),
			Backoff: time.Second, MostBackoff: 5 * time.Minute,
		},
		Queue: 20 * time.Second, Run: 2 * time.Minute, Grace: 2 * time.Second, LostAfter: 5 * time.Second,
		Pull:  time.Duration(rapid.IntRange(0, 1).Draw(t, "pull")) * 30 * time.Second,
		Start: time.Duration(rapid.IntRange(0, 1).Draw(t, "start")) * time.Minute,
		Rate:  market.Rate(rapid.IntRange(0, 2).Draw(t, "rate") * 1_000_000), SlotMillis: 100, Interval: 10, Seed: 7,
	}
	p.Reduce = p.Rounds > 1 && rapid.Bool().Draw(t, "reduce")
	cost, _ := p.Rate.Owed(1220)
	p.Budget = cost * market.Amount(p.Count) * market.Amount(rapid.IntRange(2, 6).Draw(t, "budget")) / 2
	switch rapid.IntRange(0, 3).Draw(t, "kind of job") {
	case 1:
		p.Rounds, p.Reduce = 1, false
		p.Cluster = &jobs.Engine{
			HeadEnds: rapid.Bool().Draw(t, "head ends"), Binds: rapid.Bool().Draw(t, "binds"),
			HeadFirst: rapid.Bool().Draw(t, "head first"),
			Autostop:  time.Duration(rapid.IntRange(0, 1).Draw(t, "autostop")) * time.Minute,
		}
	case 0:
		p.Idle = time.Duration(rapid.IntRange(0, 1).Draw(t, "idle")) * time.Minute
	case 2:
		p.Guarded, p.Standbys = true, uint32(rapid.IntRange(0, 2).Draw(t, "standbys"))
	case 3:
		p.Checked, p.Rounds, p.Reduce = true, 1, false
	}
	return p
}

func (w *world) logf(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) fatalf(format string, args ...any) {
	for _, line := range w.log[max(0, len(w.log)-60):] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

// step delivers one event, journals the state, and hands the effects over.
func (w *world) step(ev jobs.Event) error {
	next, fx, err := w.s.Step(w.now, ev)
	w.logf("%v %T%+v: %s, %v", w.now.Time.Sub(epoch), ev, ev, next.Phase, err)
	w.repeatable(ev, next, fx, err)
	if err != nil {
		return err
	}
	w.accept(w.s, ev, next, fx)
	return nil
}

func (w *world) accept(was jobs.State, ev jobs.Event, next jobs.State, fx []jobs.Effect) {
	for _, e := range fx {
		w.logf("      %T%+v", e, e)
	}
	b, err := next.Encode()
	if err != nil {
		w.fatalf("the state cannot be encoded: %v", err)
	}
	if _, err := jobs.Decode(b); err != nil {
		w.fatalf("the journal cannot be read: %v\n%s", err, b)
	}
	w.s, w.disk = next, b
	w.pending = append(w.pending, fx...)
	w.check(was, ev, next, fx)
}

// crash loses all that is volatile. Effects that were not carried out are among it.
func (w *world) crash() {
	w.logf("CRASH")
	w.inbox, w.pending, w.gangs, w.renewing, w.follows = nil, nil, nil, nil, map[jobs.Exec]bool{}
	s, err := jobs.Decode(w.disk)
	if err != nil {
		w.fatalf("the journal cannot be read: %v", err)
	}
	w.s = s
	_ = w.step(jobs.Recovered{Leases: w.facts()})
}

// facts are all leases, as the lease room has them.
func (w *world) facts() (out []jobs.Lease) {
	for _, l := range w.leases {
		out = append(out, l.Lease)
	}
	return out
}

func (w *world) coin(label string, n int) bool {
	return !w.kind && rapid.IntRange(0, n-1).Draw(w.t, label) == 0
}

func (w *world) pick(label string, n int) int { return rapid.IntRange(0, n-1).Draw(w.t, label) }

func (w *world) post(ev ...jobs.Event) { w.inbox = append(w.inbox, ev...) }

func (w *world) sleep(d time.Duration) {
	w.now.Time = w.now.Time.Add(d)
	w.now.Slot = market.Slot(w.now.Time.Sub(epoch) / (100 * time.Millisecond))
}

func (w *world) newLease(rank, epoch uint32, slots uint64) *worldLease {
	w.ids++
	var id market.LeaseID
	binary.BigEndian.PutUint32(id[:], w.ids)
	id[4] = 1
	p := w.s.Params
	most, err := p.Rate.Owed(slots)
	if err != nil {
		w.fatalf("%v", err)
	}
	l := &worldLease{Lease: jobs.Lease{
		ID: id, Chain: id, Rank: rank, Epoch: epoch, Provider: sign.Key{byte(w.ids), byte(w.ids >> 8), 1},
		End: w.now.Slot + market.Slot(slots), Rate: p.Rate, Most: most, Open: true, Usable: true,
	}}
	w.leases = append(w.leases, l)
	return l
}

func (w *world) exec(x jobs.Exec) *worldExec {
	for _, k := range w.execs {
		if k.Exec == x {
			return k
		}
	}
	k := &worldExec{Exec: x}
	w.execs = append(w.execs, k)
	return k
}

// do carries one effect out.
func (w *world) do(e jobs.Effect) {
	switch e := e.(type) {
	case jobs.OrderGang:
		w.gangs = append(w.gangs, &worldGang{OrderGang: e})
	case jobs.CancelGang:
		for _, g := range w.gangs {
			g.cancelled = g.cancelled || g.Gang == e.Gang
		}
	case jobs.RenewLease:
		w.renewing = append(w.renewing, e)
	case jobs.LeaveLeases:
		w.renewing = nil
	case jobs.EndLease:
		w.endLease(e.Chain)
	case jobs.EngageGuardians:
		if w.coin("nobody guards", 6) {
			w.post(jobs.EngagementFailed{Reason: "nobody"})
		} else {
			w.post(jobs.GuardiansEngaged{Epoch: w.others})
		}
	case jobs.AcquireCommand:
		w.grant()
	case jobs.CloseAccount:
		w.post(jobs.AccountCounted{Owed: 1, Receipts: uint64(len(w.leases))}, jobs.EscrowReleased{Paid: 1})
	case jobs.AnchorReceipts:
		w.post(jobs.ReceiptsAnchored{Tx: "tx"})
	default:
		w.doWork(e)
	}
}

func (w *world) doWork(e jobs.Effect) {
	switch e := e.(type) {
	case jobs.StartExecution:
		k := w.exec(e.Exec)
		k.running = !k.ended && w.usable(e.Lease)
		k.ended = k.ended || !k.running
		w.follows[e.Exec] = true
	case jobs.StopExecution:
		w.exec(e.Exec).stopping = true
		w.follows[e.Exec] = true
	case jobs.GatherOutputs:
		if w.coin("gathering fails", 8) {
			w.post(jobs.ExecutionLost{Exec: e.Exec, Cause: jobs.CauseBroken, Reason: "outputs"})
		} else {
			w.post(jobs.OutputsGathered{Exec: e.Exec, Outputs: []jobs.File{{Path: "/out"}}})
		}
	case jobs.ReclaimExecution:
		if w.exec(e.Exec).ended && !w.coin("reclaim finds nothing", 3) {
			w.post(jobs.ExecutionExited{Exec: e.Exec})
		} else {
			w.post(jobs.ExecutionLost{Exec: e.Exec, Cause: jobs.CauseAbsent, Reason: "gone"})
		}
	case jobs.PollProvider:
		if w.coin("poll fails", 4) {
			w.post(jobs.ProviderSilent(e))
		} else {
			w.post(jobs.ProviderHeard(e))
		}
	case jobs.SetFrozen:
		if w.coin("freeze refused", 4) {
			w.post(jobs.FreezeRefused{Exec: e.Exec, Reason: "no"})
		}
	case jobs.Reduce:
		if w.coin("reduce fails", 10) {
			w.post(jobs.ReduceFailed{Round: e.Round, Code: jobs.CodeProgram, Reason: "reduce"})
		} else {
			w.post(jobs.Reduced{Round: e.Round, Carry: jobs.File{CID: "x"}})
		}
	case jobs.CheckResults:
		for i := range w.s.Ranks {
			w.post(jobs.ReplicaWanted{Rank: uint32(i), Attempt: 1, Most: market.Amount(w.pick("replica", 3) * 1000)})
		}
	case jobs.BuyReplica:
		key := [2]uint32{e.Rank, e.Attempt}
		if _, known := w.spent[key]; !known {
			w.spent[key] = e.Budget
		}
		w.spent[key] /= 2
		w.post(jobs.ReplicaEnded{Rank: e.Rank, Attempt: e.Attempt, Owed: w.spent[key]},
			jobs.ResultJudged{Rank: e.Rank, Disputed: w.coin("disputed", 5)})
	case jobs.RefuseReplica:
		w.post(jobs.ResultJudged{Rank: e.Rank})
	}
}

func (w *world) usable(chain market.LeaseID) bool {
	return slices.ContainsFunc(w.leases, func(l *worldLease) bool { return l.Chain == chain && l.Usable })
}

// halt stops all programs under a chain.
func (w *world) halt(chain market.LeaseID) {
	for _, k := range w.execs {
		if k.Lease == chain && k.running {
			k.running, k.ended = false, true
		}
	}
}

// endLease pays no further interval of a chain.
func (w *world) endLease(chain market.LeaseID) {
	for _, l := range w.leases {
		if l.Chain == chain {
			if l.Open {
				l.Most = l.Most * 2 / 3
			}
			l.ended, l.Usable = true, false
			w.post(jobs.LeaseCost{Lease: l.ID, Most: l.Most, Settled: !l.Open})
		}
	}
	w.renewing = slices.DeleteFunc(w.renewing, func(n jobs.RenewLease) bool {
		if n.Chain == chain {
			w.post(jobs.RenewalRefused{Of: n.Of, Reason: "the lease is over"})
		}
		return n.Chain == chain
	})
	w.halt(chain)
}
