package settle

import (
	"context"
	"errors"
	"time"

	"github.com/starling-network/starling/chain"
)

// Landing takes one transaction that must not take effect twice to the chain, and sees it final. A chain that is down
// is waited for.
type Landing struct {
	Chain interface {
		Send(ctx context.Context, tx chain.Prepared) error
		Status(ctx context.Context, tx chain.Prepared) (chain.TxStatus, error)
	}
	// Sign signs a transaction and journals it, replacing one that can never land. If it returns the zero value, it has
	// called wait with the reason, and is called again. An error ends Run.
	Sign func(ctx context.Context, wait func(error)) (chain.Prepared, error)
	// Gone is called for a transaction that had no effect, or, when forgotten, one with an outcome that no endpoint
	// remembers. It returns nil if the transaction's purpose is achieved, and chain.ErrNotFound if another one must be
	// signed. After any other error it is called again.
	Gone  func(ctx context.Context, tx chain.Prepared, forgotten bool) error
	Every time.Duration    // between polls; while nothing can be signed it doubles, up to maxRest times
	Wait  func(why string) // called with each new reason
}

// maxRest times Every is the longest that a key without fees is left alone.
const maxRest = 64

// Run begins with the journalled transaction, or the zero value if none was signed. It returns the final transaction
// and its last known state: Finalized, or another one if Gone returned nil.
func (l Landing) Run(ctx context.Context, tx chain.Prepared) (chain.Prepared, chain.TxStatus, error) {
	var said string
	wait := func(why error) {
		if why != nil && why.Error() != said {
			said = why.Error()
			l.Wait(said)
		}
	}
	for rest := l.Every; ; {
		if tx.ID == "" {
			next, err := l.Sign(ctx, wait)
			if err != nil {
				return tx, chain.TxStatus{}, err
			}
			tx = next
		}
		if tx.ID == "" {
			rest = min(2*rest, maxRest*l.Every)
		} else {
			rest = l.Every
			status, err := l.Chain.Status(ctx, tx)
			switch forgotten := errors.Is(err, chain.ErrHistory); {
			case err != nil && !forgotten:
				wait(err)
			case status.State == chain.Finalized:
				return tx, status, nil
			case forgotten || status.State.Final():
				switch gone := l.Gone(ctx, tx, forgotten); {
				case gone == nil:
					return tx, status, nil
				case errors.Is(gone, chain.ErrNotFound):
					tx = chain.Prepared{}
				default:
					wait(gone)
				}
			case status.State == chain.Unknown:
				wait(l.Chain.Send(ctx, tx)) // it is sent again until it is seen
			}
		}
		select {
		case <-ctx.Done():
			return tx, chain.TxStatus{}, ctx.Err()
		case <-time.After(rest):
		}
	}
}
