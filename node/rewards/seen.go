package rewards

import (
	"context"
	"errors"

	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

// maxWindows bounds the windows that are remembered between passes.
const maxWindows = 1024

// checkOne verifies a certificate against this peer's data about its window, noted or still available.
func (r *archive) checkOne(ctx context.Context, c audit.Certificate) error {
	w := c.Target().Window
	r.mu.Lock()
	seen, known := r.windows[w]
	r.mu.Unlock()
	if !known {
		var err error
		if seen, err = r.keep.seen(ctx, w); errors.Is(err, store.ErrNotFound) {
			seen, err = r.cfg.Sight.Seen(ctx, w)
		}
		if err != nil {
			return err
		}
		r.mu.Lock()
		if len(r.windows) >= maxWindows {
			clear(r.windows)
		}
		r.windows[w] = seen
		r.mu.Unlock()
	}
	return c.Check(r.cfg.Sight.Rules(), seen)
}
