package audit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// town is a network on which providers sell units that claim cards, and their buyers. Units are processors, of which a record is made in a
// moment, taken for cards.
type town struct {
	*sight
	c       audittest.Case
	sellers map[sign.Key]*seller
	hidden  bool // nobody finds who claims a card
}

// seller is a provider with one unit.
type seller struct {
	*Service
	town *town
	key  sign.Private
	unit market.Unit
	st   store.Store
	last audit.Record
	list []market.Shown
}

func newTown() *town {
	t := &town{sight: &sight{window: 50}, c: audittest.New(7), sellers: map[sign.Key]*seller{}}
	t.roster, t.c.Beacons = t.c.Roster, t.block
	return t
}

// seller is a provider whose unit claims a card.
func (w *town) seller(t testing.TB, name, uuid string, index uint32) *seller {
	t.Helper()
	s := &seller{town: w, key: audittest.Key(name), st: store.NewMemory()}
	var err error
	if s.unit, err = market.NewUnit(s.key.Key(), "cpu", "a card", uuid, index, sold); err != nil {
		t.Fatal(err)
	}
	w.sellers[s.key.Key()] = s
	s.start(t)
	return s
}

// start is a new process of a provider, with what the one before kept.
func (s *seller) start(t testing.TB) {
	t.Helper()
	shelf, err := OpenShelf(t.Context(), s.st)
	if err != nil {
		t.Fatal(err)
	}
	s.Service = NewService(Config{
		Key: s.key, Sight: s.town, Shelf: shelf, Genesis: market.Genesis{AuditSlots: windowSlots}, Log: slog.New(slog.DiscardHandler), Claims: s.town.claims(),
		List: func(sign.Hash) []market.Shown { return s.list },
		Proven: func(record func(market.Unit) (sign.Hash, bool)) {
			s.list = nil
			if hash, ok := record(s.unit); ok {
				s.list = []market.Shown{{Unit: s.unit.ID, Record: hash}}
			}
		},
	})
	s.alone = func(market.Class) bool { return true }
	s.offer(t.Context())
}

// passes has the unit pass in an attempt of the window that is now.
func (s *seller) passes(t testing.TB, attempt uint8) audit.Record {
	t.Helper()
	c := s.town.c
	c.Provider, c.Unit, c.Window, c.Attempt = s.key, s.unit.ID, s.town.window, attempt
	if s.last.WindowSlots > 0 {
		c.Since = s.last.Line()
	}
	var err error
	if c.Shape, c.Walk, err = audit.Plan("cpu", sold); err != nil {
		t.Fatal(err)
	}
	c.Verdict = s.town.quick
	s.last = made(t, c)
	passed := Result{Unit: Claim{ID: s.unit.ID, Class: "cpu", Resources: sold}, Record: s.last}
	if err := s.cfg.Shelf.Put(t.Context(), passed, s.town.window, time.Unix(0, 0), nil); err != nil {
		t.Fatal(err)
	}
	s.offer(t.Context())
	return s.last
}

// quick makes a verdict that of a unit that began at the window's instant and kept its class's times.
func (w *town) quick(v *audit.Verdict) {
	v.Walk, v.Slot = 60_000, w.Instants().Of(w.window, w.block(w.window))
}

// claims are those of a peer of the town.
func (w *town) claims() *Claims {
	return NewClaims(ClaimsConfig{
		Domain: audittest.Domain(), WindowSlots: windowSlots, Sight: w, Ask: w.ask, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Find: func(_ context.Context, tag sign.Hash, most int) (out []sign.Key, err error) {
			for k, s := range w.sellers {
				if !w.hidden && s.unit.Card().Tag == tag && len(out) < most {
					out = append(out, k)
				}
			}
			return append(out, sign.Key{1}), nil // and one that is not there
		},
	})
}

func (w *town) ask(_ context.Context, from sign.Key, req *nodepb.RecordRequest) (*nodepb.RecordReply, error) {
	if s := w.sellers[from]; s != nil {
		return s.show(req)
	}
	return nil, stream.Refuse(CodeUnknown, "no such peer")
}

// buyer is a reader that has seen nothing.
func (w *town) buyer() *Proofs {
	p := NewProofs(ProofsConfig{
		Domain: audittest.Domain(), WindowSlots: windowSlots, Sight: w, Ask: w.ask, Log: slog.New(slog.DiscardHandler), Now: time.Now, Claims: w.claims(),
		Until: func(market.Slot) time.Duration { return 0 },
	})
	p.alone = func(market.Class) bool { return true }
	return p
}

// offers is what a seller offers now: its newest record, whatever it thinks of it.
func (s *seller) offers(t testing.TB) market.Offer {
	t.Helper()
	_, hash, _ := s.cfg.Shelf.newest(s.unit.ID)
	s.list = []market.Shown{{Unit: s.unit.ID, Record: hash}}
	o := market.Offer{Provider: s.key.Key(), Class: "cpu", PerUnit: sold, Units: 1, Total: 1, Proven: 1}
	var err error
	if o.Proof, err = market.ProofRoot(s.list); err != nil {
		t.Fatal(err)
	}
	return o
}

// buys has a buyer check a seller's unit: nil is that it is sold as proven.
func (s *seller) buys(t testing.TB, p *Proofs) error {
	t.Helper()
	o := s.offers(t)
	err := p.CheckUnits(t.Context(), o, []market.UnitID{s.unit.ID})
	if shown := p.Shown(o); (shown.Units == 1) != (err == nil) {
		t.Errorf("%d are shown, %q: %v", shown.Units, shown.Doubt, err)
	}
	return err
}

// wantSold checks what any buyer makes of a seller: one that sees it first, and one that sees others first.
func (w *town) wantSold(t *testing.T, what string, s *seller, frozen string, others ...*seller) {
	t.Helper()
	readers := map[string]*Proofs{"the first seen": w.buyer(), "the last seen": w.buyer()}
	for _, o := range others {
		_ = o.buys(t, readers["the last seen"])
	}
	for who, p := range readers {
		err := s.buys(t, p)
		if frozen == "" && err != nil || frozen != "" && (err == nil || !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), frozen)) {
			t.Errorf("%s, %s: %v, want %q", what, who, err, frozen)
		}
	}
}

const uuid = "GPU-5a1b6c1e-0000-4000-8000-000000000001"

// Somebody copies a card's UUID. The owner sells on, whoever is seen first; the other does when both passed at once, and when the owner is
// gone. What each sells by is in the records, also for a buyer that sees them for the first time.
func TestUUIDCollision(t *testing.T) {
	t.Parallel()
	w := newTown()
	owner := w.seller(t, "owner", uuid, 0)
	owner.passes(t, 1)
	w.window = 51
	owner.passes(t, 1)
	// The thief has hardware that passes, and answers in windows in which the owner works for somebody.
	thief := w.seller(t, "thief", uuid, 0)
	w.window = 52
	thief.passes(t, 1)
	const frozen = "frozen: its card is also claimed by"
	w.wantSold(t, "the owner", owner, "", thief)
	w.wantSold(t, "the thief", thief, frozen, owner)

	// Who looked at the thief before anybody knew of the owner learns of it; and the thief's peer knows it by itself.
	w.hidden = true
	early := w.buyer()
	if err := thief.buys(t, early); err != nil {
		t.Errorf("nobody else is known to claim it: %v", err)
	}
	if err := owner.buys(t, early); err != nil {
		t.Errorf("the owner: %v", err)
	}
	if err := thief.buys(t, early); err == nil {
		t.Error("the thief sells on")
	}
	w.hidden = false
	if !thief.rivals(t.Context()) || len(thief.list) != 1 {
		t.Fatal("the thief does not see that it waits")
	}
	if thief.offer(t.Context()); len(thief.list) != 0 || thief.held(thief.unit.ID).Hold != audit.Frozen {
		t.Error("the thief offers as proven what no buyer takes for proven")
	}
	if owner.rivals(t.Context()) || owner.held(owner.unit.ID).Hold != audit.First {
		t.Errorf("the owner is %s", owner.held(owner.unit.ID).Hold)
	}

	// At once: there are two cards.
	w.window = 53
	owner.passes(t, 1)
	thief.passes(t, 2)
	w.wantSold(t, "the owner", owner, "", thief)
	w.wantSold(t, "who is let go", thief, "", owner)
	for _, s := range []*seller{owner, thief} {
		if s.rivals(t.Context()) || !strings.Contains(s.held(s.unit.ID).Note(), "is also claimed by") {
			t.Errorf("%s: %q", s.key.Key().Short(), s.held(s.unit.ID).Note())
		}
	}
	if s := owner.cfg.Shelf.beside(owner.unit.ID); len(s) != 1 {
		t.Fatalf("%d passed at once with the owner's", len(s))
	}

	// The owner works for somebody, and its last record is of that window. Who comes now sees that both passed in it, by what the other
	// shows, which a restart does not lose.
	for w.window < 57 {
		w.window++
		thief.passes(t, 1)
	}
	thief.start(t)
	w.wantSold(t, "while the owner works", thief, "", owner)
	pairs := thief.cfg.Shelf.besides
	thief.cfg.Shelf.besides = map[market.UnitID][]shown{}
	w.wantSold(t, "without what shows it", thief, frozen, owner)
	thief.cfg.Shelf.besides = pairs

	// That is forgotten, and the owner still there: it waits again. The owner is gone: it does not.
	for w.window < 53+audit.Gone {
		w.window++
	}
	thief.passes(t, 1)
	w.wantSold(t, "in the last window that counts", thief, "", owner)
	w.window++
	thief.passes(t, 1)
	w.wantSold(t, "the owner is gone", thief, "")
	w.window++
	owner.passes(t, 1)
	w.wantSold(t, "the owner is back", owner, "", thief)
	w.wantSold(t, "and it waits again", thief, frozen, owner)
}

// One provider has one unit of a card.
func TestUUIDTwiceOfOneProvider(t *testing.T) {
	t.Parallel()
	w := newTown()
	one := w.seller(t, "greedy", uuid, 0)
	one.passes(t, 1)
	delete(w.sellers, one.key.Key())
	two := w.seller(t, "greedy", uuid, 1)
	two.passes(t, 2)
	p := w.buyer()
	if err := two.buys(t, p); err != nil {
		t.Errorf("nothing is known of the other: %v", err)
	}
	w.sellers[one.key.Key()] = one
	for _, s := range []*seller{one, two, one} {
		w.sellers[s.key.Key()] = s
		if err := s.buys(t, p); err == nil && s != two || err != nil && !strings.Contains(err.Error(), "claims the same card for unit") {
			t.Errorf("unit %s: %v", s.unit.ID.Short(), err)
		}
	}
	if err := two.buys(t, p); err == nil {
		t.Error("two units of one card passed in one window, and one is sold")
	}
}

// What a peer shows of its card is bounded, opened by its unit's id, and believed for nothing.
func TestCardsRefuse(t *testing.T) {
	t.Parallel()
	w := newTown()
	owner := w.seller(t, "owner", uuid, 0)
	owner.passes(t, 1)
	w.window = 51
	before := owner.passes(t, 2)
	other := w.seller(t, "other", uuid, 0)
	other.passes(t, 1)
	for what, req := range map[string]*nodepb.RecordRequest{"a short tag": {Card: []byte{1}}, "another card": {Card: make([]byte, 32)}} {
		if _, err := owner.show(req); err == nil {
			t.Errorf("%s: it is shown", what)
		}
	}
	tag := market.TagOf(uuid)
	// What one who claims the card shows to who asks for it.
	show := func(change func(r *nodepb.RecordReply)) func(context.Context, sign.Key, *nodepb.RecordRequest) (*nodepb.RecordReply, error) {
		return func(ctx context.Context, from sign.Key, req *nodepb.RecordRequest) (*nodepb.RecordReply, error) {
			r, err := w.ask(ctx, from, req)
			if err == nil && from == owner.key.Key() && len(r.Record) > 0 {
				change(r)
			}
			return r, err
		}
	}
	bent := func(i int) func(r *nodepb.RecordReply) {
		return func(r *nodepb.RecordReply) { r.Record = slices.Clone(r.Record); r.Record[len(r.Record)-i] ^= 1 }
	}
	for what, change := range map[string]func(r *nodepb.RecordReply){
		"no record":        func(r *nodepb.RecordReply) { r.Record = nil },
		"a false record":   bent(1),
		"no card":          func(r *nodepb.RecordReply) { r.Card = nil },
		"another card":     func(r *nodepb.RecordReply) { r.Card = market.Card{Class: "cpu", Tag: sign.Hash{1}}.Marshal() },
		"another class":    func(r *nodepb.RecordReply) { r.Card = market.Card{Class: "gpu/h100", Tag: tag}.Marshal() },
		"other resources":  func(r *nodepb.RecordReply) { r.Has.MilliCpu *= 2 },
		"no resources":     func(r *nodepb.RecordReply) { r.Has = nil },
		"another's record": func(r *nodepb.RecordReply) { r.Record, r.Card = other.last.Marshal(), other.unit.Card().Marshal() },
	} {
		c := w.claims()
		c.cfg.Ask = show(change)
		if got := c.Look(t.Context(), other.key.Key(), tag, other.unit.ID); len(got) != 0 {
			t.Errorf("%s: it is taken for a claim", what)
		}
		p := w.buyer()
		p.cfg.Ask = c.cfg.Ask
		if err := owner.buys(t, p); err == nil && what != "other resources" && what != "no resources" {
			t.Errorf("%s: its unit is sold", what)
		}
	}
	// What shows that two passed at once, and does not.
	w.window = 52
	a, b := owner.passes(t, 1), other.passes(t, 1)
	good := func() *nodepb.Beside {
		return &nodepb.Beside{Own: b.Certificate().Marshal(), Other: a.Certificate().Marshal(), Card: owner.unit.Card().Marshal(), Has: hasOf(sold)}
	}
	slow := w.c
	slow.Provider, slow.Unit, slow.Window, slow.Attempt, slow.Shape, slow.Walk = owner.key, owner.unit.ID, 52, 1, a.Answer.Shape, a.Answer.Walk
	slow.Verdict = func(v *audit.Verdict) { w.quick(v); v.Product *= 10 }
	wrong := made(t, slow)
	w.window = 53
	for what, change := range map[string]func(p *nodepb.Beside){
		"":                      func(*nodepb.Beside) {},
		"nothing":               func(p *nodepb.Beside) { proto.Reset(p) },
		"too much":              func(p *nodepb.Beside) { p.Other = make([]byte, audit.MaxCertificate+1) },
		"bytes after it":        func(p *nodepb.Beside) { p.Own = append(p.Own, 0) },
		"no signature":          func(p *nodepb.Beside) { p.Other[len(p.Other)-1] ^= 1 },
		"of another card":       func(p *nodepb.Beside) { p.Card = market.Card{Class: "cpu", Tag: sign.Hash{1}}.Marshal() },
		"in another window":     func(p *nodepb.Beside) { p.Other = before.Certificate().Marshal() },
		"of another's unit":     func(p *nodepb.Beside) { p.Own, p.Other, p.Card = p.Other, p.Own, other.unit.Card().Marshal() },
		"slower than its class": func(p *nodepb.Beside) { p.Other = wrong.Certificate().Marshal() },
		"other resources":       func(p *nodepb.Beside) { p.Has.MilliCpu *= 2 },
	} {
		p := good()
		change(p)
		c := w.claims()
		c.see(tag, b)
		if err := c.beside(t.Context(), other.key.Key(), other.unit.Card(), sold, []*nodepb.Beside{p}); (err == nil) != (what == "") {
			t.Errorf("%s: %v", what, err)
		}
		if c.cards.Saw(tag, a) != (what == "") {
			t.Errorf("%s: it is taken", what)
		}
	}
}

// The claims of one peer are looked at and looked for by many at once.
func TestClaimsAtOnce(t *testing.T) {
	t.Parallel()
	w := newTown()
	owner, other := w.seller(t, "owner", uuid, 0), w.seller(t, "other", uuid, 0)
	owner.passes(t, 1)
	w.window = 51
	other.passes(t, 1)
	o, p := other.offers(t), w.buyer()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_ = p.CheckUnits(t.Context(), o, []market.UnitID{other.unit.ID})
			p.Shown(o)
		})
	}
	wg.Wait()
	if err := other.buys(t, p); err == nil {
		t.Error("a newcomer is sold")
	}
}
