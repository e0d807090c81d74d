package jobs_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
	"pgregory.net/rapid"
)

// draw draws the fields of events: mostly such as the state has, at times others.
type draw struct {
	t *rapid.T
	s jobs.State
}

func (d draw) n(label string, n int) int { return rapid.IntRange(0, n-1).Draw(d.t, label) }

func (d draw) yes(label string) bool { return rapid.Bool().Draw(d.t, label) }

func (d draw) rank() uint32 { return uint32(d.n("rank", len(d.s.Ranks)+1)) }

func (d draw) gang() jobs.GangID { return jobs.GangID(d.n("gang", int(d.s.Gang)+2)) }

func (d draw) lease() market.LeaseID {
	ids := []market.LeaseID{{}, {9, 9}}
	for _, l := range d.s.Leases {
		ids = append(ids, l.ID)
	}
	return rapid.SampledFrom(ids).Draw(d.t, "lease")
}

func (d draw) exec() jobs.Exec {
	i := d.rank()
	x := jobs.Exec{Rank: i, Lease: d.lease(), Seq: uint64(d.n("seq", 4))}
	if int(i) < len(d.s.Ranks) && d.n("current", 4) > 0 {
		x.Lease, x.Seq = d.s.Ranks[i].Lease, d.s.Ranks[i].Seq
	}
	return x
}

func (d draw) amount() market.Amount {
	return market.Amount(rapid.SampledFrom([]uint64{0, 1, 100, 5000, 1 << 62, 1<<64 - 1}).Draw(d.t, "amount"))
}

func (d draw) fact() jobs.Lease {
	id := market.LeaseID{byte(d.n("id", 8)), 5}
	l := jobs.Lease{
		ID: id, Chain: id, Rank: d.rank(), Epoch: uint32(d.n("epoch", 5)), Provider: sign.Key{id[0]},
		End: market.Slot(d.n("end", 5000)), Rate: market.Rate(d.n("rate", 3)) * 1_000_000, Most: d.amount(), Open: d.yes("open"), Usable: d.yes("usable"),
	}
	if d.yes("successor") {
		l.Chain = d.lease()
	}
	return l
}

func (d draw) facts() (out []jobs.Lease) {
	for _, l := range d.s.Leases {
		if d.n("reported", 4) > 0 {
			out = append(out, l)
		}
	}
	for range d.n("more", 3) {
		out = append(out, d.fact())
	}
	return out
}

func (d draw) file() jobs.File {
	files := []jobs.File{{}, {Path: "/out", CID: "c", Bytes: 1}, {CID: "../c"}, {Path: "\x00"}, {Bytes: -1}}
	return rapid.SampledFrom(files).Draw(d.t, "file")
}

func (d draw) cause() jobs.Cause { return jobs.Cause(d.n("cause", 9) + 1) }

// event draws any event.
func (d draw) event() jobs.Event {
	const requests, rooms, executions, hooks = 5, 7, 11, 14
	switch n := d.n("event", requests+rooms+executions+hooks); {
	case n < requests:
		return d.request(n)
	case n < requests+rooms:
		return d.room(n - requests)
	case n < requests+rooms+executions:
		return d.execution(n - requests - rooms)
	default:
		return d.hook(n - requests - rooms - executions)
	}
}

func (d draw) request(n int) jobs.Event {
	req := jobs.Req(d.n("req", 3))
	switch n {
	case 0:
		return jobs.StopRequested{Req: req}
	case 1:
		return jobs.PauseRequested{Req: req, Pause: d.yes("pause")}
	case 2:
		by := rapid.SampledFrom([]time.Duration{-1, 0, time.Second, time.Hour, 1 << 62}).Draw(d.t, "by")
		return jobs.ExtendRequested{Req: req, By: by, Budget: d.amount()}
	case 3:
		return jobs.ScaleRequested{Req: req, Count: uint32(d.n("count", 6)), Budget: d.amount()}
	}
	return jobs.ScaleRequested{Req: req, Count: rapid.SampledFrom([]uint32{0, 2, 1 << 31}).Draw(d.t, "count")}
}

func (d draw) room(n int) jobs.Event {
	switch n {
	case 0:
		return jobs.OrderPlaced{Gang: d.gang(), Order: market.OrderID{byte(d.n("order", 3))}}
	case 1:
		formed := jobs.GangFormed{Gang: d.gang()}
		for range d.n("leases", 4) {
			formed.Leases = append(formed.Leases, d.fact())
		}
		return formed
	case 2:
		return jobs.GangFailed{Gang: d.gang(), Why: jobs.Failure(d.n("why", 4) + 1), Reason: "r"}
	case 3:
		return jobs.LeaseLost{Chain: d.lease(), Cause: d.cause(), Reason: "r"}
	case 4:
		return jobs.LeaseCost{Lease: d.lease(), Most: d.amount(), Settled: d.yes("settled")}
	case 5:
		return jobs.LeaseRenewed{Of: d.lease(), Next: d.fact()}
	}
	return jobs.RenewalRefused{Of: d.lease(), Reason: "r"}
}

func (d draw) execution(n int) jobs.Event {
	x := d.exec()
	switch n {
	case 0, 1:
		return jobs.ExecutionSeen{Exec: x, Stage: jobs.Stage(d.n("stage", 4) + 1)}
	case 2:
		exit := jobs.Exit{Code: d.n("code", 2), Broken: d.yes("broken"), Hopeless: d.yes("hopeless")}
		return jobs.ExecutionExited{Exec: x, Exit: exit}
	case 3:
		return jobs.OutputsGathered{Exec: x, Outputs: []jobs.File{d.file()}}
	case 4:
		return jobs.ExecutionLost{Exec: x, Cause: d.cause(), Reason: "r"}
	case 5:
		return jobs.ProviderSilent{Exec: x}
	case 6:
		return jobs.ProviderHeard{Exec: x}
	case 7:
		return jobs.FreezeRefused{Exec: x}
	case 8:
		return jobs.Reduced{Round: uint32(d.n("round", 3)), Carry: d.file()}
	case 9:
		return jobs.ReduceFailed{Round: uint32(d.n("round", 3)), Code: jobs.CodeProgram}
	}
	return jobs.CheckpointKept{Exec: x, File: d.file()}
}

func (d draw) hook(n int) jobs.Event {
	switch n {
	case 0:
		return jobs.JobUse{Busy: d.yes("busy")}
	case 1:
		return jobs.ReplicaWanted{Rank: d.rank(), Attempt: uint32(d.n("attempt", 2)), Most: d.amount()}
	case 2:
		return jobs.ReplicaEnded{Rank: d.rank(), Attempt: uint32(d.n("attempt", 2)), Owed: d.amount()}
	case 3:
		return jobs.ResultJudged{Rank: d.rank(), Outputs: []jobs.File{d.file()}, Disputed: d.yes("disputed")}
	case 4:
		return jobs.GuardiansEngaged{Epoch: uint64(d.n("epoch", 5))}
	case 5:
		return jobs.EngagementFailed{}
	case 6:
		return jobs.CommandGranted{Epoch: uint64(d.n("epoch", 9)), Leases: d.facts()}
	case 7:
		return jobs.CommandLost{Epoch: uint64(d.n("epoch", 9))}
	case 8:
		return jobs.AccountCounted{Owed: d.amount(), Receipts: uint64(d.n("receipts", 2))}
	case 9:
		return jobs.EscrowReleased{Paid: d.amount()}
	case 10:
		return jobs.ReceiptsAnchored{Tx: "t"}
	case 11:
		return jobs.Recovered{Leases: d.facts()}
	}
	return jobs.Ticked{}
}

// TestAnyEvent sends events that no room would send, in any order. Step refuses them or takes them in: it never panics,
// the journal can be read, and no deadline is in the past.
func TestAnyEvent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := jobs.Now{Time: epoch}
		owner := rapid.Bool().Draw(t, "owner")
		s, _ := jobs.New(drawParams(t), owner, now)
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			now.Time = now.Time.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			now.Slot = market.Slot(now.Time.Sub(epoch) / (100 * time.Millisecond))
			ev := draw{t, s}.event()
			before := jobs.DeepCopy(s)
			next, fx, err := s.Step(now, ev)
			if !reflect.DeepEqual(before, s) {
				t.Fatalf("Step changed its receiver at %T%+v", ev, ev)
			}
			if err != nil {
				known := errors.Is(err, jobs.ErrEvent) || errors.Is(err, jobs.ErrDropped)
				if !known || fx != nil || !reflect.DeepEqual(next, s) {
					t.Fatalf("%T%+v: %v, with %v", ev, ev, err, fx)
				}
				continue
			}
			if at := next.Next(); !at.IsZero() && !at.After(now.Time) {
				t.Fatalf("%T%+v: the next deadline %v is not after %v", ev, ev, at, now.Time)
			}
			b, err := next.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jobs.Decode(b); err != nil {
				t.Fatalf("%T%+v: the journal cannot be read: %v\n%s", ev, ev, err, b)
			}
			s = next
		}
	})
}

// TestStaleExecutions checks that reports about other executions than the current ones change nothing.
func TestStaleExecutions(t *testing.T) {
	t.Parallel()
	s := running(t, plain(2))
	now := jobs.Now{Time: epoch.Add(time.Second), Slot: 1010}
	x := jobs.Exec{Rank: 1, Lease: s.Ranks[1].Lease, Seq: 1}
	for _, x := range []jobs.Exec{
		{Rank: 0, Lease: x.Lease, Seq: 1}, {Rank: 1, Lease: x.Lease, Seq: 2}, {Rank: 1, Lease: x.Lease}, {Rank: 1, Seq: 1},
		{Rank: 2, Lease: x.Lease, Seq: 1}, {Rank: 1<<32 - 1, Lease: x.Lease, Seq: 1},
	} {
		for _, ev := range []jobs.Event{
			jobs.ExecutionSeen{Exec: x, Stage: jobs.StageHealthy}, jobs.ExecutionExited{Exec: x}, jobs.OutputsGathered{Exec: x},
			jobs.ExecutionLost{Exec: x, Cause: jobs.CauseRefused}, jobs.ProviderSilent{Exec: x}, jobs.ProviderHeard{Exec: x},
			jobs.FreezeRefused{Exec: x}, jobs.CheckpointKept{Exec: x, File: jobs.File{CID: "k"}},
		} {
			next, fx, err := s.Step(now, ev)
			if err != nil || fx != nil || !reflect.DeepEqual(next, s) {
				t.Errorf("%T of %+v: effects %v, error %v", ev, x, fx, err)
			}
		}
	}
}

// TestInvalidEvents checks that events which cannot have happened are refused and change nothing.
func TestInvalidEvents(t *testing.T) {
	t.Parallel()
	cluster := plain(2)
	cluster.Cluster = &jobs.Engine{}
	s := running(t, cluster)
	now := jobs.Now{Time: epoch.Add(time.Second), Slot: 1010}
	x := jobs.Exec{Rank: 1, Lease: s.Ranks[1].Lease, Seq: 1}
	gathering, _, err := s.Step(now, jobs.ExecutionExited{Exec: x})
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		s    jobs.State
		ev   jobs.Event
		want error
	}{
		{s, jobs.ScaleRequested{Count: 0}, jobs.ErrEvent}, {s, jobs.ScaleRequested{Count: jobs.MaxRanks + 1}, jobs.ErrEvent},
		{s, jobs.ExtendRequested{}, jobs.ErrEvent}, {s, jobs.ExtendRequested{By: -1}, jobs.ErrEvent},
		{s, jobs.ExtendRequested{By: 1<<63 - 1}, jobs.ErrEvent},
		{s, jobs.OrderPlaced{Gang: 1, Order: market.OrderID{1}}, jobs.ErrDropped},
		{s, jobs.OrderPlaced{Gang: 9, Order: market.OrderID{1}}, jobs.ErrDropped},
		{s, jobs.CheckpointKept{Exec: x, File: jobs.File{Bytes: -1}}, jobs.ErrEvent},
		{gathering, jobs.OutputsGathered{Exec: x, Outputs: []jobs.File{{CID: "/"}}}, jobs.ErrEvent},
		{gathering, jobs.OutputsGathered{Exec: x, Outputs: make([]jobs.File, 17)}, jobs.ErrEvent},
	}
	for _, c := range cases {
		next, fx, err := c.s.Step(now, c.ev)
		if !errors.Is(err, c.want) || fx != nil || !reflect.DeepEqual(next, c.s) {
			t.Errorf("%T%+v: effects %v, error %v, want %v", c.ev, c.ev, fx, err, c.want)
		}
	}
}
