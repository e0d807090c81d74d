package buyer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/verify"
)

const (
	// grantRetry is how often the guardians are asked again for the command of a job.
	grantRetry = time.Second
	// findGuardians bounds one look for guardians, guardsAsked how many peers are asked in it.
	findGuardians = 3 * time.Second
	guardsAsked   = 48
	// engageTime is how long enough guardians are looked for: a job that finds none fails at once, as one does that nobody takes.
	engageTime = 8 * time.Second
)

// charterFile is what never changes about a detached job, as its guardians keep it.
type charterFile struct {
	ID      string    `json:"id"`
	Spec    job.Job   `json:"spec"`
	Created time.Time `json:"created"`
}

// command makes this peer the supervisor of a job with guardians, and is done at once for another job. It returns an *outcome for
// one that cannot begin.
func (s *supervisor) command(ctx context.Context) error {
	if s.guard == nil {
		return nil
	}
	j := s.snapshot()
	switch {
	case !s.b.owned(j): // the guardian service has said so
		return s.assume(ctx)
	case !j.Detached.Engaged:
		return s.engage(ctx)
	case !s.resumed && !s.superseded:
		return nil
	}
	var said string
	for {
		st, err := s.guard.guardians().Grant(ctx)
		if err == nil {
			s.superseded = false
			if err := s.adopt(ctx, st.State, st.Leases); err != nil {
				return err
			}
			s.trace.Add(Step{At: time.Now(), Kind: StepSupervised, Detail: fmt.Sprintf("by this peer, its owner, under epoch %d", st.Epoch)})
			if err := s.fetchBack(ctx, st); err != nil {
				return err
			}
			return s.assume(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if text := err.Error(); text != said {
			said = text
			s.trace.Add(Step{At: time.Now(), Kind: StepSupervised, Detail: "waiting for the job's guardians: " + clip(text)})
			s.trace.Poke()
		}
		if pause(ctx, grantRetry) != nil {
			return ctx.Err()
		}
	}
}

// standing is the job as its guardians keep it.
func (s *supervisor) standing(over bool) (guardian.State, error) {
	j := s.snapshot()
	j.Spec, j.Key, j.Rerun = publicSpec(j.Spec), "", ""
	d := j.Detached.clone()
	d.Epoch, d.Grant = s.guard.proof()
	d.Box, d.Held, j.Detached, j.Escrows = nil, false, d, nil
	var files []guardian.File
	keep := func(b Blob) {
		if c, err := cid.Parse(b.CID); err == nil {
			files = append(files, guardian.File{CID: c, Size: b.Size})
		}
	}
	for i := range j.Ranks {
		j.Ranks[i].Live = Live{}
		if x := j.Ranks[i].Exclusive; x != nil { // what was spent on probes counts on
			short := *x
			short.Health, j.Ranks[i].Exclusive = nil, &short
		}
		for _, o := range j.Ranks[i].Outputs {
			keep(o.Blob)
		}
		if l := j.Ranks[i].Log; l != nil {
			keep(*l)
		}
	}
	if j.Carry != nil {
		keep(*j.Carry)
	}
	b, err := json.Marshal(j)
	return guardian.State{Bytes: b, Over: over, Files: files}, err
}

// beat tells the guardians that the job is supervised, and how it stands, until ctx ends. It cancels what runs when somebody else
// supervises. over: its work is over, and what is owed is being settled.
func (s *supervisor) beat(ctx context.Context, cancel context.CancelCauseFunc, over bool) {
	timing := guardian.TimingOf(s.b.cfg.Genesis)
	var told []byte
	for {
		st, err := s.standing(over)
		if err == nil {
			var say *guardian.State
			if !bytes.Equal(st.Bytes, told) {
				st.Version = uint64(time.Now().UnixMilli())
				say = &st
			}
			call, done := context.WithTimeout(ctx, max(timing.Silent, 2*time.Second))
			err = s.guard.guardians().Beat(call, say)
			done()
			if err == nil {
				if say != nil {
					told = st.Bytes
				}
				s.held(ctx)
			}
		}
		switch {
		case errors.Is(err, guardian.ErrSuperseded):
			cancel(fmt.Errorf("%w: %w", errSuperseded, err))
			return
		case err != nil && ctx.Err() == nil:
			s.b.cfg.Log.Debug("guardians were not told how a job stands", "job", s.trace.Job, "err", err)
		}
		if pause(ctx, timing.Beat) != nil {
			return
		}
	}
}

// How far the guardians of a job are with its files: supervisor.handing.
const (
	handingOver = iota + 1
	handedOver
)

// held notes that the guardians know of a lease for each rank, that the escrow they are paid from is on chain, and that they have the
// job's files: from then on the job goes on without this peer.
func (s *supervisor) held(ctx context.Context) {
	j := s.snapshot()
	if j.Detached.Held || j.State != Running || j.Detached.Escrow == nil || !s.b.owned(j) {
		return
	}
	if !slices.ContainsFunc(s.b.pay.escrows(j.ID), func(e Escrow) bool { return e.Address == j.Detached.Escrow.Address && e.Deposited > 0 }) {
		return
	}
	switch s.handing.Load() {
	case handingOver:
		return
	case handedOver:
	default:
		s.handing.Store(handingOver)
		s.b.wg.Go(func() { // beats go on meanwhile
			if s.complete(ctx) {
				s.handing.Store(handedOver)
			} else {
				s.handing.Store(0)
			}
		})
		return
	}
	s.trace.Add(Step{At: time.Now(), Kind: StepGuarded, Detail: "from now on the job goes on without this peer"})
	if err := s.save(ctx, func(j *Job) {
		j.Detached = j.Detached.clone()
		j.Detached.Held = true
	}); err != nil {
		s.b.cfg.Log.Warn("a job that is held by its guardians was not journalled", "err", err)
	}
}

// tellOver leaves the end of the job's work with the guardians, until enough of them have it.
func (s *supervisor) tellOver(ctx context.Context) error {
	s.keepLogs(ctx)
	for {
		st, err := s.standing(true)
		if err == nil {
			st.Version = uint64(time.Now().UnixMilli())
			call, done := context.WithTimeout(ctx, 2*time.Second)
			err = s.guard.guardians().Beat(call, &st)
			done()
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, guardian.ErrSuperseded):
			return fmt.Errorf("%w: %w", errSuperseded, err)
		}
		if pause(ctx, grantRetry) != nil {
			return ctx.Err()
		}
	}
}

// signLast has the guardians sign the last voucher of each lease that another supervisor had signed: it belongs to what proves the
// job's cost. What they signed before they sign again.
func (s *supervisor) signLast(ctx context.Context, leases []*bought) error {
	for _, l := range leases {
		l.mu.Lock()
		last, have := l.payer.Voucher(), l.rec.Voucher
		l.mu.Unlock()
		if last == nil {
			continue
		}
		if v, err := verify.UnmarshalSignedVoucher(have); err == nil && v.Voucher == *last {
			continue
		}
		call, done := context.WithTimeout(ctx, assumeTime)
		_, err := s.as.voucher(call, l, *last)
		done()
		if err != nil {
			s.b.cfg.Log.Warn("guardians did not sign a lease's last voucher again", "lease", l.id, "err", err)
		}
	}
	return ctx.Err()
}

// dismiss lets the guardians of a job forget it whose owner has all that it wants.
func (s *supervisor) dismiss(ctx context.Context) {
	if !s.snapshot().State.Ended() {
		return
	}
	call, done := context.WithTimeout(ctx, s.b.cfg.LostAfter)
	defer done()
	if err := s.guard.guardians().Dismiss(call); err != nil {
		s.b.cfg.Log.Debug("guardians that could not be told forget a job by themselves", "job", s.trace.Job, "err", err)
	}
}

// keepLogs stores the ranks' logs as files, for an owner that comes back to the job's end.
func (s *supervisor) keepLogs(ctx context.Context) {
	if s.b.owned(s.snapshot()) {
		return
	}
	logs := make([]*Blob, len(s.logs))
	for i, l := range s.logs {
		c, n, err := l.Store(ctx, s.b.cfg.Blobs)
		if err != nil {
			s.b.cfg.Log.Warn("a rank's log is not kept for its owner", "job", s.trace.Job, "rank", i, "err", err)
			continue
		}
		if n > 0 {
			logs[i] = &Blob{CID: c.String(), Size: n}
		}
	}
	if err := s.save(ctx, func(j *Job) {
		for i := range j.Ranks {
			j.Ranks[i].Log = logs[i]
		}
	}); err != nil {
		s.b.cfg.Log.Warn("logs are not kept for a job's owner", "job", s.trace.Job, "err", err)
	}
}

// leave has nothing more be done for a lease that another peer commands.
func (l *bought) leave() {
	l.b.payers.Drop(paidFor{l})
	l.line.guard.Lock()
	defer l.line.guard.Unlock()
	select {
	case <-l.left:
	default:
		close(l.left)
	}
	l.line.cancel()
}

// TakeUp goes on with a job that this peer guards and supervises from now on.
func (b *Buyer) TakeUp(ctx context.Context, t guardian.Taken) error {
	var f charterFile
	if err := json.Unmarshal(t.File, &f); err != nil {
		return fmt.Errorf("reading a job that is guarded: %w", err)
	}
	if !isID(f.ID) {
		return fmt.Errorf("reading a job that is guarded: %q is no id", clip(f.ID))
	}
	if err := f.Spec.Check(); err != nil {
		return fmt.Errorf("reading a job that is guarded: %w", err)
	}
	b.mu.Lock()
	if old := b.jobs[f.ID]; old != nil && !old.has(t.Job) || b.past[f.ID] != nil {
		f.ID = idOf(t.Job) // whoever knows a job's id can have this peer guard another one of that id
	}
	old := b.jobs[f.ID]
	run := b.ctx
	if run == nil || b.closing {
		b.mu.Unlock()
		return errors.New("the peer is starting or stopping")
	}
	b.wg.Add(1)
	b.mu.Unlock()
	defer b.wg.Done()
	j := Job{ID: f.ID, Spec: publicSpec(f.Spec), State: Queued, Created: f.Created, Ranks: make([]Rank, f.Spec.Count)}
	if old != nil {
		if !old.has(t.Job) {
			return fmt.Errorf("a job %s that is guarded has the id of another one", f.ID)
		}
		old.yield()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-old.done:
		}
		j = old.snapshot()
	} else {
		for i := range j.Ranks {
			j.Ranks[i].State = RankWaiting
		}
		box, err := b.sealKey(f.ID, t.Key.Seed())
		if err != nil {
			return err
		}
		j.Detached = &Detached{Owner: t.Owner, Key: t.Buyer, Terms: t.Job, Box: box, Engaged: true, Guardians: t.Panel.Members()}
	}
	tr := trace.New(b.cfg.Store, j.ID)
	if old != nil {
		tr = old.trace
	}
	s, err := b.newSupervisor(j, tr)
	if err != nil {
		return err
	}
	idle := func() { // it can be taken up again
		for _, l := range s.logs {
			l.End()
		}
		close(s.done)
	}
	if err := s.guard.guardedBy(j.Detached, t.Panel); err != nil {
		idle()
		return err
	}
	if old != nil {
		old.mu.Lock()
		s.paid, s.saved = slices.Clone(old.paid), old.saved
		old.mu.Unlock()
	}
	s.resumed = true
	b.mu.Lock()
	b.jobs[j.ID] = s
	b.mu.Unlock()
	if err := s.adopt(ctx, t.State, t.Leases); err != nil {
		idle()
		return err
	}
	s.trace.Add(Step{At: time.Now(), Kind: StepSupervised, Detail: fmt.Sprintf("by this peer, a guardian, under epoch %d", s.guard.epoch())})
	b.wg.Go(func() { s.run(run) })
	return nil
}

// Yield is told that another peer supervises a job.
func (b *Buyer) Yield(terms sign.Hash, _ uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		if !s.mine && s.has(terms) {
			s.yield()
		}
	}
}

// has reports whether the job is the one of these terms.
func (s *supervisor) has(terms sign.Hash) bool {
	d := s.snapshot().Detached
	return d != nil && d.Terms == terms
}

// yield ends what this peer does for a job that another one supervises.
func (s *supervisor) yield() {
	s.mu.Lock()
	stop := s.stop
	s.mu.Unlock()
	if stop != nil {
		stop(errSuperseded)
	}
}
