// Package settle carries out what a chain.Settlement wants: it journals, signs,
// sends and polls, one effect at a time, until everything owed is paid for ever.
package settle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// Kind is the kind of a settlement's journal record; its key is the job's id.
const Kind = "settlement"

// Config is what a Driver needs.
type Config struct {
	Ledger chain.Ledger
	Store  store.Store
	Params chain.Params
	Log    *slog.Logger
	// Settled is told of every batch that is final; Waiting of every delay and its reason. Both may be nil.
	Settled func(job string, b chain.Batch)
	Waiting func(job string, reason string, until time.Time)
}

// Driver settles jobs. It may be used by many goroutines, each with its own job.
type Driver struct{ cfg Config }

// New returns a driver. It starts nothing.
func New(cfg Config) *Driver { return &Driver{cfg: cfg} }

// Load returns the settlement of a job as journalled, or a new one.
func (d *Driver) Load(ctx context.Context, job string) (chain.Settlement, error) {
	b, err := d.cfg.Store.Get(ctx, Kind, job)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return chain.New(sign.Sum([]byte("starling/settlement/v1"), []byte(job)), d.cfg.Params), nil
	case err != nil:
		return chain.Settlement{}, fmt.Errorf("reading the settlement of job %s: %w", job, err)
	}
	s, err := chain.Restore(b, d.cfg.Params)
	if err != nil {
		return chain.Settlement{}, fmt.Errorf("reading the settlement of job %s: %w", job, err)
	}
	return s, nil
}

// Pay takes s to the end: it tells it what is owed and carries out its effects
// until all of it is final or ctx ends. A chain that is down is waited for. When
// it returns an error, the journal has all that matters and Pay may be called
// again with what Load returns.
func (d *Driver) Pay(ctx context.Context, job string, s chain.Settlement, owed chain.AmountsOwed) (chain.Settlement, error) {
	save := func(state []byte) error {
		return d.cfg.Store.Write(ctx, store.Put{Kind: Kind, Key: job, Value: state})
	}
	for ev := chain.Event(owed); ; ev = (chain.Ticked{}) {
		next, notes, err := chain.Drive(ctx, d.cfg.Ledger, save, s, time.Now(), ev)
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
		if err != nil {
			return s, fmt.Errorf("settling job %s: %w", job, err)
		}
		s = next
		d.tell(job, notes)
		if _, first := ev.(chain.AmountsOwed); first {
			continue // what was in flight before a restart wants its tick at once
		}
		if s.Done() && len(s.InFlight()) == 0 {
			return s, nil
		}
		at := s.Next()
		if at.IsZero() {
			return s, fmt.Errorf("settling job %s: it is not done and waits for nothing: %s", job, s.Reason())
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(max(time.Until(at), time.Millisecond)):
		}
	}
}

// tell hands on what people want to know.
func (d *Driver) tell(job string, notes []chain.Effect) {
	for _, e := range notes {
		switch e := e.(type) {
		case chain.Settled:
			d.cfg.Log.Info("payment is final", "job", job, "tx", e.Batch.Tx.ID, "payouts", len(e.Batch.Payouts))
			if d.cfg.Settled != nil {
				d.cfg.Settled(job, e.Batch)
			}
		case chain.Waiting:
			d.cfg.Log.Warn("payment waits", "job", job, "reason", e.Reason, "until", e.Until)
			if d.cfg.Waiting != nil {
				d.cfg.Waiting(job, e.Reason, e.Until)
			}
		}
	}
}
