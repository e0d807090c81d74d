package proven

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// town is a network on which providers sell units that claim cards. Units are processors, of which a record is made in a moment, taken for
// cards.
type town struct {
	*still
	c       audittest.Case
	records map[sign.Key]audit.Record
	cards   map[sign.Key]market.Card
}

func newTown() *town {
	t := &town{still: &still{window: 50}, c: audittest.New(7), records: map[sign.Key]audit.Record{}, cards: map[sign.Key]market.Card{}}
	t.roster, t.c.Beacons = t.c.Roster, t.block
	return t
}

// passes has the unit of a provider pass in the window that is now.
func (w *town) passes(t *testing.T, name, uuid string) {
	t.Helper()
	c, key := w.c, audittest.Key(name)
	card := market.Card{Class: "cpu", Tag: market.TagOf(uuid)}
	c.Provider, c.Unit, c.Window = key, card.Unit(key.Key()), w.window
	var err error
	if c.Shape, c.Walk, err = audit.Plan("cpu", audittest.Small); err != nil {
		t.Fatal(err)
	}
	c.Verdict = func(v *audit.Verdict) { v.Walk, v.Slot = 60_000, w.Instants().Of(w.window) }
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
		Domain: audittest.Domain(), WindowSlots: stillSlots, Sight: w, Ask: w.ask, Log: slog.New(slog.DiscardHandler), Now: time.Now,
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
		return errors.Is(err, ErrUnproven) && strings.Contains(err.Error(), "its card is also claimed by")
	}
	w := newTown()
	w.passes(t, "owner", uuid)
	w.window = 51
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
	w.window = 52
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
	if err := w.buys(t, w.buyer(), "owner"); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "is not on the card") {
		t.Errorf("another card: %v", err)
	}
}

const stillSlots = 100

// still is a network that stands still in one window.
type still struct {
	window audit.Window
	roster audit.Roster
	off    int64 // slots from the window's instant to now
	oneIn  uint64
}

func (s *still) Window() (audit.Window, market.Slot, error) {
	return s.window, market.Slot(int64(s.Instants().Of(s.window)) + s.off), nil
}

func (s *still) Instants() audit.Instants {
	return audit.Instants{Slots: stillSlots, Millis: 400, OneIn: s.oneIn}
}

func (s *still) Recent() (audit.Recent, error) { return audit.Every(s.window), nil }

func (s *still) block(w audit.Window) audit.Beacon {
	first := w.First(stillSlots)
	return audit.Beacon{Slot: market.Slot(first), Value: sign.Sum(fmt.Appendf(nil, "block %d", first))}
}

func (s *still) Beacon(_ context.Context, w audit.Window) (sight.Drawn, error) {
	return sight.Drawn{Beacon: s.block(w), Era: s.block(s.Instants().EraOf(w))}, nil
}

func (s *still) Check(ctx context.Context, w audit.Window, b audit.Beacon) (audit.Beacon, error) {
	own, _ := s.Beacon(ctx, w)
	if own.Beacon != b {
		return audit.Beacon{}, errors.New("another beacon")
	}
	return own.Era, nil
}

func (s *still) Roster(context.Context, audit.Window) (audit.Roster, error) { return s.roster, nil }
