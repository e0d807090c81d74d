package auditing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/audit"
	facts "github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cache"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
	rules "github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

var quiet = slog.New(slog.DiscardHandler)

// small is what a unit of these tests has.
var small = market.Resources{MilliCPU: 1000, MemoryMiB: 512, DiskMiB: 512}

// results notes the verdicts that a room passes on.
type results struct{ verdicts []rules.Outcome }

func (r *results) Judged(_ sign.Key, v rules.Verdict)       { r.verdicts = append(r.verdicts, v.Outcome) }
func (*results) KeepFraud(context.Context, rules.Lie) error { return nil }
func (*results) Refuse(rules.Refusal)                       {}

// seller has idle units.
type seller struct{ idle []market.Unit }

func (s seller) Idle() []market.Unit                    { return slices.Clone(s.idle) }
func (seller) Show(func(market.Unit) (sign.Hash, bool)) {}
func (seller) Withdraw(map[market.UnitID]string)        {}

func newRoom(t *testing.T, st store.Store, change func(*Config)) *Room {
	t.Helper()
	cfg := Config{
		Genesis: audittest.New(3).Genesis(), Key: audittest.Key("provider"), Store: st, Results: &results{},
		Cache: cache.New(quiet), Log: quiet,
	}
	if change != nil {
		change(&cfg)
	}
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, r.audits.Shelf().Run)
	return r
}

func unit(n byte) market.Unit {
	return market.Unit{ID: market.UnitID{n}, Class: "cpu", Serial: fmt.Sprint(n), Resources: small}
}

// anchored is the journal's inclusion of a record.
func anchored(t *testing.T, in chain.Inclusion) []byte {
	t.Helper()
	b, err := json.Marshal(in.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// record is a record of a unit with verdicts of an outcome, by a challenge that takes milliseconds.
func record(t *testing.T, of market.UnitID, o rules.Outcome) rules.Record {
	t.Helper()
	c := audittest.New(7)
	c.Unit = of
	c.Verdict = func(v *rules.Verdict) { v.Outcome = o }
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// put keeps the result of a window on a room's shelf.
func put(t *testing.T, r *Room, w rules.Window, res audit.Result) {
	t.Helper()
	if err := r.audits.Shelf().Keep(t.Context(), audit.Audited(w, time.Now().Add(time.Duration(w)*time.Second-time.Hour), res)...); err != nil {
		t.Fatal(err)
	}
}

// A unit is out of order when it did not pass twice in a row or is delisted, whatever the reason says.
func TestHealth(t *testing.T) {
	t.Parallel()
	r := newRoom(t, store.NewMemory(), nil)
	claim := audit.Claim{ID: market.UnitID{1}, Class: "cpu", Resources: small}
	passed := audit.Result{Unit: claim, Record: record(t, claim.ID, rules.Pass)}
	late := audit.Result{Unit: claim, Record: record(t, claim.ID, rules.Late), Err: audit.ErrNotPassed}
	alone := audit.Result{Unit: claim, Err: fmt.Errorf("%w: \x1b[2J%s", audit.ErrCommittee, strings.Repeat("x", 1000))}
	want := func(text string) {
		t.Helper()
		p := r.Health()
		if (p == nil) != (text == "") || p != nil && (!strings.Contains(p.Problem, text) || p.Remedy == "") {
			t.Errorf("%+v, want %q", p, text)
		}
	}
	want("")
	for w, step := range []struct {
		audit.Result
		want string
	}{
		{passed, ""}, {alone, ""}, {alone, "too few members"}, {passed, ""}, {late, ""}, {passed, ""},
		{late, ""}, {late, "suspended, class cpu"}, {late, "delisted, class cpu"}, {passed, "delisted, class cpu"},
	} {
		put(t, r, rules.Window(w+1), step.Result)
		want(step.want)
		if p := r.Health(); p != nil && (strings.Contains(p.Problem, "\x1b") || len(p.Problem) > maxText+200) {
			t.Errorf("window %d: %q", w, p.Problem)
		}
	}
	gone := audit.Result{Unit: audit.Claim{ID: market.UnitID{2}, Class: "cpu", Resources: small}, Err: io.EOF}
	old := newRoom(t, store.NewMemory(), nil)
	for w := range rules.Window(3) {
		if err := old.audits.Shelf().Keep(t.Context(), audit.Audited(w, time.Now().Add(-recent-time.Hour), gone)...); err != nil {
			t.Fatal(err)
		}
	}
	if p := old.Health(); p != nil {
		t.Errorf("a unit that was audited long ago: %+v", p)
	}
}

// Results are counted by class, once for each window, and verdicts by outcome, which are passed on.
func TestMetrics(t *testing.T) {
	t.Parallel()
	of := &results{}
	r := newRoom(t, store.NewMemory(), func(c *Config) { c.Results = of })
	claim := audit.Claim{ID: market.UnitID{1}, Class: "cpu", Resources: small}
	put(t, r, 1, audit.Result{Unit: claim, Record: record(t, claim.ID, rules.Pass)})
	late := audit.Result{Unit: claim, Record: record(t, claim.ID, rules.Late), Err: audit.ErrNotPassed}
	put(t, r, 2, late)
	put(t, r, 2, late)
	put(t, r, 3, audit.Result{Unit: claim, Err: errors.New("no committee")})
	for _, o := range []rules.Outcome{rules.Pass, rules.Pass, rules.Wrong, 200} {
		counted{of, r}.Judged(sign.Key{1}, rules.Verdict{Outcome: o})
	}
	if len(of.verdicts) != 4 {
		t.Errorf("verdicts %v are passed on, want 4", of.verdicts)
	}
	const want = `
# HELP starling_audit_units Units of this peer that were audited, by class and standing in the market.
# TYPE starling_audit_units gauge
starling_audit_units{class="cpu",standing="delisted"} 0
starling_audit_units{class="cpu",standing="listed"} 0
starling_audit_units{class="cpu",standing="suspended"} 1
starling_audit_units{class="cpu",standing="unproven"} 0
# HELP starling_audit_verdicts_total Verdicts of this peer about units of others, by outcome.
# TYPE starling_audit_verdicts_total counter
starling_audit_verdicts_total{outcome="late"} 0
starling_audit_verdicts_total{outcome="pass"} 2
starling_audit_verdicts_total{outcome="wrong"} 1
# HELP starling_audits_total Audits of this peer's units by class and result: passed, failed, undecided, or absent, which is missed.
# TYPE starling_audits_total counter
starling_audits_total{class="cpu",result="absent"} 1
starling_audits_total{class="cpu",result="failed"} 1
starling_audits_total{class="cpu",result="passed"} 1
starling_audits_total{class="cpu",result="undecided"} 0
`
	if err := testutil.CollectAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

// opened is a device that notes when it is closed.
type opened struct {
	device.Device
	close func()
}

func (o opened) Close() error { o.close(); return nil }

// Units answer in the order of their last audits, at most as many as one audit takes. One without hardware is left out,
// and all devices are closed in the end.
func TestIdleUnits(t *testing.T) {
	t.Parallel()
	var idle []market.Unit
	for n := range byte(audit.MaxUnits + 4) {
		idle = append(idle, unit(n))
	}
	idle[3].Class = "no/plan"
	open := map[string]bool{}
	r := newRoom(t, store.NewMemory(), func(c *Config) {
		c.Seller = seller{idle}
		c.Hardware = func(_ context.Context, u market.Unit, _ audit.Asked) (device.Device, error) {
			if u.ID[0] == 5 {
				return nil, errors.New("the driver is gone")
			}
			open[u.Serial] = true
			return opened{close: func() { delete(open, u.Serial) }}, nil
		}
	})
	put(t, r, 9, audit.Result{Unit: audit.Claim{ID: idle[0].ID, Class: "cpu", Resources: small}, Err: io.EOF})
	put(t, r, 8, audit.Result{Unit: audit.Claim{ID: idle[1].ID, Class: "cpu", Resources: small}, Err: io.EOF})
	units, free, err := r.idleUnits(t.Context())
	if err != nil || len(units) != audit.MaxUnits || len(open) != audit.MaxUnits {
		t.Fatalf("%d units with %d devices, %v", len(units), len(open), err)
	}
	var got []byte
	for _, u := range units {
		got = append(got, u.ID[0])
	}
	if !slices.Equal(got[:3], []byte{2, 4, 6}) || slices.Contains(got, 0) && slices.Index(got, 0) < slices.Index(got, 1) {
		t.Errorf("units %v", got)
	}
	if free(); len(open) != 0 {
		t.Errorf("%v are left open", open)
	}
}

// Other peers are shown the newest record of each unit, and of anchored ones the newest first, after a restart too.
func TestRecords(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	r := newRoom(t, st, func(c *Config) { c.Seller = seller{} })
	var hashes []sign.Hash
	for n := range byte(3) {
		rec := record(t, market.UnitID{n + 1}, rules.Pass)
		put(t, r, rules.Window(n+1), audit.Result{
			Unit: audit.Claim{ID: rec.Answer.Unit, Class: "cpu", Resources: small}, Record: rec,
		})
		hashes = append(hashes, rec.Hash())
	}
	put(t, r, 9, audit.Result{Unit: audit.Claim{ID: market.UnitID{3}, Class: "cpu", Resources: small}, Err: io.EOF})
	if got := r.Records(); len(got) != 3 {
		t.Errorf("%d records, want 3", len(got))
	}
	if got := newRoom(t, st, nil).Records(); got != nil {
		t.Errorf("a peer that sells nothing any more has %d records", len(got))
	}
	if got := r.Anchored(8); len(got) != 0 {
		t.Errorf("%v are anchored, want none", got)
	}
	root := chain.RootOf(hashes)
	anchor := chain.Anchor{Of: chain.OfRecords, Root: root, Count: uint64(len(hashes)), Ref: chain.RefOf(root, 1)}
	for i, h := range hashes {
		in := chain.Include(anchor, hashes, i, chain.TxID(sign.Signature{7}.String()), 100)
		if err := st.Write(t.Context(), store.Put{Kind: "auditanchor", Key: h.String(), Value: anchored(t, in)}); err != nil {
			t.Fatal(err)
		}
	}
	r = newRoom(t, st, nil)
	for most, want := range [][]sign.Hash{{}, {hashes[2]}, {hashes[2], hashes[1]}, {hashes[2], hashes[1], hashes[0]}} {
		if got := r.Anchored(most); !slices.Equal(got, want) {
			t.Errorf("at most %d: %v, want %v", most, got, want)
		}
	}
}

// blocks is a chain with a block in every slot.
type blocks struct{ asked int }

func (b *blocks) Block(_ context.Context, from market.Slot) (chain.Block, error) {
	b.asked++
	return chain.Block{Slot: from, Hash: sign.Sum(fmt.Append(nil, from))}, nil
}

// Light clients are answered about the last windows alone, so that none of them makes this peer read the whole chain.
func TestPublic(t *testing.T) {
	t.Parallel()
	now, chainOf := market.Slot(0), &blocks{}
	g := audittest.New(3).Genesis()
	sight, err := facts.NewPublic(facts.PublicConfig{
		Genesis: g, Blocks: chainOf, Log: quiet, Slot: func() (market.Slot, error) { return now, nil },
		Roster: func(context.Context, rules.Window) (rules.Roster, error) { return rules.Roster{{Weight: 1}}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	p := Public{sight}
	const window = 1000
	now = rules.Window(window).First(g.AuditSlots) + 1
	oldest := sight.Instants().Ago(window, rules.EraAudits)
	for w, ok := range map[rules.Window]bool{
		window: true, window - 1: true, oldest: true, oldest - 1: false, 0: false, window + 1: false, ^rules.Window(0): false,
	} {
		before := chainOf.asked
		if _, err := p.Roster(t.Context(), w); (err == nil) != ok {
			t.Errorf("roster of window %d: %v, want answered: %t", w, err, ok)
		}
		if !ok && chainOf.asked != before {
			t.Errorf("window %d: the chain is read for a window that is refused", w)
		}
	}
	for w, ok := range map[rules.Window]bool{0: false, window + 1: false, ^rules.Window(0): false} {
		if _, err := p.Recent(t.Context(), w); (err == nil) != ok {
			t.Errorf("recent of window %d: %v, want answered: %t", w, err, ok)
		}
	}
}

// A peer without audits answers every question with the reason.
func TestNone(t *testing.T) {
	t.Parallel()
	n := None{Why: Unaudited()}
	_, list := n.Audits()
	_, run := n.Audit(t.Context())
	for _, err := range []error{list, run} {
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != "no_audits" || e.Status != 409 {
			t.Errorf("got %v", err)
		}
	}
}

// A simulated GPU computes nothing, and answers for no unit.
func TestMachine(t *testing.T) {
	t.Parallel()
	u := unit(1)
	asked, err := audit.ByPlan(audit.Claim{ID: u.ID, Class: u.Class, Resources: u.Resources})
	if err != nil {
		t.Fatal(err)
	}
	d, err := own(t.Context(), u, asked)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	u.Class, u.Simulated, u.Model = "gpu/h100", true, "H100"
	if _, err := own(t.Context(), u, asked); err == nil || !strings.Contains(err.Error(), "simulated") {
		t.Errorf("got %v", err)
	}
}
