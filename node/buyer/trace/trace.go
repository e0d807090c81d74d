// Package trace keeps the decision trace of a job: its steps, numbered from 0. They are in memory while the job runs,
// and permanently in the journal.
package trace

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
)

// Step is one entry of a job's decision trace: a question, an answer, a choice or a refusal, with the provider and the
// reason. `starling why` prints them.
type Step struct {
	At       time.Time     `json:"at"`
	Kind     Kind          `json:"kind"`
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

// Kind is the kind of a step.
type Kind string

// The kinds of steps.
const (
	Ordered    Kind = "ordered"    // an order was published
	Asked      Kind = "asked"      // an order was sent to a known provider directly
	Quoted     Kind = "quoted"     // a quote arrived
	Declined   Kind = "declined"   // a provider answered that it will not quote
	Silent     Kind = "silent"     // a provider did not answer in time and was dropped
	Blocked    Kind = "blocked"    // a provider is on the user's block list
	Infeasible Kind = "infeasible" // a quote or offer that does not fit the order
	Chosen     Kind = "chosen"     // selection picked a provider for a rank
	Measured   Kind = "measured"   // the paths between the members of a future cluster were measured
	Held       Kind = "held"       // a provider set units aside
	Signed     Kind = "signed"     // a provider signed a lease
	Activated  Kind = "activated"  // a provider took the first payment of a lease
	Refused    Kind = "refused"    // a provider refused to reserve, sign or activate
	Released   Kind = "released"   // units were released
	Leased     Kind = "leased"     // a lease is active
	Started    Kind = "started"    // an execution runs
	Exited     Kind = "exited"     // an execution ended
	Restarted  Kind = "restarted"  // a program is started again on its lease
	Restored   Kind = "restored"   // a program continues from a checkpoint, or cannot
	Packed     Kind = "packed"     // a provider's checkpoint is missing or false, and why
	Extended   Kind = "extended"   // a lease was made longer
	Unextended Kind = "unextended" // a lease was not made longer, and why
	Lost       Kind = "lost"       // a provider was lost
	Away       Kind = "away"       // this peer was away, and resumes the running programs
	Verified   Kind = "verified"   // a result was checked, or is being checked
	Probed     Kind = "probed"     // the units of a rank are shared, wrong or broken
	Round      Kind = "round"      // a round was reduced
	Guarded    Kind = "guarded"    // peers guard the job
	Supervised Kind = "supervised" // another peer supervises the job from now on, or requests it
	Funded     Kind = "funded"     // money was set aside on chain, or was not
	Refunded   Kind = "refunded"   // unearned deposits were refunded
	Paid       Kind = "paid"       // a payment is on chain
	Ready      Kind = "ready"      // the head of a cluster answers
	Scaled     Kind = "scaled"     // a cluster has another size
	Ended      Kind = "ended"      // the job ended
)

// maxSteps bounds the trace of one job. A later step replaces the last one.
const maxSteps = 4096

// Records are the steps in the journal, by job and number.
var Records = journal.Define[string, Step]("trace")

func key(job string, n int) string { return fmt.Sprintf("%s/%06d", job, n) }

// Trace is the trace of one job. It may be used by many goroutines.
type Trace struct {
	// Job is the id of the job.
	Job     string
	journal journal.Store

	mu      sync.Mutex
	next    int // the journal has the steps before it
	steps   []Step
	wake    chan struct{} // closed and replaced at every step
	retired bool          // the job has ended: the journal has the steps, the memory does not
}

// New returns an empty trace.
func New(s journal.Store, job string) *Trace {
	return &Trace{journal: s, Job: job, wake: make(chan struct{})}
}

// journalled reads the steps in the journal.
func (t *Trace) journalled(ctx context.Context) (steps []Step, err error) {
	err = Records.List(ctx, t.journal, t.Job+"/", func(_ string, s Step) error {
		steps = append(steps, s)
		return nil
	})
	return steps, err
}

// Load continues the trace that an earlier process journalled.
func (t *Trace) Load(ctx context.Context) error {
	steps, err := t.journalled(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps, t.next = steps, len(steps)
	return err
}

// Add appends steps. The trace explains, it decides nothing: steps are in memory at once and reach the journal with the
// job's next change.
func (t *Trace) Add(steps ...Step) {
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

// Poke wakes the followers of the job after a change without a step.
func (t *Trace) Poke() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notify()
}

func (t *Trace) notify() {
	close(t.wake)
	t.wake = make(chan struct{})
}

// Pending returns the records of the steps that are not in the journal, and the number to report to Written after the
// write.
func (t *Trace) Pending() ([]store.Put, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []store.Put
	for i := t.next; i < len(t.steps); i++ {
		if p, err := Records.Encode(key(t.Job, i), t.steps[i]); err == nil { // a Step always encodes
			out = append(out, p)
		}
	}
	return out, len(t.steps)
}

// Written notes that the steps before n are in the journal.
func (t *Trace) Written(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = max(t.next, n)
}

// Retire drops the steps of an ended job from memory. Later readers read the journal, and later steps are dropped.
func (t *Trace) Retire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps, t.retired = nil, true
}

// After returns the steps from n on and a channel that closes at the next one.
func (t *Trace) After(n int) ([]Step, <-chan struct{}, error) {
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
