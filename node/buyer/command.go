package buyer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
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
	// engageTime is how long enough guardians are looked for: a job that finds none fails at once, as one does that
	// nobody takes.
	engageTime = 8 * time.Second
)

// charterFile is the part of a detached job that never changes, as its guardians keep it.
type charterFile struct {
	ID      string    `json:"id"`
	Spec    job.Job   `json:"spec"`
	Created time.Time `json:"created"`
}

// command is the supervision of a job with guardians: how this peer gets it, shows that it has it, and gives it up.
type command struct {
	*driver
	unwilling []sign.Key   // said that they would guard the job, and did not
	handing   atomic.Int32 // how far its guardians are with its files

	// Under the supervisor's mu:
	engaging context.CancelFunc // ends the search for them; nil: there is none
	beating  context.CancelFunc // ends the heartbeats; nil: there are none
}

// acquire has the guardians make this peer the job's supervisor again, however long that takes: it is the owner.
func (d *command) acquire() {
	d.b.wg.Go(func() {
		ctx, said := d.b.desk.ctx, ""
		for {
			err := d.regain(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			if text := err.Error(); text != said {
				said = text
				detail := "waiting for the job's guardians: " + record.Clean(text)
				d.s.trace.Add(trace.Step{At: time.Now(), Kind: trace.Supervised, Detail: detail})
				d.s.trace.Poke()
			}
			if pause(ctx, grantRetry) != nil {
				return
			}
		}
	})
}

// regain makes this peer the job's supervisor again.
func (d *command) regain(ctx context.Context) error {
	st, err := d.s.guard.guardians().Grant(ctx)
	if err != nil {
		return err
	}
	g := granted{epoch: st.Epoch, grant: st.Grant}
	if err := d.adopt(ctx, &g, st.State, st.Leases); err != nil {
		return err
	}
	if err := d.fetchBack(ctx, g, st.State != nil); err != nil {
		return err
	}
	return d.supervise(ctx, g)
}

// supervise shows the providers that this peer supervises the job now, and goes on with it. errSuperseded if another
// peer does by now.
func (d *command) supervise(ctx context.Context, g granted) error {
	if err := d.s.assume(ctx, g); err != nil {
		return err
	}
	ev := jobs.CommandGranted{Epoch: g.epoch}
	if g.public != nil {
		ev.Theirs = &g.state
	}
	for _, l := range g.leases {
		ev.Leases = append(ev.Leases, factOf(l))
	}
	effects, err := d.ask(ctx, event{ev: ev, amend: &amendment{change: func(j *Job) { g.amend(j, d.s.mine) }}})
	if err != nil {
		return err
	}
	if st, ok := effects[0].(changed); ok && st.state.Command.Lost {
		return fmt.Errorf("%w, under an epoch above %d", errSuperseded, g.epoch)
	}
	for _, l := range g.leases {
		if l.First == l.ID && l.Alive() {
			d.chains.watch(l)
		}
	}
	return nil
}

// standing is the job as its guardians keep it.
func (d *command) standing(st jobs.State) (guardian.State, error) {
	work, err := st.Encode()
	if err != nil {
		return guardian.State{}, err
	}
	d.s.mu.Lock()
	j := d.projectLocked(st)
	d.s.mu.Unlock()
	b, err := json.Marshal(record.StandingOf(j, work))
	return guardian.State{Bytes: b, Over: st.Phase >= jobs.Settling, Files: keptOf(j)}, err
}

// keptOf are the files of a job that its guardians keep for its owner and for the next supervisor.
func keptOf(j Job) (files []guardian.File) {
	keep := func(b Blob) {
		if c, err := cid.Parse(b.CID); err == nil {
			files = append(files, guardian.File{CID: c, Size: b.Size})
		}
	}
	for i := range j.Ranks {
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
	return files
}

// followLocked begins or ends the heartbeats, and ends the search for guardians, as the job's state wants it. The
// supervisor's mu is held.
func (d *command) followLocked(st jobs.State) {
	if d.engaging != nil && st.Phase != jobs.Engaging {
		d.engaging()
		d.engaging = nil
	}
	wanted := st.Params.Guarded && !st.Command.Lost && st.Phase > jobs.Engaging && st.Phase < jobs.Ended
	switch {
	case wanted && d.beating == nil && d.s.guard.guardians() != nil:
		ctx, cancel := context.WithCancel(d.b.desk.ctx)
		d.beating = cancel
		d.b.wg.Go(func() { d.beat(ctx) })
	case !wanted:
		d.silenceLocked()
	}
}

// silenceLocked ends the heartbeats. The supervisor's mu is held.
func (d *command) silenceLocked() {
	if d.beating != nil {
		d.beating()
		d.beating = nil
	}
}

// beat tells the guardians that the job is supervised, and how it stands, until ctx ends. It reports the loss of
// command. Once the job's work is over it says only news: nobody need supervise it any more.
func (d *command) beat(ctx context.Context) {
	timing := guardian.TimingOf(d.b.cfg.Genesis)
	var told []byte
	for kept := d.s.mine; ; {
		w, _, err := d.b.desk.runner.Get(d.s)
		if err != nil {
			return
		}
		if !kept && w.Phase >= jobs.Settling {
			if err := d.s.keepLogs(ctx); err != nil && ctx.Err() == nil {
				d.b.cfg.Log.Warn("logs are not kept for a job's owner", "job", d.s.trace.Job, "err", err)
			}
			kept = true
		}
		st, err := d.standing(w.State)
		news := !bytes.Equal(st.Bytes, told)
		if err == nil && (news || !st.Over) {
			var say *guardian.State
			if news {
				st.Version = uint64(time.Now().UnixMilli())
				say = &st
			}
			call, done := context.WithTimeout(ctx, max(timing.Silent, 2*time.Second))
			err = d.s.guard.guardians().Beat(call, say)
			done()
		}
		var other *guardian.Superseded
		switch {
		case errors.As(err, &other):
			d.post(jobs.CommandLost{Epoch: other.Epoch})
			return
		case err == nil:
			told = st.Bytes
			d.held(ctx)
		case ctx.Err() == nil:
			d.b.cfg.Log.Debug("guardians were not told how a job stands", "job", d.s.trace.Job, "err", err)
		}
		if err == nil && !news && kept && !d.s.mine && w.Done() {
			d.b.hasEnded() // its owner settles it
			return
		}
		if pause(ctx, timing.Beat) != nil {
			return
		}
	}
}

// How far the guardians of a job are with its files: command.handing.
const (
	handingOver = iota + 1
	handedOver
)

// held notes that the guardians know of a lease for each rank, that the escrow they are paid from is on chain, and that
// they have the job's files: from then on the job goes on without this peer.
func (d *command) held(ctx context.Context) {
	s := d.s
	j := s.snapshot()
	if j.Detached.Held || j.State != Running || j.Detached.Escrow == nil || !s.b.owned(j) {
		return
	}
	filled := func(e Escrow) bool { return e.Address == j.Detached.Escrow.Address && e.Deposited > 0 }
	if !slices.ContainsFunc(s.b.pay.Escrows(j.ID), filled) {
		return
	}
	switch d.handing.Load() {
	case handingOver:
		return
	case handedOver:
	default:
		d.handing.Store(handingOver)
		s.b.wg.Go(func() { // beats go on meanwhile
			if s.complete(ctx) {
				d.handing.Store(handedOver)
			} else {
				d.handing.Store(0)
			}
		})
		return
	}
	s.trace.Add(trace.Step{At: time.Now(), Kind: trace.Guarded,
		Detail: "from now on the job goes on without this peer"})
	if err := s.save(ctx, func(j *Job) {
		j.Detached = j.Detached.Clone()
		j.Detached.Held = true
	}); err != nil {
		s.b.cfg.Log.Warn("a job that is held by its guardians was not journalled", "err", err)
	}
}

// signLast has the guardians sign the last voucher of each lease that another supervisor had signed: it belongs to what
// proves the job's cost. What they signed before they sign again.
func (s *supervisor) signLast(ctx context.Context, leases []*leases.Lease) error {
	for _, l := range leases {
		last, have := l.Payer().Voucher(), l.Record().Voucher
		if last == nil {
			continue
		}
		if v, err := verify.UnmarshalSignedVoucher(have); err == nil && v.Voucher == *last {
			continue
		}
		call, done := context.WithTimeout(ctx, assumeTime)
		_, err := s.as.Voucher(call, l, *last)
		done()
		if errors.Is(err, guardian.ErrSuperseded) { // they sign it once this peer has the command again
			return err
		}
		if err != nil {
			s.b.cfg.Log.Warn("guardians did not sign a lease's last voucher again", "lease", l.ID, "err", err)
		}
	}
	return ctx.Err()
}

// dismiss lets the guardians of a job forget it whose owner has all that it wants.
func (d *command) dismiss() {
	d.b.wg.Go(func() {
		defer d.b.hasEnded()
		defer d.s.close()
		panel := d.s.guard.guardians()
		if panel == nil {
			return
		}
		call, done := context.WithTimeout(d.b.desk.ctx, d.b.cfg.LostAfter)
		defer done()
		if err := panel.Dismiss(call); err != nil {
			d.b.cfg.Log.Debug("guardians that could not be told forget a job by themselves", "job", d.s.trace.Job,
				"err", err)
		}
	})
}

// keepLogs stores the ranks' logs as files, for an owner that comes back to the job's end.
func (s *supervisor) keepLogs(ctx context.Context) error {
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
	return s.save(ctx, func(j *Job) {
		for i := range j.Ranks {
			j.Ranks[i].Log = logs[i]
		}
	})
}
