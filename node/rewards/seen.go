package rewards

import (
	"context"
	"errors"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

// maxWindows bounds what is remembered of windows between looks.
const maxWindows = 1024

// windowKey names what certificates are held against: a window's, or where peers make beacons one provider's in it.
type windowKey struct {
	window   audit.Window
	provider sign.Key
}

// checkOne verifies a certificate against what this peer knows of its window. A beacon that was verified once is not verified again.
func (s *Service) checkOne(ctx context.Context, c audit.Certificate) error {
	at := windowKey{window: c.Target().Window}
	if s.cfg.Sight.Rules().Source() == audit.ByReveal {
		at.provider = c.Target().Provider
	}
	s.mu.Lock()
	seen, known := s.windows[at]
	s.mu.Unlock()
	if !known {
		var err error
		if seen, err = s.seen(ctx, at.window); err != nil {
			return err
		}
	}
	era, err := c.Check(s.cfg.Sight.Rules(), seen)
	if err != nil || known && seen.Knows(c) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.windows) >= maxWindows {
		clear(s.windows)
	}
	s.windows[at] = seen.With(c, era)
	return nil
}

// seen is what this peer knows of a window: what it noted, or what it can still learn. Of a window that it did not see it takes the
// roster that it knows now; and when it began from the window nearest to it of which it knows that.
func (s *Service) seen(ctx context.Context, w audit.Window) (audit.Seen, error) {
	noted, err := s.keep.seen(ctx, w)
	if !errors.Is(err, store.ErrNotFound) {
		return noted, err
	}
	out, err := s.cfg.Sight.Seen(ctx, w)
	if err != nil || s.cfg.Sight.Rules().Source() != audit.Drand {
		return out, err
	}
	return out, s.keep.eachSeen(ctx, func(other audit.Window, seen audit.Seen) {
		if near := s.cfg.Sight.Rules().Beside(other, seen, w); near.Within < out.Within {
			out.Began, out.Within = near.Began, near.Within
		}
	})
}
