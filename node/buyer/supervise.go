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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/meter"
)

const (
	kindJob = "job"
	// stopGrace is how long a program may take to save its work when it is stopped.
	stopGrace = 2 * time.Second
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
	trace *trace
	logs  []*ranklog
	stop  context.CancelCauseFunc // ends the work; set while it runs
	peer  context.Context         // ends when the peer stops; set with stop
	done  chan struct{}           // closed when the job's goroutine ended
	// resumed: an earlier process began the job; this one first has to find its neighbours again.
	resumed bool

	mu     sync.Mutex
	job    Job
	leases []*bought // of each rank, or nil
	paid   []*bought // every lease the job ever activated

	money    sync.Mutex    // taken before mu
	promised market.Amount // what leases that are being taken can cost, beside those in paid
	taking   int           // how many they are
}

func (b *Buyer) newSupervisor(j Job, t *trace) (*supervisor, error) {
	s := &supervisor{b: b, trace: t, job: j, leases: make([]*bought, len(j.Ranks)), done: make(chan struct{})}
	for i := range j.Ranks {
		l, err := openRanklog(filepath.Join(b.jobDir(j.ID), fmt.Sprintf("rank-%d.log", i)))
		if err != nil {
			return nil, err
		}
		if j.State.Ended() {
			l.end()
		}
		// A power cut may have lost the end of the log: it is sent again from the start of the execution.
		s.job.Ranks[i].LogBase = min(s.job.Ranks[i].LogBase, l.length())
		s.logs = append(s.logs, l)
	}
	return s, nil
}

// snapshot returns the job as it stands.
func (s *supervisor) snapshot() Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.job.clone()
}

func (j Job) clone() Job {
	j.Ranks = append([]Rank(nil), j.Ranks...)
	j.Lost = append(j.Lost[:0:0], j.Lost...)
	j.Orders = append(j.Orders[:0:0], j.Orders...)
	j.Transactions = append(j.Transactions[:0:0], j.Transactions...)
	return j
}

// save changes the job and journals it, with what the trace has new and with
// more, in one write. Nothing is changed when the journal fails.
func (s *supervisor) save(ctx context.Context, change func(*Job), more ...store.Put) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.job.clone()
	change(&j)
	b, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encoding job %s: %w", j.ID, err)
	}
	steps, upTo := s.trace.puts()
	puts := append(append(more, store.Put{Kind: kindJob, Key: j.ID, Value: b}), steps...)
	if err := s.b.cfg.Store.Write(ctx, puts...); err != nil {
		return fmt.Errorf("journalling job %s: %w", j.ID, err)
	}
	s.trace.wrote(upTo)
	s.job = j
	s.trace.poke()
	return nil
}

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

// pause returns after d, or with the error of a context that ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// run takes the job to its end, or to where ctx ends; the journal then has all
// that the next process needs to go on.
func (s *supervisor) run(ctx context.Context) {
	defer close(s.done)
	defer func() {
		for _, l := range s.logs {
			l.end()
		}
		if s.snapshot().State.Ended() {
			s.trace.retire()
		}
	}()
	log := s.b.cfg.Log.With("job", s.trace.job)
	if st := s.snapshot().State; st != Settling && !st.Ended() {
		s.abandon(ctx)
		err := s.work(ctx)
		if ctx.Err() != nil {
			return
		}
		out := &outcome{state: Succeeded}
		if err != nil && !errors.As(err, &out) {
			out = &outcome{Failed, CodePeer, "this peer could not go on with the job: " + err.Error()}
		}
		log.Info("job's work is over", "outcome", out.state, "reason", out.reason)
		s.endLeases(ctx, out.reason)
		s.trace.add(Step{At: time.Now(), Kind: StepEnded, Detail: strings.TrimSuffix(string(out.state)+": "+out.reason, ": ")})
		if err := s.keep(ctx, func(j *Job) { *j = j.ended(out.state, out.code, out.reason) }); err != nil {
			return
		}
	}
	for s.snapshot().State == Settling {
		err := s.settle(ctx)
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

// abandon ends the leases that an earlier process took and did not live to use.
func (s *supervisor) abandon(ctx context.Context) {
	s.mu.Lock()
	var stray []*bought
	for _, l := range s.paid {
		if !slices.Contains(s.leases, l) && l.state() != meter.PayerSettled {
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
	for _, l := range stray {
		s.b.wg.Go(func() { s.b.dismiss(ctx, l, "the buyer was restarted before it could use the lease") })
	}
}

// work runs all rounds. It returns nil, an *outcome, or an error of this peer.
func (s *supervisor) work(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	s.mu.Lock()
	s.stop, s.peer = cancel, parent
	j := s.job.clone()
	s.mu.Unlock()
	if d := j.Spec.Timeouts.Run; d > 0 && !j.Started.IsZero() {
		t := time.AfterFunc(time.Until(j.Started.Add(d)), func() { cancel(errRunOver) })
		defer t.Stop()
	}
	if j.Stopping {
		cancel(errStopped)
	}
	err := s.rounds(ctx, cancel)
	if parent.Err() != nil {
		return parent.Err()
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStopped):
		return &outcome{Stopped, "", errStopped.Error()}
	case errors.Is(cause, errRunOver):
		return failed(CodeTimeout, "%v (timeouts.run: %v)", errRunOver, j.Spec.Timeouts.Run)
	}
	return err
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
		t := time.AfterFunc(d, func() { cancel(errRunOver) })
		context.AfterFunc(ctx, func() { t.Stop() })
	}
	return err
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
	s.trace.add(Step{At: time.Now(), Kind: StepRound, Detail: fmt.Sprintf("round %d of %d is done", j.Round+1, j.Spec.RoundCount())})
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

// rank runs one rank's execution of the current round, on another provider when
// one is lost.
func (s *supervisor) rank(ctx context.Context, i int) error {
	for {
		j := s.snapshot()
		r := j.Ranks[i]
		switch r.State {
		case RankDone:
			return nil
		case RankFailed: // before a restart
			return r.failure(i)
		}
		l, err := s.leaseOf(ctx, i)
		if err != nil {
			return err
		}
		// A rank that was running goes on with the same execution; the provider knows it.
		if r.State != RankRunning {
			base := s.logs[i].length()
			if err := s.save(ctx, func(j *Job) {
				k := &j.Ranks[i]
				k.State, k.Seq, k.LogBase, k.Exit, k.Reason = RankRunning, k.Seq+1, base, 0, ""
			}); err != nil {
				return err
			}
			j = s.snapshot()
			r = j.Ranks[i]
		}
		w, err := workload(j, i)
		if err != nil {
			return failed(CodeInput, "rank %d: %v", i, err)
		}
		res, err := s.b.execute(ctx, l, r.Seq, w, s.logs[i], r.LogBase, func() {
			s.trace.add(Step{At: time.Now(), Kind: StepStarted, Rank: &i, Provider: r.Provider.String()})
		})
		if err != nil {
			// When it is the peer that stops, the program runs on for its next process.
			if ctx.Err() != nil && s.peer.Err() == nil {
				s.stopRank(l, r.Seq)
			}
			return err
		}
		if res.lost != "" {
			if l.spent() {
				return s.outOfMoney(i, l)
			}
			if err := s.lost(ctx, i, res.lost); err != nil {
				return err
			}
			continue
		}
		return s.exited(ctx, i, r, res)
	}
}

// outOfMoney is the outcome of a job whose rank i used all of its lease: another
// one could only begin the same work again.
func (s *supervisor) outOfMoney(i int, l *bought) error {
	g, p := s.b.cfg.Genesis, s.snapshot().Spec.Payment
	return failed(CodePayment, "rank %d used up its lease of %v: the budget of %s pays no more at up to %s per unit-hour; raise payment.budget or lower payment.maxPrice",
		i, time.Duration(l.core.Slots()*g.SlotMillis)*time.Millisecond, g.FormatAmount(p.Budget), g.FormatAmount(market.Amount(p.MaxPrice)))
}

// exited notes how an execution ended.
func (s *supervisor) exited(ctx context.Context, i int, r Rank, res result) error {
	r.Exit, r.Reason, r.Detail, r.Outputs = res.exit, res.reason, res.message, res.outputs
	r.State = RankDone
	if !res.ok() {
		r.State = RankFailed
	}
	s.trace.add(Step{At: time.Now(), Kind: StepExited, Rank: &i, Provider: r.Provider.String(), Detail: r.end()})
	if err := s.keep(ctx, func(j *Job) {
		k := &j.Ranks[i]
		k.State, k.Exit, k.Reason, k.Detail, k.Outputs = r.State, r.Exit, r.Reason, r.Detail, r.Outputs
	}); err != nil {
		return err
	}
	if r.State == RankFailed {
		return r.failure(i)
	}
	return nil
}

// end says how the rank's execution ended.
func (r Rank) end() string {
	text := fmt.Sprintf("exit code %d", r.Exit)
	for _, more := range []struct{ sep, text string }{{", ", r.Reason}, {": ", r.Detail}} {
		if more.text != "" {
			text += more.sep + more.text
		}
	}
	return text
}

// failure is the outcome of a job whose rank i failed.
func (r Rank) failure(i int) error {
	if r.Reason == string(runtime.ReasonTimeout) {
		return failed(CodeTimeout, "rank %d: %s", i, r.end())
	}
	return failed(CodeProgram, "rank %d ended with %s; `starling logs` shows what it said", i, r.end())
}

// lost gives up the lease of a rank and says whether it may have another.
func (s *supervisor) lost(ctx context.Context, i int, reason string) error {
	s.mu.Lock()
	l := s.leases[i]
	s.leases[i] = nil
	s.mu.Unlock()
	if l != nil {
		s.b.giveUp(ctx, l, reason)
	}
	r := s.snapshot().Ranks[i]
	s.trace.add(Step{At: time.Now(), Kind: StepLost, Rank: &i, Provider: r.Provider.String(), Detail: reason})
	if err := s.keep(ctx, func(j *Job) {
		k := &j.Ranks[i]
		k.State, k.Restarts, k.Reason = RankWaiting, k.Restarts+1, reason
		if !slices.Contains(j.Lost, r.Provider) {
			j.Lost = append(j.Lost, r.Provider)
		}
	}); err != nil {
		return err
	}
	if j := s.snapshot(); r.Restarts+1 > j.Spec.Restart.Max {
		return failed(CodeLost, "rank %d was lost %d times, restart.max is %d; the last: %s", i, r.Restarts+1, j.Spec.Restart.Max, reason)
	}
	return nil
}

// stopRank asks a provider to end what the job no longer wants; the lease ends
// soon after, with or without an answer.
func (s *supervisor) stopRank(l *bought, seq uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), stopGrace)
	defer cancel()
	if err := s.b.stopExecution(ctx, l, seq, stopGrace/2); err != nil {
		s.b.cfg.Log.Debug("stopping an execution", "lease", l.id, "err", err)
	}
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
		if !slices.Contains(leases, l) && !l.told() {
			wg.Go(func() { s.b.dismiss(ctx, l, reason) })
		}
	}
	wg.Wait()
}
