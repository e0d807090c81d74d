package run

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/webhook"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// still is a clock whose slot is not known.
type still struct{}

func (still) Now(time.Time) (market.Slot, error) { return 0, errors.New("no chain") }

// silent reports nothing.
type silent struct{}

func (silent) Of(record.Job) ([]webhook.Delivery, []store.Put) { return nil, nil }
func (silent) Added(...webhook.Delivery)                       {}

// idle carries out nothing.
type idle struct{}

func (idle) Changed(jobs.State) {}
func (idle) Carry(jobs.Effect)  {}
func (idle) Ended()             {}

// accepted is a new job with so many ranks, and its machine after its first step.
func accepted(t *testing.T, ranks uint32) (*Job, task, []any) {
	t.Helper()
	r := New(Config{Genesis: market.Genesis{SlotMillis: 100, IntervalSlots: 10}, Store: store.NewMemory(),
		Clock: still{}, News: silent{}, Dir: t.TempDir(), Log: p2ptest.Quiet()})
	rec := record.Job{ID: record.NewID(), State: record.Queued, Created: time.Now(), Ranks: make([]record.Rank, ranks)}
	rec.Spec = job.Job{
		Name: "train", Runtime: job.RuntimeDocker, Image: "docker.io/library/python@sha256:" + strings.Repeat("0123456789abcdef", 4),
		Args: []string{"python"}, Count: ranks, Resources: job.Resources{Class: "cpu", Units: 1},
		Timeouts: job.Timeouts{Queue: time.Minute, Run: time.Hour}, Payment: job.Payment{Free: true},
	}
	j, err := r.Open(rec, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	j.Serve(idle{})
	t.Cleanup(j.EndLogs)
	p, err := rec.Params(r.cfg.Genesis, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	next, effects, err := task{}.Step(machine.Now{Time: time.Now(), Slot: 1},
		Event{begin: &Beginning{p, true, rec.Created}})
	if err != nil {
		t.Fatal(err)
	}
	return j, next, effects
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
	first, ok := effects[0].(Changed)
	if !ok || first.State.Phase != jobs.Placing || w.Done() {
		t.Fatalf("effects %T %+v", effects[0], effects)
	}
	now := machine.Now{Time: time.Now(), Slot: 1}
	if _, _, err := w.Step(now, Event{Ev: jobs.OrderPlaced{Gang: 7, Order: market.OrderID{1}}}); !errors.Is(err, jobs.ErrDropped) {
		t.Errorf("an order that the machine does not know: %v", err)
	}
	puts := []store.Put{{Kind: "order", Key: "k", Value: []byte("v")}}
	same, effects, err := w.Step(now, Event{Puts: puts})
	if err != nil || same.Phase != w.Phase || len(effects[1].(records)) != 1 {
		t.Errorf("records alone: %+v, %v", effects, err)
	}
	stopped, effects, err := w.Step(now, Event{Ev: jobs.StopRequested{Req: 3}})
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
	d.shown.record(&b, task{}, w, effects)
	if b.Len() != 1 {
		t.Fatalf("%d records of a new job", b.Len())
	}
	d.shown.changed(w.State)

	now := machine.Now{Time: time.Now(), Slot: 1}
	made := 0
	ev := Event{Ev: jobs.StopRequested{}, Amend: Amend(func(j *record.Job) { made++; j.Warning += "!" })}
	next, effects, err := w.Step(now, ev)
	if err != nil {
		t.Fatal(err)
	}
	var lost, kept journal.Batch
	d.shown.record(&lost, w, next, effects)
	d.shown.record(&kept, w, next, effects)
	d.shown.changed(next.State)
	steps, _, err := d.Trace.After(0)
	if err != nil || made != 1 || d.Snapshot().Warning != "!" || len(steps) != 1 || steps[0].Kind != trace.Ended {
		t.Errorf("amended %d times, %q, steps %+v, %v", made, d.Snapshot().Warning, steps, err)
	}
	if lost.Len() != 2 || kept.Len() != 2 {
		t.Errorf("%d and %d records of the job and its trace", lost.Len(), kept.Len())
	}
	again, effects, err := next.Step(now, Event{Ev: jobs.Ticked{}})
	if err != nil {
		t.Fatal(err)
	}
	var none journal.Batch
	d.shown.record(&none, next, again, effects)
	if none.Len() != 0 {
		t.Errorf("%d records of a step that changes nothing", none.Len())
	}
}

// A job is read from its record as it was, with the state of its machine until it has ended.
func TestJobRecord(t *testing.T) {
	t.Parallel()
	d, w, effects := accepted(t, 1)
	var b journal.Batch
	d.shown.record(&b, task{}, w, effects)
	ctx := context.Background()
	if err := b.Commit(ctx, d.runner.cfg.Store); err != nil {
		t.Fatal(err)
	}
	rec, err := record.Records.Get(ctx, d.runner.cfg.Store, d.ID)
	if err != nil || rec.ID != d.ID || rec.State != record.Matching {
		t.Fatalf("%+v, %v", rec.Job, err)
	}
	if err := d.Load(rec.Work); err != nil || d.loaded.Phase != jobs.Placing {
		t.Errorf("%+v, %v", d.loaded, err)
	}
	if err := d.Load([]byte(`{"version":99}`)); err == nil {
		t.Error("a state of another version was read")
	}
}
