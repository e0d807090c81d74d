// Package voice has the identities that buy the leases of jobs: the peer's own, and those of detached jobs.
//
// A detached job continues when its owner, the peer it was submitted to, is gone. It has its own key, which signs its
// leases, and guardians that hold this key. A majority of them signs its vouchers and selects its supervisor. The owner
// supervises whenever it is online. Replacements come only from the standbys that the owner put into the escrow.
package voice

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/secrets"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify"
)

// Config is the surroundings of the voices of all detached jobs. All of it is required but Local.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer
	Local   guardian.Local // this peer's own guardian service; optional
	Clock   Clock
	Secrets *secrets.Keeper
	Tasks   leases.Tasks
	Log     *slog.Logger
}

// Local is this peer's own guardian service.
type Local = guardian.Local

// Clock returns the chain's slot.
type Clock interface {
	Now(t time.Time) (market.Slot, error)
}

// Guarded is the voice of a detached job.
type Guarded struct {
	cfg    *Config
	job    string
	secret sign.Private
	hash   sign.Hash // of the job's terms

	mu    sync.Mutex
	set   market.KeySet   // none before the guardians are found
	panel *guardian.Panel // likewise
}

// Key implements leases.Principal.
func (g *Guarded) Key() sign.Signer { return g.secret }

// Secret returns the key of the job, which its guardians hold too.
func (g *Guarded) Secret() sign.Private { return g.secret }

// Alone implements leases.Principal.
func (g *Guarded) Alone() bool { return false }

// Keys returns the keys of the guardians, none before they are found.
func (g *Guarded) Keys() market.KeySet {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.set
}

// Guardians returns the panel of the guardians, or nil before they are found.
func (g *Guarded) Guardians() *guardian.Panel {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.panel
}

// Close ends the messages to the guardians.
func (g *Guarded) Close() {
	if p := g.Guardians(); p != nil {
		p.Close()
	}
}

// Epoch implements leases.Principal.
func (g *Guarded) Epoch() uint64 {
	epoch, _ := g.proof()
	return epoch
}

// proof is the epoch under which this peer supervises, and the grant of it.
func (g *Guarded) proof() (epoch uint64, grant []byte) {
	if p := g.Guardians(); p != nil {
		return p.Epoch()
	}
	return 1, nil
}

// Terms returns the name of the job in its leases.
func (g *Guarded) Terms(job.Job, []byte) (sign.Hash, error) { return g.hash, nil }

// Voucher implements leases.Principal.
func (g *Guarded) Voucher(ctx context.Context, l *leases.Lease, _ verify.Voucher) (verify.SignedVoucher, error) {
	lease, err := handed(l)
	if err != nil {
		return verify.SignedVoucher{}, err
	}
	v, err := g.Guardians().SignVoucher(ctx, lease)
	if err != nil {
		return v, err
	}
	return v, l.Save(ctx, func(r *leases.Record) { r.Voucher = v.Marshal() })
}

// tellAgain is the delay before a lease's change is sent again to guardians that did not answer.
const tellAgain = 2 * time.Second

// Changed implements leases.Principal. It reports the end of payments to the guardians, because the next voucher would
// seem overdue to them.
func (g *Guarded) Changed(ctx context.Context, l *leases.Lease) {
	g.cfg.Tasks.Go(func() {
		for range 5 {
			lease, err := handed(l)
			if err == nil {
				_, err = g.Guardians().SignVoucher(ctx, lease)
			}
			if err == nil || errors.Is(err, guardian.ErrSuperseded) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(tellAgain):
			}
			g.cfg.Log.Debug("reporting the end of a lease to guardians failed", "lease", l.ID, "err", err)
		}
	})
}

// handed is a lease as its guardians keep it.
func handed(l *leases.Lease) (guardian.Lease, error) {
	record, payer, err := l.Marshal()
	rec := l.Record()
	return guardian.Lease{
		Signed: l.Signed, Escrow: rec.Escrow, Record: record, Payer: payer, MilliCPU: rec.PerUnit.MilliCPU,
	}, err
}

// Detached returns the keys and guardians' part of a new job.
func (c *Config) Detached(id string, spec job.Job) (*record.Detached, error) {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	defer clear(seed[:])
	k := sign.NewPrivate(seed).Key()
	terms, err := record.Terms(spec, k[:])
	if err != nil {
		return nil, err
	}
	box, err := c.Secrets.SealKey(id, seed)
	if err != nil {
		return nil, err
	}
	return &record.Detached{Owner: c.Key.Key(), Key: k, Terms: terms, Box: box}, nil
}

// Of returns the voice of a detached job that was read from the journal, or is new.
func (c *Config) Of(j record.Job) (*Guarded, error) {
	d := j.Detached
	key, err := c.Secrets.Key(j.ID, d.Box, d.Key)
	if err != nil {
		return nil, err
	}
	g := &Guarded{cfg: c, job: j.ID, secret: key, hash: d.Terms}
	if len(d.Guardians) > 0 {
		err = g.Engage(d, nil)
	}
	return g, err
}

// Engage gives the job its guardians: panel speaks to them, or is made.
func (g *Guarded) Engage(d *record.Detached, panel *guardian.Panel) error {
	charter, err := CharterOf(d)
	if err == nil {
		err = charter.Check(g.cfg.Genesis)
	}
	if err != nil {
		return err
	}
	if panel == nil {
		panel = guardian.NewPanel(guardian.PanelConfig{
			Host: g.cfg.Host, Genesis: g.cfg.Genesis, Key: g.cfg.Key, Charter: charter,
			Members: MembersOf(d.Guardians), Local: g.cfg.Local,
			Slots: func() (market.Slot, error) { return g.cfg.Clock.Now(time.Now()) }, Epoch: d.Epoch, Grant: d.Grant,
		})
	}
	g.mu.Lock()
	old := g.panel
	g.set, g.panel = charter.Keys, panel
	g.mu.Unlock()
	if old != nil && old != panel {
		old.Close() // it waits for requests, which the lock does not
	}
	return nil
}

// Witnesses returns the keys that sign a transaction beside this peer's key.
func (g *Guarded) Witnesses() []sign.Signer {
	if p := g.Guardians(); p != nil {
		return p.Witnesses()
	}
	return nil
}
