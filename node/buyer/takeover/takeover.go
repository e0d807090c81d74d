// Package takeover gives this peer the command of a job that another peer supervised, or may have supervised.
//
// The guardians grant the command under an epoch, and hand over the job's standing and leases. Adopt applies them.
// Supervise shows the grant to the providers, adds the receipts that this peer does not have, and reports the command
// to the job's machine.
package takeover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/buyer/voice"
	"github.com/starling-network/starling/node/store"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify"
)

// Config is the surroundings of the takeovers of all jobs. All of it is required.
type Config struct {
	Host      *p2p.Host
	Store     store.Store
	Blobs     work.Blobs
	Files     Files
	Leases    *leases.Book
	Deposits  Deposits
	LostAfter time.Duration // silence after which a peer counts as lost
	Tasks     leases.Tasks
	Log       *slog.Logger
}

// Files has the files that this peer exchanges with others.
type Files interface {
	// Fetch copies a blob of at most most bytes from a peer into the store.
	Fetch(ctx context.Context, from peer.ID, c cid.Cid, most int64) error
}

// Deposits has the money that is set aside for leases.
type Deposits interface {
	// Forsake winds up the orders of an earlier supervisor without billable leases.
	Forsake(job string)
}

// Programs are the programs of the job that this peer follows.
type Programs interface {
	// Leave stops following programs.
	Leave()
}

// Takeover is the takeover of one job with guardians.
type Takeover struct {
	*run.Job
	cfg      *Config
	programs Programs
	voice    Voice
}

// Voice is the identity that buys the job's leases.
type Voice interface {
	Voice() *voice.Guarded
}

// New returns the takeover of a job.
func New(cfg *Config, j *run.Job, v Voice, p Programs) *Takeover {
	return &Takeover{Job: j, cfg: cfg, programs: p, voice: v}
}

// Taken is a job after the guardians granted its command to this peer.
type Taken = guardian.Taken

// ErrSuperseded is returned if another peer supervises a job from now on.
var ErrSuperseded = errors.New("another peer supervises the job now")

// retry is the interval of requests to the guardians.
const retry = time.Second

func (d *Takeover) panel() *guardian.Panel { return d.voice.Voice().Guardians() }

// Acquire has the guardians make this peer the job's supervisor again, however long that takes: it is the owner.
func (d *Takeover) Acquire() {
	d.cfg.Tasks.Go(func() {
		ctx, said := d.Context(), ""
		for {
			err := d.regain(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			if text := err.Error(); text != said {
				said = text
				detail := "waiting for the job's guardians: " + record.Clean(text)
				d.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Supervised, Detail: detail})
				d.Trace.Poke()
			}
			if run.Pause(ctx, retry) != nil {
				return
			}
		}
	})
}

// regain makes this peer the job's supervisor again.
func (d *Takeover) regain(ctx context.Context) error {
	st, err := d.panel().Grant(ctx)
	if err != nil {
		return err
	}
	g := Granted{Epoch: st.Epoch, Grant: st.Grant}
	if err := d.Adopt(ctx, &g, st.State, st.Leases); err != nil {
		return err
	}
	if err := d.fetchBack(ctx, g, st.State != nil); err != nil {
		return err
	}
	return d.Supervise(ctx, g)
}

// Supervise sends the grant to the providers and resumes the job. It returns ErrSuperseded if another peer supervises
// by now.
func (d *Takeover) Supervise(ctx context.Context, g Granted) error {
	if err := d.assume(ctx, g); err != nil {
		return err
	}
	ev := jobs.CommandGranted{Epoch: g.Epoch}
	if g.public != nil {
		ev.Theirs = &g.state
	}
	for _, l := range g.leases {
		ev.Leases = append(ev.Leases, run.FactOf(l))
	}
	effects, err := d.Ask(ctx, run.Event{Ev: ev, Amend: run.Amend(func(j *record.Job) { g.amend(j, d.Mine) })})
	if err != nil {
		return err
	}
	if st, ok := effects[0].(run.Changed); ok && st.State.Command.Lost {
		return fmt.Errorf("%w, under an epoch above %d", ErrSuperseded, g.Epoch)
	}
	for _, l := range g.leases {
		if l.First == l.ID && l.Alive() {
			d.Watch(l)
		}
	}
	return nil
}

// SignLast collects the guardians' signatures on the last voucher of each lease of an earlier supervisor: it is part of
// the proof of the job's cost. Guardians sign the same voucher again.
func (d *Takeover) SignLast(ctx context.Context, leases []*leases.Lease) error {
	for _, l := range leases {
		last, have := l.Payer().Voucher(), l.Record().Voucher
		if last == nil {
			continue
		}
		if v, err := verify.UnmarshalSignedVoucher(have); err == nil && v.Voucher == *last {
			continue
		}
		call, done := context.WithTimeout(ctx, assumeTime)
		_, err := d.voice.Voice().Voucher(call, l, *last)
		done()
		if errors.Is(err, guardian.ErrSuperseded) { // they sign it once this peer has the command again
			return err
		}
		if err != nil {
			d.cfg.Log.Warn("guardians did not sign a lease's last voucher again", "lease", l.ID, "err", err)
		}
	}
	return ctx.Err()
}
