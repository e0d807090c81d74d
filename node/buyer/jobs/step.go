package jobs

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
)

// step is one Step in progress.
type step struct {
	s       State
	now     Now
	fx      []Effect
	resumed bool // the event was Recovered or CommandGranted
}

func newStep(s State, now Now) *step {
	now.Time = now.Time.Round(0).UTC() // as a record has it
	return &step{s: s, now: now}
}

// New returns a job that was accepted. A peer that is not the owner takes over a guarded job: it does nothing until
// CommandGranted.
func New(p Params, owner bool, now Now) (State, []Effect) {
	t := newStep(State{Params: p, Phase: Placing, Ranks: make([]Rank, p.Count)}, now)
	t.s.Created = t.now.Time
	t.s.Command = Command{Owner: owner, Epoch: 1}
	for i := range t.s.Ranks {
		t.s.Ranks[i] = Rank{State: RankWaiting, Since: t.now.Time}
	}
	if p.Checked {
		t.s.Judged = make([]bool, p.Count)
	}
	switch {
	case !owner:
		t.s.Command = Command{Lost: true}
	case p.Guarded:
		t.s.Phase = Engaging
		t.emit(EngageGuardians{})
	}
	t.advance()
	return t.s, t.fx
}

// Step applies one event and all deadlines that are due, and advances the job as far as it goes. It leaves s unchanged.
// An error means that the event is invalid (ErrEvent) or concerns a dropped gang (ErrDropped); then nothing happens.
func (s State) Step(now Now, ev Event) (State, []Effect, error) {
	t := newStep(s.clone(), now)
	before := s.members()
	if err := t.take(ev); err != nil {
		return s, nil, err
	}
	t.advance()
	t.publish(before)
	return t.s, t.fx, nil
}

// take applies the event. While another peer supervises, it applies only the events of R1.
func (t *step) take(ev Event) error {
	if !t.s.Command.Lost {
		return ev.apply(t)
	}
	if ev, ok := ev.(quiet); ok {
		return ev.applyQuiet(t)
	}
	return nil
}

// advance starts the work that state and time require, until nothing changes.
func (t *step) advance() {
	for !t.s.Command.Lost {
		phase, round, n := t.s.Phase, t.s.Round, len(t.fx)
		t.expire()
		switch t.s.Phase {
		case Placing:
			t.place()
		case Working:
			t.work()
		case Reducing:
			t.reduce()
		case Stopping:
			t.stop()
		case Settling:
			t.settle()
		}
		if phase == t.s.Phase && round == t.s.Round && n == len(t.fx) {
			return
		}
	}
}

func (t *step) emit(fx ...Effect) { t.fx = append(t.fx, fx...) }

func (t *step) note(kind string, rank int, format string, args ...any) {
	t.emit(Note{kind, rank, fmt.Sprintf(format, args...)})
}

// answer answers a request; 0 means no request.
func (t *step) answer(req Req, err error) {
	if req != 0 {
		t.emit(Answer{req, err})
	}
}

func (t *step) gangs() gangs { return gangs{t} }

func (t *step) leases() leases { return leases{t} }

func (t *step) resize() resize { return resize{t} }

func (t *step) rank(i int) rankStep { return rankStep{t, &t.s.Ranks[i], i} }

// current returns the rank that runs x, and reports whether there is one.
func (t *step) current(x Exec) (rankStep, bool) {
	if int64(x.Rank) >= int64(len(t.s.Ranks)) {
		return rankStep{}, false
	}
	r := t.rank(int(x.Rank))
	return r, r.State == RankRunning && r.Lease == x.Lease && r.Seq == x.Seq
}

// place orders the first leases of all ranks as one gang. Once every rank has one, the job works.
func (t *step) place() {
	if waiting := t.gangs().ready(); len(waiting) > 0 {
		t.gangs().order(waiting)
		return
	}
	if slices.ContainsFunc(t.s.Ranks, func(r Rank) bool { return r.State == RankWaiting }) {
		return
	}
	t.s.Phase = Working
	if t.s.Started.IsZero() {
		t.s.Started = t.now.Time
	}
}

// work starts the next activity of each rank, and ends the round or the job.
func (t *step) work() {
	t.judge()
	for i := 0; i < len(t.s.Ranks) && t.s.Phase == Working; i++ {
		t.rank(i).work()
	}
	if t.s.Phase == Working {
		t.gangs().replace()
	}
	if t.s.Phase == Working {
		t.resize().shrink()
		t.conclude()
	}
}

// conclude ends the job if a rank failed, and the round if all are done.
func (t *step) conclude() {
	s := &t.s
	for i := range s.Ranks {
		if r := &s.Ranks[i]; r.State == RankFailed {
			t.end(ResultFailed, r.Exit.class(), r.Exit.failure(i, r.Restarts))
			return
		}
	}
	switch c := s.Params.Cluster; {
	case c != nil && c.HeadEnds && s.Ranks[0].State == RankDone:
		t.nextRound()
	case slices.ContainsFunc(s.Ranks, func(r Rank) bool { return r.State != RankDone && !r.Joining }):
	case s.Params.Reduce:
		s.Phase = Reducing
	default:
		t.nextRound()
	}
}

func (t *step) reduce() {
	if !t.s.reducing {
		t.s.reducing = true
		t.emit(Reduce{t.s.Round})
	}
}

// nextRound ends a round. After the last one the job has succeeded.
func (t *step) nextRound() {
	s := &t.s
	s.Phase, s.reducing = Working, false
	s.Round++
	t.note(NoteRound, -1, "round %d of %d is done", s.Round, s.Params.Rounds)
	if s.Round >= s.Params.Rounds {
		t.end(ResultSucceeded, 0, "")
		return
	}
	for i := range s.Ranks {
		r := &s.Ranks[i]
		if r.State = RankLeased; r.Lease.IsZero() {
			r.State, r.Since = RankWaiting, t.now.Time
		}
	}
}

// end fixes the outcome of the job. Programs are stopped, then leases end.
func (t *step) end(result Result, code Code, reason string) {
	s := &t.s
	if s.Phase >= Stopping {
		return
	}
	s.Phase, s.Outcome = Stopping, Outcome{result, code, reason}
	t.note(NoteEnded, -1, "%s: %s", result, reason)
	switch {
	case s.Scale.up():
		t.resize().undo(fmt.Errorf("%w: %w", ErrScale, ErrNotRunning))
	case s.Scale.down():
		t.answer(s.Scale.Req, ErrNotRunning)
		s.Scale = nil
	}
	for i := range s.Gangs {
		t.gangs().cancel(&s.Gangs[i], "the job has ended")
	}
	if c := s.Params.Cluster; c != nil && c.HeadEnds && result == ResultSucceeded {
		for i := range s.Ranks {
			if r := t.rank(i); r.State != RankRunning {
				r.idle()
				r.State = RankDone
			}
		}
	}
}

// stop stops all programs. Once none runs and all outputs are gathered, leases end.
func (t *step) stop() {
	running := false
	for i := range t.s.Ranks {
		r := t.rank(i)
		if r.State != RankRunning {
			continue
		}
		switch r.Doing {
		case Idle, Starting, Up:
			r.halt()
		case Judging:
			r.State, r.Doing = RankFailed, Idle
		}
		running = running || r.State == RankRunning
	}
	if running {
		return
	}
	t.s.Phase, t.s.Finished = Settling, t.now.Time
	t.leases().endAll()
	if t.s.checking() {
		t.emit(CheckResults{})
	}
}

// class returns the code of a job that failed by this exit.
func (e Exit) class() Code {
	switch {
	case e.Reason == ReasonProgram:
		return CodeProgram
	case e.Hopeless:
		return CodeInput
	case e.Reason == ReasonTimeout:
		return CodeTimeout
	}
	return CodeProgram
}

// text describes the exit after n restarts.
func (e Exit) text(n uint32) string {
	text := fmt.Sprintf("exit code %d", e.Code)
	if e.Reason != "" {
		text += ", " + e.Reason
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if n > 0 {
		text += fmt.Sprintf(" after %d restarts", n)
	}
	return text
}

// failure describes to a user the exit, after n restarts, that fails a job.
func (e Exit) failure(rank int, n uint32) string {
	switch {
	case e.Reason == ReasonProgram, e.Hopeless && e.Reason == reasonInput:
		return fmt.Sprintf("rank %d: %s", rank, e.Detail)
	case e.Hopeless:
		return fmt.Sprintf("rank %d: the image cannot be used: %s", rank, e.Detail)
	case e.Reason == ReasonTimeout:
		return fmt.Sprintf("rank %d: %s", rank, e.text(n))
	}
	short := func(what string) string {
		text := "its units have too little %[1]s: ask for more with resources.%[1]s (--%[1]s), or for more units; "
		return fmt.Sprintf(text, what)
	}
	remedy := map[string]string{reasonMemory: short("memory"), reasonDisk: short("disk")}[e.Reason]
	return fmt.Sprintf("rank %d ended with %s; %s`starling logs` shows its output", rank, e.text(n), remedy)
}

// member is one member of a cluster's plan.
type member struct {
	rank, epoch uint32
	lease       market.LeaseID
}

// members returns the members of a cluster: the ranks that have a lease and have joined.
func (s *State) members() (out []member) {
	if s.Params.Cluster == nil {
		return nil
	}
	for i := range s.Ranks {
		if r := &s.Ranks[i]; !r.Joining && !r.Lease.IsZero() {
			out = append(out, member{uint32(i), r.Epoch, r.Lease})
		}
	}
	return out
}

// publish counts and publishes a change of a cluster's membership; after a restart it publishes the plan again.
func (t *step) publish(before []member) {
	if t.s.Params.Cluster == nil || t.s.Phase >= Stopping {
		return
	}
	if !slices.Equal(before, t.s.members()) {
		t.s.Plan.Version++
	} else if !t.resumed || t.s.Phase != Working {
		return
	}
	t.emit(PublishPlan{t.s.Plan.Version})
}
