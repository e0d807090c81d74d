package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/webhook"
	"github.com/starling-network/starling/verify/meter"
)

const (
	kindJob = "job"
	// journalRetry is how often a journal that fails is tried again.
	journalRetry = time.Second
)

var (
	errStopped = errors.New("stopped by its user")
	errRunOver = errors.New("the run time limit was reached")
)

// outcome is how the work of a job ended, as an error that unwinds its ranks.
type outcome struct {
	state  State
	code   Code
	reason string
}

func (o *outcome) Error() string { return o.reason }

func failed(code Code, format string, args ...any) error {
	return &outcome{Failed, code, fmt.Sprintf(format, args...)}
}

// supervisor runs one job: it takes leases for its ranks, runs its rounds,
// replaces what is lost, and settles.
type supervisor struct {
	b     *Buyer
	as    voice
	guard *guarded // nil for a job that has no guardians; else as
	mine  bool     // this peer is the job's owner
	trace *trace.Trace
	logs  []*ranklog.Log
	stop  context.CancelCauseFunc // ends the work; set while it runs
	peer  context.Context         // ends when the peer stops; set with stop
	done  chan struct{}           // closed when the job's goroutine ended
	// resumed: an earlier process began the job; this one first has to find its neighbours again.
	resumed bool
	// returned are the ranks that were taken up since then; under mu.
	returned map[int]bool
	// superseded: another peer supervised the job meanwhile.
	superseded bool
	// unwilling said that they would guard the job, and did not.
	unwilling []sign.Key
	handing   atomic.Int32 // how far its guardians are with its files

	mu      sync.Mutex
	driver  *driver // of an ordinary job; nil: the supervisor runs the job itself
	closing sync.Once

	saved  bool // the journal has the job
	closed bool // it has left memory, or is about to: nothing of it changes
	job    Job
	leases []*bought       // of each rank, or nil
	paid   []*bought       // every lease the job ever activated
	asking []bool          // of each rank: its provider is being asked for more time
	told   []told          // of each rank of a cluster: which plan its provider goes by
	bell   chan struct{}   // closes when something of a cluster changes; nil: nobody waits
	paths  *[]cluster.Path // between its members, as the journal has them; nil: it was not read yet

	pausing   sync.Mutex      // taken before mu: one pause or resume at a time
	extending sync.Mutex      // taken before the buyer's mu: one extension at a time
	measuring sync.Mutex      // taken before mu: one change of paths at a time
	working   context.Context // ends with the job's work; set with stop
	streams   atomic.Int64    // that somebody has open into the job's programs
	money     sync.Mutex      // taken before mu
	promised  market.Amount   // what leases that are being taken can cost, beside those in paid
	taking    int             // how many they are
}

func (b *Buyer) newSupervisor(j Job, t *trace.Trace) (*supervisor, error) {
	var guard *guarded
	if j.Detached != nil {
		var err error
		if guard, err = b.voiceOf(j); err != nil {
			return nil, err
		}
	}
	s := &supervisor{b: b, as: b.own, guard: guard, mine: b.owned(j), trace: t, job: j, leases: make([]*bought, len(j.Ranks)), asking: make([]bool, len(j.Ranks)), told: make([]told, len(j.Ranks)), done: make(chan struct{})}
	if guard != nil {
		s.as = guard
	}
	if ordinary(j) {
		s.driver = newDriver(s, j)
	}
	for i := range j.Ranks {
		l, err := ranklog.Open(filepath.Join(b.jobDir(j.ID), fmt.Sprintf("rank-%d.log", i)))
		if err != nil {
			return nil, err
		}
		if j.State.Ended() {
			l.End()
		}
		// A power cut may have lost the end of the log: it is sent again from the start of the execution.
		s.job.Ranks[i].LogBase = min(s.job.Ranks[i].LogBase, l.Len())
		if s.driver != nil {
			s.driver.bases[i].at = s.job.Ranks[i].LogBase
		}
		s.logs = append(s.logs, l)
	}
	return s, nil
}

// ranklogs are the logs of all ranks.
func (s *supervisor) ranklogs() []*ranklog.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs
}

// snapshot returns the job as it stands.
func (s *supervisor) snapshot() Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.job.clone()
}

// peek is the job as snapshot has it, without copies of what it refers to: for a look at what a job is of itself.
func (s *supervisor) peek() Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.job
}

func (j Job) clone() Job {
	j.Ranks = append([]Rank(nil), j.Ranks...)
	j.Lost = append(j.Lost[:0:0], j.Lost...)
	j.Orders = append(j.Orders[:0:0], j.Orders...)
	j.Transactions = append(j.Transactions[:0:0], j.Transactions...)
	j.Detached = j.Detached.clone()
	j.Verified = append(j.Verified[:0:0], j.Verified...)
	j.Cluster = j.Cluster.clone()
	return j
}

// save changes the job and journals it, with what the trace has new and with
// more, in one write. Nothing is changed when the journal fails.
func (s *supervisor) save(ctx context.Context, change func(*Job), more ...store.Put) error {
	if s.driver != nil {
		return s.driver.save(ctx, change, more)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("journalling job %s: %w: it has ended", s.job.ID, ErrNotRunning)
	}
	j := s.job.clone()
	change(&j)
	b, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encoding job %s: %w", j.ID, err)
	}
	steps, upTo := s.trace.Pending()
	puts := append(append(more, store.Put{Kind: kindJob, Key: j.ID, Value: b}), steps...)
	var told []webhook.Delivery
	if j.State != s.job.State || !s.saved {
		var tell []store.Put
		told, tell = s.b.tellHooks(j)
		puts = append(puts, tell...)
	}
	if err := s.b.cfg.Store.Write(ctx, puts...); err != nil {
		return fmt.Errorf("journalling job %s: %w", j.ID, err)
	}
	s.trace.Written(upTo)
	s.job, s.saved = j, true
	s.b.hooks.Added(told...)
	s.trace.Poke()
	return nil
}

// close lets those go on who wait for the end of the job's run in this process.
func (s *supervisor) close() { s.closing.Do(func() { close(s.done) }) }

// keep is save for what has happened already: it tries again until the journal
// takes it, so that a full disk delays a job and loses nothing of it.
func (s *supervisor) keep(ctx context.Context, change func(*Job)) error {
	for told := false; ; told = true {
		err := s.save(ctx, change)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !told {
			s.b.cfg.Log.Error("the journal does not take what happened; trying again until it does", "err", err)
		}
		if err := pause(ctx, journalRetry); err != nil {
			return err
		}
	}
}

// run takes the job to its end, or to where ctx ends; the journal then has all
// that the next process needs to go on.
func (s *supervisor) run(ctx context.Context) {
	defer s.b.hasEnded()
	defer s.close()
	defer func() {
		for _, l := range s.ranklogs() {
			l.End()
		}
		if s.snapshot().State.Ended() {
			s.trace.Retire()
		}
	}()
	log := s.b.cfg.Log.With("job", s.trace.Job)
	if st := s.snapshot().State; st != Settling && !st.Ended() {
		err := s.commanded(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errSuperseded) {
			for _, l := range s.bought() {
				l.leave()
			}
			return // another guardian goes on with it, or its owner
		}
		if out := (&outcome{state: Succeeded}); !errors.Is(err, errOver) {
			if err != nil && !errors.As(err, &out) {
				out = &outcome{Failed, CodePeer, "this peer could not go on with the job: " + err.Error()}
			}
			log.Info("job's work is over", "outcome", out.state, "reason", out.reason)
			quiet := func() {}
			if s.guard != nil && s.snapshot().Detached.Engaged { // a last receipt may take long, and nobody is to take a lease for it
				s.keepLogs(ctx)
				telling, cancel := context.WithCancelCause(ctx)
				quiet = s.beating(telling, cancel, true)
			}
			s.endLeases(ctx, out.reason)
			quiet()
			s.trace.Add(Step{At: time.Now(), Kind: StepEnded, Detail: strings.TrimSuffix(string(out.state)+": "+out.reason, ": ")})
			if err := s.keep(ctx, func(j *Job) { *j = j.ended(out.state, out.code, out.reason) }); err != nil {
				return
			}
		}
	}
	for _, l := range s.ranklogs() { // who follows them need not wait until all is paid
		l.End()
	}
	if j := s.snapshot(); s.guard != nil && j.State == Settling && j.Detached.Engaged {
		if !s.b.owned(s.snapshot()) {
			if err := s.tellOver(ctx); err != nil && ctx.Err() == nil {
				log.Info("a job that was guarded ended", "err", err)
			}
			return // its owner settles it
		}
		telling, told := context.WithCancel(ctx)
		defer s.dismiss(ctx)
		defer told()
		s.b.wg.Go(func() { _ = s.tellOver(telling) }) // nobody need supervise it any more
	}
	for s.snapshot().State == Settling {
		err := s.settle(ctx)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = s.keep(ctx, func(j *Job) { j.State, j.Ended = j.Outcome, time.Now() })
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			log.Error("settling failed; trying again", "err", err)
			if pause(ctx, journalRetry) != nil {
				return
			}
		}
	}
}

// commanded does the job's work, for as long as this peer supervises it: an owner always comes back to it.
func (s *supervisor) commanded(ctx context.Context) error {
	for {
		err := s.command(ctx)
		if err == nil && s.snapshot().State == Settling {
			return errOver
		}
		if err == nil {
			s.abandon(ctx)
			err = s.work(ctx)
		}
		if !errors.Is(err, errSuperseded) || ctx.Err() != nil || !s.b.owned(s.snapshot()) {
			return err
		}
		s.superseded = true
		s.trace.Add(Step{At: time.Now(), Kind: StepSupervised, Detail: clip(err.Error())})
	}
}

// errOver says that another supervisor has ended the job's work.
var errOver = errors.New("the job's work is over")

// abandon ends the leases that an earlier process took and did not live to use.
func (s *supervisor) abandon(ctx context.Context) {
	s.mu.Lock()
	var stray []*bought
	for _, l := range s.paid {
		if !seated(s.leases, l) && l.state() != meter.PayerSettled {
			stray = append(stray, l)
		}
	}
	// A rank whose lease did not survive begins again.
	for i := range s.job.Ranks {
		if r := &s.job.Ranks[i]; s.leases[i] == nil && (r.State == RankRunning || r.State == RankLeased) {
			r.State = RankWaiting
		}
	}
	s.mu.Unlock()
	s.b.pay.forsake(s.trace.Job)
	for _, l := range stray {
		s.b.wg.Go(func() { s.b.dismiss(ctx, l, "the buyer was restarted before it could use the lease") })
	}
}

// seated reports whether a lease, or one that it makes longer, is among those of the ranks.
func seated(leases []*bought, l *bought) bool {
	return slices.ContainsFunc(leases, func(o *bought) bool { return o != nil && o.line == l.line })
}

// work runs all rounds. It returns nil, an *outcome, or an error of this peer.
func (s *supervisor) work(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	s.mu.Lock()
	s.stop, s.peer, s.working = cancel, parent, ctx
	j := s.job.clone()
	s.mu.Unlock()
	if d := j.Spec.Timeouts.Run; d > 0 && !j.Started.IsZero() {
		s.limitRun(ctx, cancel, s.runLeft(j))
	}
	s.pursueAll(ctx)
	if j.Stopping {
		cancel(errStopped)
	}
	if s.guard != nil {
		defer s.beating(ctx, cancel, false)()
	}
	err := s.rounds(ctx, cancel)
	if parent.Err() != nil {
		return parent.Err()
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errSuperseded):
		return cause
	case errors.Is(cause, errStopped):
		return &outcome{Stopped, "", errStopped.Error()}
	case errors.Is(cause, errRunOver):
		return failed(CodeTimeout, "%v (timeouts.run: %v)", errRunOver, s.snapshot().Spec.Timeouts.Run)
	}
	return err
}

// beating has the guardians hear of the job until what it returns is called, which ends ctx by cancel.
func (s *supervisor) beating(ctx context.Context, cancel context.CancelCauseFunc, over bool) func() {
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		s.beat(ctx, cancel, over)
	}()
	return func() { cancel(nil); <-beats }
}

func (s *supervisor) rounds(ctx context.Context, cancel context.CancelCauseFunc) error {
	n := s.snapshot().Spec.RoundCount()
	for s.snapshot().Round < n {
		if err := s.leaseAll(ctx); err != nil {
			return err
		}
		if err := s.begin(ctx, cancel); err != nil {
			return err
		}
		g, gctx := errgroup.WithContext(ctx)
		for i := range s.logs {
			g.Go(func() error { return s.rank(gctx, i) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if err := s.nextRound(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin notes that every rank has a lease, and starts the clock of the run limit
// the first time.
func (s *supervisor) begin(ctx context.Context, cancel context.CancelCauseFunc) error {
	first := s.snapshot().Started.IsZero()
	err := s.save(ctx, func(j *Job) {
		j.State = Running
		if first {
			j.Started = time.Now()
		}
	})
	if d := s.snapshot().Spec.Timeouts.Run; err == nil && first && d > 0 {
		s.limitRun(ctx, cancel, d)
	}
	return err
}

// limitRun ends the work when the job's time is over, which may be later than in left: it can be made longer meanwhile.
func (s *supervisor) limitRun(ctx context.Context, cancel context.CancelCauseFunc, left time.Duration) {
	s.b.wg.Go(func() {
		for left > 0 {
			if pause(ctx, left) != nil {
				return
			}
			j := s.snapshot()
			left = time.Until(j.Started.Add(j.Spec.Timeouts.Run))
		}
		cancel(errRunOver)
	})
}

// nextRound reduces what the ranks left, if the job says how, and goes on to the
// next round.
func (s *supervisor) nextRound(ctx context.Context) error {
	j := s.snapshot()
	var carry *Blob
	if j.Spec.Rounds != nil && j.Spec.Rounds.Reduce != nil {
		c, err := s.reduce(ctx, j)
		if err != nil {
			return err
		}
		carry = &c
	}
	s.trace.Add(Step{At: time.Now(), Kind: StepRound, Detail: fmt.Sprintf("round %d of %d is done", j.Round+1, j.Spec.RoundCount())})
	return s.keep(ctx, func(j *Job) {
		j.Round++
		if carry != nil {
			j.Carry = carry
		}
		if j.Round < j.Spec.RoundCount() {
			for i := range j.Ranks {
				j.Ranks[i].State = RankLeased
			}
		}
	})
}

// endLeases ends every lease the job still has, also those that a gang took which
// the job did not live to use.
func (s *supervisor) endLeases(ctx context.Context, reason string) {
	s.mu.Lock()
	leases := append([]*bought(nil), s.leases...)
	stray := append([]*bought(nil), s.paid...)
	clear(s.leases)
	s.mu.Unlock()
	if reason == "" {
		reason = "the job is done"
	}
	var wg sync.WaitGroup
	for _, l := range leases {
		if l != nil {
			wg.Go(func() { s.b.end(ctx, l, reason) })
		}
	}
	for _, l := range stray {
		if !seated(leases, l) && !l.told() {
			wg.Go(func() { s.b.dismiss(ctx, l, reason) })
		}
	}
	wg.Wait()
}
