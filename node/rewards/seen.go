package rewards

import (
	"context"
	"errors"

	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

// maxWindows bounds the memory of windows between looks.
const maxWindows = 1024

// checkOne verifies a certificate against this peer's data about its window, noted or still available.
func (s *Service) checkOne(ctx context.Context, c audit.Certificate) error {
	w := c.Target().Window
	s.mu.Lock()
	seen, known := s.windows[w]
	s.mu.Unlock()
	if !known {
		var err error
		if seen, err = s.keep.seen(ctx, w); errors.Is(err, store.ErrNotFound) {
			seen, err = s.cfg.Sight.Seen(ctx, w)
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		if len(s.windows) >= maxWindows {
			clear(s.windows)
		}
		s.windows[w] = seen
		s.mu.Unlock()
	}
	return c.Check(s.cfg.Sight.Rules(), seen)
}
