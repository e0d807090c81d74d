package buyer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/store"
)

// accepted is the driver of a new job with so many ranks, and its machine after its first step.
func accepted(t *testing.T, ranks uint32) (*driver, task, []any) {
	t.Helper()
	b := newPastWorld(t, store.NewMemory()).start()
	j := Job{ID: record.NewID(), Spec: pastSpec("train"), State: Queued, Created: time.Now(), Ranks: make([]Rank, ranks)}
	j.Spec.Count = ranks
	s, err := b.newSupervisor(j, trace.New(b.cfg.Store, j.ID))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, l := range s.ranklogs() {
			l.End()
		}
	})
	p, err := j.Params(b.cfg.Genesis, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w, effects, err := task{}.Step(machine.Now{Time: time.Now(), Slot: 1}, event{begin: &beginning{p, true, j.Created}})
	if err != nil {
		t.Fatal(err)
	}
	return s.driver, w, effects
}

// answerOf is the answer of a machine to a request, among its effects.
func answerOf(effects []any) error {
	for _, f := range effects {
		if a, ok := f.(jobs.Answer); ok {
			return a.Err
		}
	}
	return nil
}

// The state comes first among the effects of a step, so that what is carried out finds the job as it is by then.
func TestTaskStep(t *testing.T) {
	t.Parallel()
	_, w, effects := accepted(t, 2)
	first, ok := effects[0].(changed)
	if !ok || first.state.Phase != jobs.Placing || w.Done() {
		t.Fatalf("effects %T %+v", effects[0], effects)
	}
	now := machine.Now{Time: time.Now(), Slot: 1}
	if _, _, err := w.Step(now, event{ev: jobs.OrderPlaced{Gang: 7, Order: market.OrderID{1}}}); !errors.Is(err, jobs.ErrDropped) {
		t.Errorf("an order that the machine does not know: %v", err)
	}
	puts := []store.Put{{Kind: "order", Key: "k", Value: []byte("v")}}
	same, effects, err := w.Step(now, event{puts: puts})
	if err != nil || same.Phase != w.Phase || len(effects[1].(records)) != 1 {
		t.Errorf("records alone: %+v, %v", effects, err)
	}
	stopped, effects, err := w.Step(now, event{ev: jobs.StopRequested{Req: 3}})
	if err != nil || stopped.Outcome.Result != jobs.ResultStopped || stopped.notes != w.notes+1 {
		t.Fatalf("%+v, %v", stopped.Outcome, err)
	}
	if err := answerOf(effects); err != nil {
		t.Errorf("the request to stop is answered by %v", err)
	}
}

// A step whose write fails is noted for the journal again. It amends the job and adds to its trace once all the same. A
// step that changes nothing costs no write.
func TestRecordAgain(t *testing.T) {
	t.Parallel()
	d, w, effects := accepted(t, 1)
	var b journal.Batch
	d.record(&b, task{}, w, effects)
	if b.Len() != 1 {
		t.Fatalf("%d records of a new job", b.Len())
	}
	d.changed(w.State)

	now := machine.Now{Time: time.Now(), Slot: 1}
	made := 0
	ev := event{ev: jobs.StopRequested{}, amend: &amendment{change: func(j *Job) { made++; j.Warning += "!" }}}
	next, effects, err := w.Step(now, ev)
	if err != nil {
		t.Fatal(err)
	}
	var lost, kept journal.Batch
	d.record(&lost, w, next, effects)
	d.record(&kept, w, next, effects)
	d.changed(next.State)
	steps, _, err := d.s.trace.After(0)
	if err != nil || made != 1 || d.s.snapshot().Warning != "!" || len(steps) != 1 || steps[0].Kind != trace.Ended {
		t.Errorf("amended %d times, %q, steps %+v, %v", made, d.s.snapshot().Warning, steps, err)
	}
	if lost.Len() != 2 || kept.Len() != 2 {
		t.Errorf("%d and %d records of the job and its trace", lost.Len(), kept.Len())
	}
	again, effects, err := next.Step(now, event{ev: jobs.Ticked{}})
	if err != nil {
		t.Fatal(err)
	}
	var none journal.Batch
	d.record(&none, next, again, effects)
	if none.Len() != 0 {
		t.Errorf("%d records of a step that changes nothing", none.Len())
	}
}

// A job is read from its record as it was, with the state of its machine until it has ended.
func TestJobRecord(t *testing.T) {
	t.Parallel()
	d, w, effects := accepted(t, 1)
	var b journal.Batch
	d.record(&b, task{}, w, effects)
	ctx := context.Background()
	if err := b.Commit(ctx, d.b.cfg.Store); err != nil {
		t.Fatal(err)
	}
	rec, err := record.Records.Get(ctx, d.b.cfg.Store, d.s.trace.Job)
	if err != nil || rec.ID != d.s.trace.Job || rec.State != Matching {
		t.Fatalf("%+v, %v", rec.Job, err)
	}
	if err := d.load(rec.Work); err != nil || d.loaded.Phase != jobs.Placing {
		t.Errorf("%+v, %v", d.loaded, err)
	}
	if err := d.load([]byte(`{"version":99}`)); err == nil {
		t.Error("a state of another version was read")
	}
}

// A gang fails for good only if nobody fits: the machine orders again after all other failures.
func TestFailureOf(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want jobs.Failure
	}{
		"unfit":   {t.Context(), &exchange.Unplaced{Reason: "none"}, jobs.GangUnfit},
		"raced":   {t.Context(), &exchange.Unplaced{Raced: true}, jobs.GangShort},
		"thin":    {t.Context(), &exchange.Unplaced{Thin: true}, jobs.GangShort},
		"far":     {t.Context(), &exchange.Unplaced{Unsettled: true}, jobs.GangShort},
		"journal": {t.Context(), errors.New("disk full"), jobs.GangShort},
		"dropped": {t.Context(), jobs.ErrDropped, jobs.GangDropped},
		"stopped": {over, errors.New("cancelled"), jobs.GangDropped},
	} {
		if got := failureOf(c.ctx, 4, c.err); got.Why != c.want || got.Gang != 4 || got.Reason == "" && name != "raced" && name != "thin" && name != "far" {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
}
