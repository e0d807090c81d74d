package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

const (
	// verifyAtOnce is how many ranks of a job are checked at a time, so that the replicas of one job leave room for
	// others.
	verifyAtOnce = 4
	// verifySlack is how much longer than a job's own times a replica is waited for: its last receipt, and the chain.
	verifySlack = 5 * time.Minute
	// verifyPoll is how often the chain is asked for a block, and a replica how far it is.
	verifyPoll = 250 * time.Millisecond
	// mostPolls slows down: so many polls lie between two attempts at most.
	mostPolls = 32
)

// Verified is how far the result of one rank is checked.
type Verified struct {
	State    replica.State    `json:"state,omitempty"`   // empty: its provider has not committed to it yet
	Verdict  *replica.Verdict `json:"verdict,omitempty"` // so far
	Replicas []string         `json:"replicas,omitempty"`
	Evidence string           `json:"evidence,omitempty"` // id of the proof that providers signed different results
	Machine  json.RawMessage  `json:"machine,omitempty"`  // replica.Check
}

// ended reports whether no more will be known.
func (v Verified) ended() bool { return v.State != "" && v.State.Ended() }

// Text says in words how far it is: "replicated, equal", "mismatch: 4Hf2kQ9z differs".
func (v Verified) Text() string {
	why := ""
	if v.Verdict != nil && v.Verdict.Reason != "" {
		why = ": " + v.Verdict.Reason
	}
	switch v.State {
	case "", replica.Unchecked:
		return "unchecked"
	case replica.Replicating:
		return "being replicated"
	case replica.NotDrawn:
		return "not drawn"
	case replica.Equal:
		return "replicated, equal"
	case replica.Differs:
		var names []string
		for _, i := range v.Verdict.Wrong {
			names = append(names, v.Verdict.Results[i].Provider.Short())
		}
		return "mismatch: " + strings.Join(names, ", ") + " differs"
	case replica.Undecided:
		return "mismatch, undecided" + why
	}
	return "not checked" + why
}

// VerifyText says in words how far a job's results are checked; "" for one that asks for no checks.
func (j Job) VerifyText() string {
	if r := j.Replica; r != nil {
		return fmt.Sprintf("replica of %s, rank %d", r.Job, r.Rank)
	}
	var texts []string
	counts := map[string]int{}
	for _, v := range j.Verified {
		t := v.Text()
		if counts[t]++; counts[t] == 1 {
			texts = append(texts, t)
		}
	}
	if len(j.Verified) > 1 {
		for i, t := range texts {
			texts[i] = fmt.Sprintf("%d %s", counts[t], t)
		}
	}
	return strings.Join(texts, "; ")
}

// Unchecked reports whether results of the job are held back: not all checks have ended.
func (j Job) Unchecked() bool {
	return slices.ContainsFunc(j.Verified, func(v Verified) bool { return !v.ended() }) && (!j.State.Ended() || j.State == Succeeded)
}

// verify takes the check of rank i from where the journal has it to its end.
func (s *supervisor) verify(ctx context.Context, i int) error {
	v := s.snapshot().Verified[i]
	if v.ended() {
		return nil
	}
	c, todo, err := s.beginCheck(ctx, i, v)
	if err != nil {
		return err
	}
	for {
		var ev replica.Event
		state := v.Machine
		for _, e := range todo {
			switch e := e.(type) {
			case replica.Persist:
				state = e.State
			case replica.Ended:
				return s.judge(ctx, i, state, e.Verdict)
			case replica.AskBeacon:
				if err = s.noteCheck(ctx, i, state, c); err == nil {
					ev, err = s.awaitBlock(ctx, e.From, c)
				}
			case replica.Replicate:
				if err = s.noteCheck(ctx, i, state, c); err == nil {
					ev, err = s.replicate(ctx, i, e, c)
				}
			}
			if err != nil {
				return err
			}
		}
		now, err := s.b.cfg.Slots.Now(time.Now())
		if err != nil {
			return err
		}
		if c, todo, err = c.Step(now, ev); err != nil {
			return err
		}
		if len(todo) == 0 {
			todo = c.Resume()
		}
		v = s.snapshot().Verified[i]
	}
}

// beginCheck restores the check of rank i, or begins it with its provider's signed result.
func (s *supervisor) beginCheck(ctx context.Context, i int, v Verified) (replica.Check, []replica.Effect, error) {
	if v.Machine != nil {
		c, err := replica.Restore(v.Machine)
		return c, c.Resume(), err
	}
	first, err := s.signed(ctx, i)
	if err != nil {
		return replica.Check{}, nil, err
	}
	j := s.snapshot()
	now, err := s.b.cfg.Slots.Now(time.Now())
	if err != nil {
		return replica.Check{}, nil, err
	}
	patience := s.b.cfg.Genesis.SlotsIn(j.Spec.Timeouts.Queue + j.Spec.Timeouts.Run + verifySlack)
	c, todo, err := replica.New(replica.Terms{
		Params: replica.DefaultParams(patience), Trust: s.b.trust.Of(first.Provider),
		Buyer: replica.Party{Provider: s.b.self, Owner: s.b.cfg.Owner}, Nonce: replica.Nonce(j.Nonce),
	}, first.Committed, now)
	if errors.Is(err, replica.ErrTerms) { // its own provider: there is nobody to deceive
		return c, []replica.Effect{replica.Ended{Verdict: replica.Verdict{State: replica.Unverified, Results: []replica.Committed{first.Committed}, Right: -1,
			Reason: "it was computed by a provider of the buyer's own"}}}, nil
	}
	return c, todo, err
}

// noteCheck journals where the check of rank i stands.
func (s *supervisor) noteCheck(ctx context.Context, i int, state []byte, c replica.Check) error {
	verdict := c.Verdict()
	old := s.snapshot().Verified[i]
	if string(old.Machine) == string(state) {
		return nil
	}
	s.trace.Add(Step{At: time.Now(), Kind: StepVerified, Rank: &i, Provider: verdict.Results[0].Provider.String(), Detail: Verified{State: verdict.State, Verdict: &verdict}.Text()})
	return s.save(ctx, func(j *Job) {
		x := &j.Verified[i]
		x.State, x.Verdict, x.Machine = verdict.State, &verdict, state
	})
}

// late reports whether a check has waited long enough.
func (s *supervisor) late(c replica.Check) bool {
	now, err := s.b.cfg.Slots.Now(time.Now())
	return err == nil && now >= c.Wake()
}

// awaitBlock waits for the block that decides.
func (s *supervisor) awaitBlock(ctx context.Context, from market.Slot, c replica.Check) (replica.Event, error) {
	for {
		b, err := s.b.cfg.Blocks.Block(ctx, from)
		if err == nil {
			return replica.BeaconSeen{Beacon: replica.Beacon{Slot: b.Slot, Hash: b.Hash}}, nil
		}
		if !errors.Is(err, chain.ErrNotFound) {
			s.b.cfg.Log.Debug("the block that draws is not known", "slot", from, "err", err)
		}
		if s.late(c) {
			return replica.Ticked{}, nil
		}
		if err := pause(ctx, max(verifyPoll, time.Duration(s.b.cfg.Genesis.SlotMillis)*time.Millisecond)); err != nil {
			return nil, err
		}
	}
}

// replicate has rank i's work done once more, by a job of its own, and returns the result. The job is found by the
// attempt, so that after a crash it is not bought again.
func (s *supervisor) replicate(ctx context.Context, i int, e replica.Replicate, c replica.Check) (replica.Event, error) {
	if err := pause(ctx, verifyPoll*time.Duration(min(mostPolls, e.Attempt*e.Attempt))); err != nil {
		return nil, err
	}
	id, err := s.replicaJob(ctx, i, e, c)
	if err != nil {
		if !errors.Is(err, ErrRefused) && !errors.Is(err, ErrFunds) && !errors.Is(err, ErrLimit) {
			return nil, err
		}
		return replica.ReplicaFailed{Attempt: e.Attempt, Reason: err.Error()}, nil
	}
	of, err := s.b.get(id)
	if err != nil {
		return nil, err
	}
	for {
		j := of.snapshot()
		if outcome := j.Outcome; j.State == Settling || j.State.Ended() {
			if j.State.Ended() {
				outcome = j.State
			}
			return of.replicaEnded(ctx, e.Attempt, outcome)
		}
		if s.late(c) {
			return replica.Ticked{}, s.b.Stop(ctx, id)
		}
		if err := pause(ctx, verifyPoll); err != nil {
			return nil, err
		}
	}
}

// replicaJob is the id of the job that does rank i's work for an attempt, submitted once. It waits while there is no
// room for one more.
func (s *supervisor) replicaJob(ctx context.Context, i int, e replica.Replicate, c replica.Check) (string, error) {
	j := s.snapshot()
	spec, err := replicaOf(j, i)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrRefused, err)
	}
	for {
		if spec.Payment.Budget, err = s.driver.grant(ctx, i, e.Attempt, spec.Payment.Budget); err != nil {
			return "", err
		}
		of, err := s.b.Submit(ctx, Submission{
			Spec: spec, Key: j.Key, Once: fmt.Sprintf("replica/%s/%d/%d", j.ID, i, e.Attempt),
			replica: &Replica{Job: j.ID, Rank: i, Count: len(j.Ranks), Attempt: e.Attempt, Seed: e.Seed, Not: e.Not},
		})
		if err == nil {
			return of.ID, s.save(ctx, func(j *Job) {
				if x := &j.Verified[i]; !slices.Contains(x.Replicas, of.ID) {
					x.Replicas = append(slices.Clone(x.Replicas), of.ID)
				}
			})
		}
		if !errors.Is(err, errRoom) || s.late(c) {
			return "", err
		}
		if err := pause(ctx, verifyPoll*mostPolls); err != nil {
			return "", err
		}
	}
}

// replicaEnded is the event that the end of a replica's job makes.
func (s *supervisor) replicaEnded(ctx context.Context, attempt uint32, outcome State) (replica.Event, error) {
	j := s.snapshot()
	if outcome == Succeeded {
		r, err := s.signed(ctx, 0)
		return replica.ReplicaCommitted{Attempt: attempt, Result: r.Committed}, err
	}
	e := replica.ReplicaFailed{Attempt: attempt, Reason: fmt.Sprintf("replica %s %s: %s", j.ID, outcome, j.Reason)}
	for _, l := range s.bought() {
		owner, _ := s.b.bond(ctx, l.Core.Provider, l.Core.Payout)
		e.By = replica.Party{Provider: l.Core.Provider, Owner: owner}
	}
	return e, nil
}

// judge applies a verdict, in one write: the result that is right, the records of who gave them, and the outcome where
// there is none.
func (s *supervisor) judge(ctx context.Context, i int, state []byte, v replica.Verdict) error {
	gave := s.given(ctx, i, v)
	evidence, err := s.dissent(ctx, gave)
	if err != nil {
		return err
	}
	x := Verified{State: v.State, Verdict: &v, Evidence: evidence, Machine: state}
	s.trace.Add(Step{At: time.Now(), Kind: StepVerified, Rank: &i, Provider: v.Results[0].Provider.String(), Detail: x.Text()})
	var right []Output
	if v.Right > 0 && slices.Contains(v.Wrong, 0) && gave[v.Right] != nil {
		right = gave[v.Right].outputs
	}
	disputed := ""
	if v.Right < 0 && differ(v.Results) {
		disputed = fmt.Sprintf("rank %d: %d providers gave different results and no majority agrees", i, len(v.Results))
	}
	if err := s.b.trust.Judge(v, func(changes []store.Put) error {
		return s.driver.judge(ctx, i, x, right, disputed, changes)
	}); err != nil {
		return err
	}
	for _, w := range v.Wrong {
		if l := s.b.leases.Get(v.Results[w].Lease); l != nil {
			s.b.cfg.Reputation.Failed(l.Core, l.Loss(time.Time{}))
		}
		s.b.cfg.Log.Warn("a provider gave a result that a majority of others differs from", "job", s.trace.Job, "rank", i,
			"provider", v.Results[w].Provider, "evidence", evidence)
	}
	return nil
}

// differ reports whether two results are not the same.
func differ(all []replica.Committed) bool {
	return slices.ContainsFunc(all, func(r replica.Committed) bool { return r.Output != all[0].Output })
}

// given are the results of a verdict with their signatures; nil for one that is not available any more.
func (s *supervisor) given(ctx context.Context, i int, v replica.Verdict) []*signedResult {
	out := make([]*signedResult, len(v.Results))
	take := func(of *supervisor, rank int) {
		r, err := of.signed(ctx, rank)
		if err != nil {
			s.b.cfg.Log.Info("a result that was checked is not there any more", "job", of.trace.Job, "err", err)
			return
		}
		if at := slices.IndexFunc(v.Results, func(c replica.Committed) bool { return c.Lease == r.Lease }); at >= 0 {
			out[at] = &r
		}
	}
	take(s, i)
	for _, id := range s.snapshot().Verified[i].Replicas {
		if of, err := s.b.get(id); err == nil && len(of.snapshot().Ranks[0].Outputs) > 0 {
			take(of, 0)
		}
	}
	return out
}

// dissent keeps the proof that results which were signed differ, and returns its id; "" where none do.
func (s *supervisor) dissent(ctx context.Context, gave []*signedResult) (string, error) {
	var d replica.Dissent
	for _, r := range gave {
		if r != nil && r.Signed {
			d.Work = r.work
			d.Results = append(d.Results, replica.Signed{Receipt: r.receipt, Result: r.result})
		}
	}
	slices.SortFunc(d.Results, func(x, y replica.Signed) int { return slices.Compare(x.Receipt.Lease[:], y.Receipt.Lease[:]) })
	if len(d.Results) < 2 || !slices.ContainsFunc(d.Results, func(r replica.Signed) bool { return !r.Result.Equal(d.Results[0].Result) }) {
		return "", nil
	}
	if err := replica.CheckDissent(s.b.domain, d); err != nil {
		return "", fmt.Errorf("proving that results differ: %w", err)
	}
	return s.b.cfg.Dissent(ctx, d)
}
