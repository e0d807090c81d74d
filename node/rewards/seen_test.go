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
	rules audit.Rules
	now   audit.Window
	seen  audit.Seen
	asked int
}

func (s *sight) Window() (audit.Window, market.Slot, error) { return s.now, s.now.First(100), nil }
func (s *sight) Rules() audit.Rules                         { return s.rules }
func (s *sight) Recent() (audit.Recent, error)              { return audit.Every(s.now), nil }

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

// Certificates are counted by who noted the window and by who was not there; what is of another roster is refused.
func TestCertificatesOfAWindow(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	e := rewards.Epoch{From: 0, To: 20}
	peer := func(now audit.Window, seen audit.Seen) (*Service, *sight) {
		eyes := &sight{rules: audit.NewRules(c.Genesis()), now: now, seen: seen}
		return New(Config{Genesis: c.Genesis(), Sight: eyes, Peers: one{r.Certificate()}, Store: store.NewMemory(), Log: slog.New(slog.DiscardHandler)}), eyes
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
	if err := fetch(away); err != nil {
		t.Errorf("who was away: %v", err)
	}
	was := eyes.asked
	if err := fetch(away); err != nil || eyes.asked != was {
		t.Errorf("who was away looks %d times more: %v", eyes.asked-was, err)
	}
	stranger, _ := peer(c.Window, audit.Seen{Beacon: c.Seen().Beacon, Era: c.Seen().Era,
		Roster: audit.Roster{{Key: sign.Key{1}, Owner: sign.Key{1}, Weight: 1}, {Key: sign.Key{2}, Owner: sign.Key{2}, Weight: 2}}})
	if rule, ok := errors.AsType[*audit.RuleError](fetch(stranger)); !ok {
		t.Errorf("another roster's: %v", rule)
	}
}
