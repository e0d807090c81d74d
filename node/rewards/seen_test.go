package rewards

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// sight is what a peer sees of windows: of one what it is, of the others that it was not there.
type sight struct {
	rules *audit.Beacons
	now   audit.Window
	seen  audit.Seen
	asked int
}

func (s *sight) Window() (audit.Window, market.Slot, error) { return s.now, s.now.First(100), nil }
func (s *sight) Rules() *audit.Beacons                      { return s.rules }

func (s *sight) Seen(_ context.Context, w audit.Window) (audit.Seen, error) {
	s.asked++
	if w > s.now {
		return audit.Seen{}, chain.ErrNotFound
	}
	return s.seen, nil
}

// one is a peer that answers with the certificate of one unit.
type one struct{ audit.Certificate }

func (o one) Read(context.Context, sign.Key, Document, int) ([]byte, error) { return o.Marshal(), nil }

// Certificates are counted whatever a network's beacons are, by who noted the window and by who was not there. Of drand's rounds the one
// that was not there tells the window's from another by when it noted windows beside it; what is another's is refused in each.
func TestBeaconsOfEveryKind(t *testing.T) {
	t.Parallel()
	for _, by := range market.Beacons {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			c, g, err := audittest.NewBy(by, 7)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.Make()
			if err != nil {
				t.Fatal(err)
			}
			rules, err := audit.NewBeacons(g)
			if err != nil {
				t.Fatal(err)
			}
			e := rewards.Epoch{From: 0, To: 20}
			peer := func(now audit.Window, seen audit.Seen) (*Service, *sight) {
				eyes := &sight{rules: rules, now: now, seen: seen}
				return New(Config{Genesis: g, Sight: eyes, Peers: one{r.Certificate()}, Store: store.NewMemory(), Log: slog.New(slog.DiscardHandler)}), eyes
			}
			fetch := func(s *Service) error {
				cs, err := s.fetch(t.Context(), sign.Key{9}, e, rewards.UnitKey{Provider: c.Provider.Key(), Unit: c.Unit})
				if err == nil && len(cs) != 1 {
					t.Errorf("%d certificates", len(cs))
				}
				return err
			}
			there, eyes := peer(c.Window, c.Seen())
			if err := there.note(t.Context()); err != nil {
				t.Fatal(err)
			}
			eyes.seen = audit.Seen{} // what was noted is enough
			for range 2 {
				if err := fetch(there); err != nil {
					t.Errorf("who was there: %v", err)
				}
			}
			away, eyes := peer(c.Window+9, c.Seen())
			eyes.seen.Within = 1000 // it is long ago
			if err := fetch(away); err != nil {
				t.Errorf("who was away: %v", err)
			}
			was := eyes.asked
			if err := fetch(away); err != nil || eyes.asked != was {
				t.Errorf("who was away looks %d times more: %v", eyes.asked-was, err)
			}
			stranger, _ := peer(c.Window, audit.Seen{Beacon: c.Seen().Beacon, Era: c.Seen().Era, Began: audittest.Began, Within: 5,
				Roster: audit.Roster{{Key: sign.Key{1}, Owner: sign.Key{1}, Weight: 1}, {Key: sign.Key{2}, Owner: sign.Key{2}, Weight: 2}}})
			if rule, ok := errors.AsType[*audit.RuleError](fetch(stranger)); !ok {
				t.Errorf("another roster's: %v", rule)
			}
			if by != market.ByDrand {
				return
			}
			// It noted that window 3 began when, by this round, window 7 would have: the round is not that of window 7.
			late, eyes := peer(c.Window+9, c.Seen())
			eyes.seen.Within = 1000
			if err := late.keep.see(t.Context(), 3, audit.Seen{Roster: c.Roster, Began: audittest.Began, Within: 5}); err != nil {
				t.Fatal(err)
			}
			if rule, ok := errors.AsType[*audit.RuleError](fetch(late)); !ok || rule.Rule != audit.RuleTime {
				t.Errorf("another window's round: %v", rule)
			}
		})
	}
}
