package proven

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// records of units that pass, made once for all tests.
var passing = sync.OnceValue(func() []audit.Record {
	var out []audit.Record
	for i := range 3 {
		r, err := audittest.NewUnit(fmt.Sprintf("unit %d", i)).Make()
		if err != nil {
			panic(err)
		}
		out = append(out, r)
	}
	return out
})

func made(t testing.TB, c audittest.Case) audit.Record {
	t.Helper()
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// facts are what the reader of the tests sees of the network.
type facts struct {
	audittest.Case
	window audit.Window
	slot   error
	beacon func(audit.Beacon) audit.Beacon
	roster audit.Roster
}

func (f *facts) Window() (audit.Window, market.Slot, error) {
	return f.window, f.window.First(f.Slots) + 3, f.slot
}

func (f *facts) Instants() audit.Instants { return f.Case.Instants() }

func (f *facts) Recent() (audit.Recent, error) { return audit.Every(f.window), nil }

func (f *facts) Beacon(_ context.Context, w audit.Window) (sight.Drawn, error) {
	return sight.Drawn{Beacon: f.beacon(f.Case.Beacon()), Era: f.beacon(f.Era())}, nil
}

func (f *facts) Check(ctx context.Context, w audit.Window, b audit.Beacon) (audit.Beacon, error) {
	own, err := f.Beacon(ctx, w)
	if err == nil && own.Beacon != b {
		err = &audit.RuleError{Rule: audit.RuleBeacon, Detail: "another beacon"}
	}
	return own.Era, err
}

func (f *facts) Roster(context.Context, audit.Window) (audit.Roster, error) { return f.roster, nil }

// bazaar is a provider with an offer, and a reader of what it shows.
type bazaar struct {
	*Proofs
	facts   *facts
	now     time.Time
	offer   market.Offer
	lists   map[sign.Hash][]byte
	records map[sign.Hash][]byte

	mu    sync.Mutex
	asked int
	down  error
}

// bazaarOf is one whose provider offers units by records; shown changes the list before it is offered.
func bazaarOf(t testing.TB, rs []audit.Record, shown func([]market.Shown)) *bazaar {
	t.Helper()
	c := audittest.New(7)
	b := &bazaar{
		facts: &facts{Case: c, window: c.Window, beacon: func(b audit.Beacon) audit.Beacon { return b }, roster: c.Roster},
		now:   time.Unix(1_700_000_000, 0), lists: map[sign.Hash][]byte{}, records: map[sign.Hash][]byte{},
	}
	var list []market.Shown
	for _, r := range rs {
		list = append(list, market.Shown{Unit: r.Answer.Unit, Record: r.Hash()})
		b.records[r.Hash()] = r.Marshal()
	}
	if shown != nil {
		shown(list)
	}
	b.offer = market.Offer{Provider: c.Provider.Key(), Class: "cpu", PerUnit: audittest.Small, Units: uint32(len(list)), Total: uint32(len(list)), Proven: uint32(len(list))}
	b.offer.Proof = b.list(t, list)
	b.Proofs = New(Config{
		Domain: audittest.Domain(), WindowSlots: c.Slots, Sight: b.facts, Ask: b.answer, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return b.now },
		Until: func(s market.Slot) time.Duration { return time.Duration(s) },
	})
	return b
}

// list has the provider give a list, and is its root.
func (b *bazaar) list(t testing.TB, list []market.Shown) sign.Hash {
	t.Helper()
	root, err := market.ProofRoot(list)
	if err != nil {
		t.Fatal(err)
	}
	if b.lists[root], err = market.MarshalShown(list); err != nil {
		t.Fatal(err)
	}
	return root
}

func (b *bazaar) answer(_ context.Context, from sign.Key, req *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if b.down != nil {
		return nil, b.down
	}
	if len(req.Offered) > 0 {
		if list := b.lists[sign.Hash(req.Offered)]; list != nil {
			return &nodepb.ProofReply{Shown: list}, nil
		}
	} else if r := b.records[sign.Hash(req.Hash)]; r != nil {
		return &nodepb.ProofReply{Proof: carried(r)}, nil
	}
	return nil, stream.Refuse("unknown", "no such thing")
}

// requests is how many there were since it was asked last.
func (b *bazaar) requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.asked
	b.asked = 0
	return n
}

// check looks into the offer and says how many units are proven, and why no more.
func (b *bazaar) check(t *testing.T, need int) (units uint32, doubt string) {
	t.Helper()
	b.Check(t.Context(), b.offer, need)
	s := b.Shown(b.offer)
	return s.Units, s.Doubt
}

// What a provider shows is fetched and checked once, counts while it is fresh, and says how fast the units are.
func TestProofs(t *testing.T) {
	t.Parallel()
	b := bazaarOf(t, passing(), nil)
	if s := b.Shown(b.offer); s.Units != 0 || s.Doubt != "records are not checked yet" || b.requests() != 0 {
		t.Errorf("before: %+v", s)
	}
	if units, doubt := b.check(t, 1); units != 3 || doubt != "" || b.requests() != 4 {
		t.Errorf("%d units, %q", units, doubt)
	}
	s := b.Shown(b.offer)
	if want := passing()[0].Rates(); s.Operations != want.Operations || s.Reads != want.Reads {
		t.Errorf("%+v, its records say %+v", s, want)
	}
	unit := passing()[1].Answer.Unit
	if units, _ := b.check(t, 3); units != 3 || b.CheckUnits(t.Context(), b.offer, []market.UnitID{unit}) != nil || b.requests() != 0 {
		t.Error("it is all known, and was asked for again")
	}
	// What a lease is held against is the slowest of its units, and nothing where one is not known.
	if got := b.Rate(b.offer.Provider, []market.UnitID{unit, passing()[0].Answer.Unit}); got != s.Operations {
		t.Errorf("%d operations a second are proven, the records say %d", got, s.Operations)
	}
	for _, units := range [][]market.UnitID{nil, {unit, {1}}} {
		if got := b.Rate(b.offer.Provider, units); got != 0 {
			t.Errorf("%d operations a second of %v", got, units)
		}
	}
	if got := b.Rate(sign.Key{7}, []market.UnitID{unit}); got != 0 {
		t.Errorf("%d operations a second of another's", got)
	}
	other := b.offer
	other.PerUnit.MemoryMiB++
	if s := b.Shown(other); s.Units != 0 {
		t.Errorf("an offer of other units: %+v", s)
	}
	if err := b.CheckUnits(t.Context(), b.offer, []market.UnitID{unit, {1}}); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "not among the 3") {
		t.Error(err)
	}
	none := b.offer
	none.Proof = sign.Hash{}
	if s := b.Shown(none); s.Units != 0 || s.Doubt != "the offer names no fresh audit record" {
		t.Errorf("%+v", s)
	}
	// The window after, its unit may still be sold; not in the one after that.
	for after, want := range []uint32{3, 3, 0} {
		b.facts.window = b.facts.Case.Window + audit.Window(after)
		if s := b.Shown(b.offer); s.Units != want {
			t.Errorf("%d windows later: %+v", after, s)
		}
	}
	if err := b.CheckUnits(t.Context(), b.offer, []market.UnitID{unit}); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "rule fresh") {
		t.Error(err)
	}
}

// The record of a unit that is leased is fetched when it was not checked before.
func TestProofsOfLeasedUnits(t *testing.T) {
	t.Parallel()
	b := bazaarOf(t, passing(), nil)
	unit := passing()[2].Answer.Unit
	if err := b.CheckUnits(t.Context(), b.offer, []market.UnitID{unit}); err != nil || b.requests() != 2 {
		t.Error(err)
	}
	if s := b.Shown(b.offer); s.Units != 1 || s.Doubt != "not all records are checked yet" {
		t.Errorf("%+v", s)
	}
	b.down = errors.New("no route")
	if err := b.CheckUnits(t.Context(), b.offer, []market.UnitID{passing()[0].Answer.Unit}); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "no route") {
		t.Error(err)
	}
	if err := b.CheckUnits(t.Context(), b.offer, []market.UnitID{unit}); err != nil {
		t.Error("what is known needs nobody's answer", err)
	}
}

// TestProofsRefuse has a provider offer what does not show its unit.
func TestProofsRefuse(t *testing.T) {
	t.Parallel()
	good := passing()[:1]
	one := func(change func(c *audittest.Case)) []audit.Record {
		c := audittest.NewUnit("unit 0")
		change(&c)
		return []audit.Record{made(t, c)}
	}
	slow := func(c *audittest.Case) {
		c.Verdict = func(v *audit.Verdict) { v.Walk = 60_000; v.Product = 5_000_000 }
	}
	wrong := func(c *audittest.Case) {
		c.Opening = func(i int, o *challenge.Opening) { o.Values[0]++ }
	}
	bent := func(r []audit.Record) []audit.Record {
		x := r[0]
		x.AnswerSig[3] ^= 1
		return []audit.Record{x}
	}
	for name, c := range map[string]struct {
		records []audit.Record
		list    func([]market.Shown)
		change  func(b *bazaar)
		doubt   string
	}{
		"another provider's": {one(func(c *audittest.Case) { c.Provider = audittest.Key("somebody else") }), nil, nil, "rule unit"},
		"another unit's":     {good, func(l []market.Shown) { l[0].Unit = market.UnitID{1} }, nil, "rule unit"},
		"another list's": {good, nil, func(b *bazaar) {
			b.lists[b.offer.Proof], _ = market.MarshalShown([]market.Shown{{Unit: market.UnitID{1}, Record: good[0].Hash()}})
		}, "records listed have root"},
		"a list too long":                     {good, nil, func(b *bazaar) { b.lists[b.offer.Proof] = make([]byte, 64*(market.MaxShown+1)) }, "units shown"},
		"an empty list":                       {good, nil, func(b *bazaar) { b.lists[b.offer.Proof] = []byte{} }, "units shown"},
		"another record":                      {good, nil, func(b *bazaar) { b.records[good[0].Hash()] = passing()[1].Marshal() }, "got another record"},
		"no record":                           {good, nil, func(b *bazaar) { b.records[good[0].Hash()] = []byte("record") }, "malformed"},
		"none":                                {good, nil, func(b *bazaar) { clear(b.records) }, "no such thing"},
		"silence":                             {good, nil, func(b *bazaar) { b.down = context.DeadlineExceeded }, "deadline exceeded"},
		"two windows ago":                     {good, nil, func(b *bazaar) { b.facts.window += 2 }, "rule fresh"},
		"from the future":                     {good, nil, func(b *bazaar) { b.facts.window-- }, "rule time"},
		"of other units":                      {good, nil, func(b *bazaar) { b.offer.PerUnit.MemoryMiB = 1 << 10; b.offer.PerUnit.MilliCPU = 2000 }, "rule shape"},
		"of a class that nothing is known of": {good, nil, func(b *bazaar) { b.offer.Class = "tpu" }, "rule shape"},
		"too slow":                            {one(slow), nil, nil, "rule floor"},
		"wrong":                               {one(wrong), nil, nil, "rule openings"},
		"a false signature":                   {bent(good), nil, nil, "rule provider"},
		"another beacon": {good, nil, func(b *bazaar) {
			b.facts.beacon = func(x audit.Beacon) audit.Beacon { x.Value = sign.Hash{1}; return x }
		}, "rule beacon"},
		"another era's dataset": {good, nil, func(b *bazaar) {
			b.facts.beacon = func(x audit.Beacon) audit.Beacon {
				if x == b.facts.Era() {
					x.Value = sign.Hash{1}
				}
				return x
			}
		}, "rule seed"},
		"a committee of friends": {good, nil, func(b *bazaar) { b.facts.roster = audittest.New(3).Roster }, "rule committee"},
		"no slot":                {good, nil, func(b *bazaar) { b.facts.slot = errors.New("the chain does not answer") }, "the chain does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bazaarOf(t, c.records, c.list)
			if c.change != nil {
				c.change(b)
			}
			units, doubt := b.check(t, 1)
			if units != 0 || !strings.Contains(doubt, c.doubt) {
				t.Errorf("%d units, %q", units, doubt)
			}
			if err := b.CheckUnits(t.Context(), b.offer, []market.UnitID{c.records[0].Answer.Unit}); !errors.Is(err, ErrUnproven) {
				t.Errorf("its unit: %v", err)
			}
			if b.requests(); name != "no slot" {
				if b.check(t, 1); b.requests() != 0 {
					t.Error("it was asked again at once")
				}
			}
		})
	}
}

// What could not be had or judged is asked for again after a while; what is wrong is not.
func TestProofsAgain(t *testing.T) {
	t.Parallel()
	b := bazaarOf(t, passing()[:1], nil)
	b.down = errors.New("no route")
	b.check(t, 1)
	b.down, b.now = nil, b.now.Add(again)
	roster := b.facts.roster
	b.facts.roster = roster[:3] // it has not found everybody yet
	if units, doubt := b.check(t, 1); units != 0 || !strings.Contains(doubt, "rule committee") {
		t.Errorf("%d units, %q", units, doubt)
	}
	b.facts.roster, b.now = roster, b.now.Add(again)
	if units, doubt := b.check(t, 1); units != 1 || doubt != "" {
		t.Errorf("%d units, %q", units, doubt)
	}
	b.Proofs.mu.Lock()
	for _, s := range b.seen {
		if len(s.order) != len(s.tried) {
			t.Errorf("%d failures are remembered, in an order of %d", len(s.tried), len(s.order))
		}
	}
	b.Proofs.mu.Unlock()
	b = bazaarOf(t, passing()[:1], func(l []market.Shown) { l[0].Unit = market.UnitID{1} })
	b.check(t, 1)
	b.requests()
	b.now = b.now.Add(time.Hour)
	if b.check(t, 1); b.requests() != 0 {
		t.Error("a record of another unit was fetched again")
	}
}

// An offer that names many wrong records costs a few of them, and no memory.
func TestProofsAreBounded(t *testing.T) {
	t.Parallel()
	b := bazaarOf(t, passing(), nil)
	var many []market.Shown
	for i := range market.MaxShown {
		many = append(many, market.Shown{Unit: market.UnitID(sign.Sum([]byte{byte(i)})), Record: sign.Sum([]byte{byte(i), 1})})
		b.records[many[i].Record] = passing()[0].Marshal()
	}
	b.offer.Proof = b.list(t, many)
	if units, _ := b.check(t, market.MaxShown); units != 0 {
		t.Errorf("%d units", units)
	}
	if n := b.requests(); n > 1+maxBad+maxFetches {
		t.Errorf("%d requests for a list of wrong records", n)
	}
	for i := range 3 * market.MaxOffers {
		o := b.offer
		o.Class = market.Class(fmt.Sprintf("cpu/%d", i))
		o.Proof = b.list(t, many[:i+1])
		b.Check(t.Context(), o, 1)
	}
	good := bazaarOf(t, passing(), nil)
	b.lists[good.offer.Proof] = good.lists[good.offer.Proof]
	for h, r := range good.records {
		b.records[h] = r
	}
	b.Check(t.Context(), good.offer, 1)
	for i := range maxSeen + 10 {
		o := b.offer
		o.Provider = sign.Key(sign.Sum(fmt.Append(nil, i)))
		b.now = b.now.Add(time.Millisecond)
		if s := b.Shown(o); s.Doubt != notChecked {
			t.Fatal(s)
		}
		b.Check(t.Context(), o, 1)
	}
	if s := b.Shown(good.offer); s.Units != 3 {
		t.Errorf("who has shown something was driven out by those that have not: %+v", s)
	}
	b.Proofs.mu.Lock()
	defer b.Proofs.mu.Unlock()
	for _, s := range b.seen {
		if len(s.lists) > market.MaxOffers || len(s.tried) > maxTried || len(s.order) != len(s.tried) {
			t.Errorf("%d lists and %d failures of one provider are remembered", len(s.lists), len(s.tried))
		}
	}
	if len(b.seen) != maxSeen {
		t.Errorf("%d providers are remembered", len(b.seen))
	}
}

// carried is a record in the form between peers.
func carried(record []byte) []byte { return append([]byte{auditCode}, record...) }

// auditCode is the code of proof.KindAudit.
const auditCode = 4

// failure is one unit that failed.
type failure struct {
	unit market.UnitID
	why  error
}

func (f failure) Against(_ context.Context, r audit.Record, _ audit.Roster) error {
	if r.Answer.Unit == f.unit {
		return f.why
	}
	return nil
}

// A unit whose failure is public is not sold by the record from before, whatever its provider offers.
func TestFailedUnitsAreNotSold(t *testing.T) {
	t.Parallel()
	rs := passing()[:1]
	b := bazaarOf(t, rs, nil)
	if n, doubt := b.check(t, 1); n != 1 {
		t.Fatalf("%d units, %s", n, doubt)
	}
	why := &audit.RuleError{Rule: audit.RuleFresh, Detail: "it failed"}
	b.Proofs.cfg.Failures = failure{rs[0].Answer.Unit, why}
	if err := b.CheckUnits(t.Context(), b.offer, []market.UnitID{rs[0].Answer.Unit}); err == nil {
		t.Error("what was checked before is sold still")
	}
	fresh := bazaarOf(t, rs, nil)
	fresh.Proofs.cfg.Failures = b.Proofs.cfg.Failures
	if n, doubt := fresh.check(t, 1); n != 0 || doubt == "" {
		t.Errorf("%d units, %q", n, doubt)
	}
}

// Who buys by a record looks when its attempt began: one of another time of the window shows nothing, and a GPU's must have begun as
// sharply as GPUs must.
func TestProofsRefuseOtherInstants(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	c.Verdict = func(v *audit.Verdict) { v.Slot += 5 }
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	f := &facts{Case: c, window: c.Window, beacon: func(b audit.Beacon) audit.Beacon { return b }, roster: c.Roster}
	check := func(class market.Class) audit.Rule {
		rule, _ := errors.AsType[*audit.RuleError](sight.CheckRecord(context.Background(), f, r, class))
		if rule == nil {
			return ""
		}
		return rule.Rule
	}
	if got := check("cpu"); got != "" {
		t.Errorf("a processor, two seconds late: rule %s", got)
	}
	if got := check("gpu/h100"); got != audit.RuleInstant {
		t.Errorf("a GPU, two seconds late: rule %q", got)
	}
}
