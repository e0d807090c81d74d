package proven

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight/sighttest"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// town is a network on which providers sell units that claim cards. Units are processors, of which a record is made in a moment, taken for
// cards.
type town struct {
	*sighttest.Still
	c       audittest.Case
	records map[sign.Key]audit.Record
	cards   map[sign.Key]market.Card
}

func newTown() *town {
	t := &town{Still: &sighttest.Still{At: 50}, c: audittest.New(7), records: map[sign.Key]audit.Record{}, cards: map[sign.Key]market.Card{}}
	t.Bonded, t.c.Beacons = t.c.Roster, t.Block
	return t
}

// passes has the unit of a provider pass in the window that is now.
func (w *town) passes(t *testing.T, name, uuid string) {
	t.Helper()
	c, key := w.c, audittest.Key(name)
	card := market.Card{Class: "cpu", Tag: market.TagOf(uuid)}
	c.Provider, c.Unit, c.Window = key, card.Unit(key.Key()), w.At
	var err error
	if c.Shape, c.Walk, err = audit.Plan("cpu", audittest.Small); err != nil {
		t.Fatal(err)
	}
	c.Verdict = func(v *audit.Verdict) { v.Walk, v.Slot = 60_000, w.Instants().Of(w.At) }
	w.records[key.Key()], w.cards[key.Key()] = made(t, c), card
}

func (w *town) list(of sign.Key) []market.Shown {
	r := w.records[of]
	return []market.Shown{{Unit: r.Answer.Unit, Record: r.Hash()}}
}

func (w *town) ask(_ context.Context, from sign.Key, req *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
	if len(req.Offered) > 0 {
		b, err := market.MarshalShown(w.list(from))
		return &nodepb.ProofReply{Shown: b}, err
	}
	return &nodepb.ProofReply{Proof: carried(w.records[from].Marshal()), Card: w.cards[from].Marshal()}, nil
}

// buyer is a reader that has seen nothing.
func (w *town) buyer() *Proofs {
	p := New(Config{
		Domain: audittest.Domain(), WindowSlots: sighttest.Slots, Sight: w, Ask: w.ask, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Until: func(market.Slot) time.Duration { return 0 },
	})
	p.alone = func(market.Class) bool { return true }
	return p
}

// buys has a buyer check a provider's unit: nil is that it is sold as proven.
func (w *town) buys(t *testing.T, p *Proofs, name string) error {
	t.Helper()
	key := audittest.Key(name).Key()
	o := market.Offer{Provider: key, Class: "cpu", PerUnit: audittest.Small, Units: 1, Total: 1, Proven: 1}
	var err error
	if o.Proof, err = market.ProofRoot(w.list(key)); err != nil {
		t.Fatal(err)
	}
	err = p.CheckUnits(t.Context(), o, []market.UnitID{w.records[key].Answer.Unit})
	if shown := p.Shown(o); (shown.Units == 1) != (err == nil) {
		t.Errorf("%d are shown, %q: %v", shown.Units, shown.Doubt, err)
	}
	return err
}

// Somebody copies a card's UUID. The owner sells on; the other waits until both passed in one window.
func TestUUIDCollision(t *testing.T) {
	t.Parallel()
	const uuid = "GPU-5a1b6c1e-0000-4000-8000-000000000001"
	waits := func(err error) bool {
		return errors.Is(err, ErrUnproven) && strings.Contains(err.Error(), "card: also claimed by")
	}
	w := newTown()
	w.passes(t, "owner", uuid)
	w.At = 51
	w.passes(t, "thief", uuid)
	p := w.buyer()
	if err := w.buys(t, p, "owner"); err != nil {
		t.Errorf("the owner: %v", err)
	}
	if err := w.buys(t, p, "thief"); !waits(err) {
		t.Errorf("the thief: %v", err)
	}
	// Who saw the thief first goes by the windows all the same.
	late := w.buyer()
	if err := w.buys(t, late, "thief"); err != nil {
		t.Errorf("nobody else is known to claim the card: %v", err)
	}
	if err := w.buys(t, late, "owner"); err != nil {
		t.Errorf("the owner, seen later: %v", err)
	}
	if err := w.buys(t, late, "thief"); !waits(err) {
		t.Errorf("the thief, once the owner was seen: %v", err)
	}
	w.At = 52
	w.passes(t, "owner", uuid)
	w.passes(t, "thief", uuid)
	for _, name := range []string{"owner", "thief"} {
		if err := w.buys(t, p, name); err != nil {
			t.Errorf("%s, when both passed in one window: %v", name, err)
		}
	}
	// A card that is not the unit's shows nothing.
	w = newTown()
	w.passes(t, "owner", uuid)
	w.cards[audittest.Key("owner").Key()] = market.Card{Class: "cpu", Tag: market.TagOf("another")}
	if err := w.buys(t, w.buyer(), "owner"); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "card mismatch") {
		t.Errorf("another card: %v", err)
	}
}
