package buyer

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/node/store"
)

// Step is one entry of a job's decision trace: what was asked, answered,
// chosen or refused, by whom and why. `starling why` prints them.
type Step struct {
	At       time.Time     `json:"at"`
	Kind     StepKind      `json:"kind"`
	Provider string        `json:"provider,omitempty"`
	Route    string        `json:"route,omitempty"` // of a quote: direct or gossip
	Rank     *int          `json:"rank,omitempty"`
	Price    string        `json:"price,omitempty"`
	Took     time.Duration `json:"took,omitempty"` // nanoseconds
	Detail   string        `json:"detail,omitempty"`
}

// String is the step as one line, without its time.
func (s Step) String() string {
	line := string(s.Kind)
	if s.Rank != nil {
		line += fmt.Sprintf(" rank %d", *s.Rank)
	}
	if s.Provider != "" {
		line += " " + s.Provider[:min(8, len(s.Provider))]
	}
	for _, f := range []string{s.Route, s.Price} {
		if f != "" {
			line += " " + f
		}
	}
	if s.Took > 0 {
		line += " in " + s.Took.Round(10*time.Microsecond).String()
	}
	if s.Detail != "" {
		line += ": " + s.Detail
	}
	return line
}

// StepKind says what a trace step tells of.
type StepKind string

// What a job's trace tells of.
const (
	StepOrdered    StepKind = "ordered"    // an order was published
	StepAsked      StepKind = "asked"      // a known provider was asked directly
	StepQuoted     StepKind = "quoted"     // a quote came in
	StepDeclined   StepKind = "declined"   // a provider answered that it will not quote
	StepSilent     StepKind = "silent"     // a provider did not answer in time and was dropped
	StepBlocked    StepKind = "blocked"    // a provider is on the user's block list
	StepInfeasible StepKind = "infeasible" // a quote or offer that does not fit the order
	StepChosen     StepKind = "chosen"     // selection picked a provider for a rank
	StepMeasured   StepKind = "measured"   // the paths between those who would be a cluster's members were measured
	StepHeld       StepKind = "held"       // a provider set units aside
	StepSigned     StepKind = "signed"     // a provider signed a lease
	StepActivated  StepKind = "activated"  // a provider took the first payment of a lease
	StepRefused    StepKind = "refused"    // a provider refused to reserve, sign or activate
	StepReleased   StepKind = "released"   // units were given back
	StepLeased     StepKind = "leased"     // a lease is active
	StepStarted    StepKind = "started"    // an execution runs
	StepExited     StepKind = "exited"     // an execution ended
	StepRestarted  StepKind = "restarted"  // a program is started again on its lease
	StepExtended   StepKind = "extended"   // a lease was made longer
	StepUnextended StepKind = "unextended" // a lease was not made longer, and why
	StepLost       StepKind = "lost"       // a provider was lost
	StepAway       StepKind = "away"       // this peer was away, and goes on with what runs
	StepVerified   StepKind = "verified"   // a result was checked, or is being checked
	StepProbed     StepKind = "probed"     // what a rank runs on is shared, wrong or broken
	StepRound      StepKind = "round"      // a round was reduced
	StepGuarded    StepKind = "guarded"    // peers guard the job
	StepSupervised StepKind = "supervised" // somebody else supervises the job from now on, or wants to
	StepFunded     StepKind = "funded"     // money was set aside on chain, or was not
	StepRefunded   StepKind = "refunded"   // what was set aside and not earned came back
	StepPaid       StepKind = "paid"       // a payment is on chain
	StepReady      StepKind = "ready"      // the head of a cluster answers
	StepScaled     StepKind = "scaled"     // a cluster has another size
	StepEnded      StepKind = "ended"      // the job ended
)

// maxSteps bounds the trace of one job; what comes later replaces the last one.
const maxSteps = 4096

// trace appends steps to the journal and wakes those who follow the job.
type trace struct {
	store store.Store
	job   string

	mu      sync.Mutex
	next    int
	steps   []Step
	wake    chan struct{} // closed and replaced at every step
	retired bool          // the job has ended: the journal has the steps, the memory does not
}

const kindTrace = "trace"

func traceKey(job string, n int) string { return fmt.Sprintf("%s/%06d", job, n) }

func newTrace(st store.Store, job string) *trace {
	return &trace{store: st, job: job, wake: make(chan struct{})}
}

// journalled reads what the journal has of the trace.
func (t *trace) journalled(ctx context.Context) (steps []Step, err error) {
	err = t.store.List(ctx, kindTrace, t.job+"/", func(key string, value []byte) error {
		var s Step
		if err := json.Unmarshal(value, &s); err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
		steps = append(steps, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the trace of job %s: %w", t.job, err)
	}
	return steps, nil
}

// load takes up the trace where an earlier process left it.
func (t *trace) load(ctx context.Context) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps, err = t.journalled(ctx)
	t.next = len(t.steps)
	return err
}

// add appends steps to the trace. The trace explains, it decides nothing: it is
// kept in memory at once and reaches the journal with the job's next change.
func (t *trace) add(steps ...Step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.retired {
		return
	}
	for _, s := range steps {
		if len(t.steps) >= maxSteps {
			t.steps = t.steps[:maxSteps-1]
			t.next = min(t.next, maxSteps-1)
		}
		t.steps = append(t.steps, s)
	}
	t.notify()
}

// poke wakes those who follow the job: it changed without a step.
func (t *trace) poke() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notify()
}

func (t *trace) notify() {
	close(t.wake)
	t.wake = make(chan struct{})
}

// puts returns what the journal does not have yet, and how far that goes.
func (t *trace) puts() ([]store.Put, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []store.Put
	for i := t.next; i < len(t.steps); i++ {
		b, err := json.Marshal(t.steps[i])
		if err != nil {
			continue // a Step always marshals
		}
		out = append(out, store.Put{Kind: kindTrace, Key: traceKey(t.job, i), Value: b})
	}
	return out, len(t.steps)
}

// wrote marks the steps before n as journalled.
func (t *trace) wrote(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = max(t.next, n)
}

// retire lets the steps of an ended job go; whoever asks for them reads the journal.
func (t *trace) retire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps, t.retired = nil, true
}

// after returns the steps from n on and a channel that closes at the next one.
func (t *trace) after(n int) ([]Step, <-chan struct{}, error) {
	from := func(steps []Step) []Step { return append([]Step(nil), steps[min(max(n, 0), len(steps)):]...) }
	t.mu.Lock()
	steps, wake, retired := from(t.steps), t.wake, t.retired
	t.mu.Unlock()
	if retired {
		old, err := t.journalled(context.Background())
		if err != nil {
			return nil, nil, err
		}
		steps = from(old)
	}
	return steps, wake, nil
}
