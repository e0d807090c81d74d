package keep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/audit"
)

// publishFor is how long a peer publishes a fraud that it found: its readers think less of the offender even after its
// stake is gone.
const publishFor = 24 * time.Hour

var (
	errKnown   = errors.New("known")
	errNotYet  = errors.New("audit has not ended")
	errNothing = errors.New("offender has no stake")
)

// Frauds is the Handler of frauds.
type Frauds struct {
	Store *Store
	// Slot returns the chain's current slot.
	Slot func() (market.Slot, error)
	// Staked reports whether a key has a stake. known is false if registrations are not available.
	Staked func(sign.Key) (staked, known bool)
}

// Wanted implements Handler.
func (f Frauds) Wanted(c proof.Content) error {
	x := c.(proof.Fraud)
	if err := f.timely(x); err != nil {
		return err
	}
	switch {
	case f.Store.Has(x.Hash()):
		return errKnown
	case !f.matters(x):
		return fmt.Errorf("%w: %s", errNothing, x.Offender().Short())
	case !f.Store.Room(x, false):
		return proof.ErrFull
	}
	return nil
}

// timely refuses frauds of windows that have not begun: a member that lies in one to come has a long time to lie.
func (f Frauds) timely(x proof.Fraud) error {
	now, err := f.Slot()
	if err != nil {
		return err
	}
	if w := audit.WindowOf(now, f.Store.cfg.Genesis.AuditSlots); x.Answer.Window > w {
		return fmt.Errorf("%w: window %d, now %d", errNotYet, uint64(x.Answer.Window), uint64(w))
	}
	return nil
}

// matters reports whether an offender has something to lose: a stake, or else a known name. False openings under an
// unknown name are the answers of canaries, which any peer may give.
func (f Frauds) matters(x proof.Fraud) bool {
	staked, known := f.Staked(x.Offender())
	if !known {
		return x.Lie.Kind != audit.FalseOpening
	}
	return staked
}

// Check implements Handler.
func (f Frauds) Check(_ context.Context, c proof.Content) error {
	_, err := proof.Check(c, f.Store.cfg.Genesis)
	return err
}

// Take implements Handler.
func (f Frauds) Take(ctx context.Context, c proof.Content) error {
	_, err := f.Store.Keep(ctx, c, false)
	return err
}

// Publish implements Handler: the newest first.
func (f Frauds) Publish(ctx context.Context) (out []proof.Content) {
	for _, e := range f.Store.List(proof.KindFraud) {
		if !e.Own || e.State == proof.StateExpired || time.Since(e.Found) > publishFor {
			continue
		}
		p, _, err := f.Store.Get(ctx, e.Hash)
		if err != nil {
			continue // it made room since
		}
		if c, err := p.Open(); err == nil && f.matters(c.(proof.Fraud)) {
			out = append(out, c)
		}
	}
	return out
}
