package jobs_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// keeps has the events of checkpoints happen to rank 0 of a job that runs.
type keeps struct {
	t     *testing.T
	s     jobs.State
	fx    []jobs.Effect
	lease byte
}

func (k *keeps) step(ev jobs.Event) {
	k.t.Helper()
	var err error
	if k.s, k.fx, err = k.s.Step(jobs.Now{Time: epoch.Add(time.Minute), Slot: 1000}, ev); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeps) exec() jobs.Exec {
	r := k.s.Ranks[0]
	return jobs.Exec{Rank: 0, Lease: r.Lease, Seq: r.Seq}
}

func (k *keeps) keep(number uint64, c string) {
	k.step(jobs.CheckpointKept{Exec: k.exec(), Number: number, File: jobs.File{CID: c, Bytes: 1, Tree: true}})
}

// move loses the rank's lease, and gives it another. It returns the checkpoints from which the rank continues.
func (k *keeps) move(cause jobs.Cause) (from []string) {
	k.t.Helper()
	of := k.s.Ranks[0].Lease
	k.step(jobs.ExecutionLost{Exec: k.exec(), Cause: cause, Reason: "r"})
	k.step(jobs.LeaseCost{Lease: of, Most: 1, Settled: true})
	var order jobs.OrderGang
	for at := epoch.Add(time.Minute); order.Gang == 0; at = at.Add(time.Second) {
		for _, f := range k.fx {
			if o, ok := f.(jobs.OrderGang); ok {
				order = o
			}
		}
		var err error
		if k.s, k.fx, err = k.s.Step(jobs.Now{Time: at, Slot: 1000}, jobs.Ticked{}); err != nil {
			k.t.Fatal(err)
		}
		for _, f := range k.fx {
			if o, ok := f.(jobs.OrderGang); ok {
				order = o
			}
		}
		if at.After(epoch.Add(10 * time.Minute)) {
			k.t.Fatalf("no order: %+v", k.s.Ranks[0])
		}
	}
	k.lease++
	id := market.LeaseID{9, k.lease}
	k.step(jobs.OrderPlaced{Gang: order.Gang, Order: market.OrderID{9, k.lease}})
	most, _ := k.s.Params.Rate.Owed(order.Slots)
	k.step(jobs.GangFormed{Gang: order.Gang, Leases: []jobs.Lease{{
		ID: id, Chain: id, Rank: 0, Epoch: order.Seats[0].Epoch, End: 1000 + market.Slot(order.Slots),
		Rate: k.s.Params.Rate, Most: most, Open: true, Usable: true,
	}}})
	for _, f := range k.fx {
		if s, ok := f.(jobs.StartExecution); ok {
			for _, c := range s.From {
				from = append(from, c.File.CID)
			}
		}
	}
	return from
}

func newKeeps(t *testing.T) *keeps {
	p := plain(1)
	p.Run, p.Restart.Max = time.Hour, 10
	k := &keeps{t: t, s: running(t, p)}
	if k.s.Ranks[0].State != jobs.RankRunning {
		k.step(jobs.Ticked{})
	}
	return k
}

// A rank that moves continues from its newest checkpoint, and the one before is in reserve.
func TestCheckpointMoves(t *testing.T) {
	t.Parallel()
	k := newKeeps(t)
	for i, c := range []string{"a", "b", "c"} {
		k.keep(uint64(i+1), c)
	}
	old := k.exec()
	if from := k.move(jobs.CauseSilent); !slices.Equal(from, []string{"c", "b"}) {
		t.Errorf("continues from %v", from)
	}
	before := k.s.Ranks[0].Checkpoints
	k.step(jobs.CheckpointKept{Exec: old, Number: 9, File: jobs.File{CID: "late"}})
	if got := k.s.Ranks[0].Checkpoints; !slices.Equal(got, before) {
		t.Errorf("an execution that is over left %v", got)
	}
	if _, _, err := k.s.Step(jobs.Now{Time: epoch.Add(time.Hour)}, jobs.CheckpointKept{Exec: k.exec()}); !errors.Is(err, jobs.ErrEvent) {
		t.Errorf("a checkpoint without a file: %v", err)
	}
	again, err := jobs.Decode(encode(t, k.s))
	if err != nil || len(again.Ranks[0].Checkpoints) != 2 || again.Ranks[0].Checkpoints[0].Number != 3 {
		t.Errorf("journalled are %+v, %v", again.Ranks[0].Checkpoints, err)
	}
	x := k.exec()
	k.step(jobs.ExecutionSeen{Exec: x, Stage: jobs.StageHealthy})
	k.step(jobs.ExecutionExited{Exec: x})
	k.step(jobs.OutputsGathered{Exec: x})
	if got := k.s.Ranks[0].Checkpoints; got != nil {
		t.Errorf("a rank that is done has %v", got)
	}
}

// A checkpoint with which no provider begins, because its maker made it so, does not end the job: after two of them the
// rank continues from the one before, and then anew.
func TestAttackCheckpointThatNobodyTakes(t *testing.T) {
	t.Parallel()
	k := newKeeps(t)
	k.step(jobs.ExecutionSeen{Exec: k.exec(), Stage: jobs.StageHealthy})
	k.keep(1, "good")
	k.keep(2, "evil")
	for i, want := range [][]string{{"evil", "good"}, {"evil", "good"}, {"good"}, {"good"}, nil} {
		if from := k.move(jobs.CauseRefused); !slices.Equal(from, want) {
			t.Fatalf("move %d: continues from %v, want %v", i, from, want)
		}
	}
	k = newKeeps(t)
	k.keep(1, "good")
	for i := range 3 { // their providers went: the checkpoint is not to blame
		if from := k.move(jobs.CauseSilent); !slices.Equal(from, []string{"good"}) {
			t.Fatalf("move %d: continues from %v", i, from)
		}
	}
}
