package audit

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// What a unit's windows came to is kept: after a failure it is asked by eleven, after three it is not sold, and a restart forgets nothing.
func TestStandingOnTheShelf(t *testing.T) {
	t.Parallel()
	c := audittest.NewUnit("unit 0")
	good := made(t, c)
	c.Verdict = func(v *audit.Verdict) { v.Outcome = audit.Late }
	bad := made(t, c)
	claim := Claim{ID: c.Unit, Class: "cpu", Resources: audittest.Small}
	passed := Result{Unit: claim, Record: good}
	failed := Result{Unit: claim, Record: bad, Err: ErrNotPassed}
	st := store.NewMemory()
	put := func(r Result, w audit.Window, want audit.State, size int) {
		t.Helper()
		s, err := OpenShelf(t.Context(), st, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		stop := p2ptest.Go(t, s.Run)
		defer stop()
		if err := s.Keep(t.Context(), Audited(w, time.Now(), r)...); err != nil {
			t.Fatal(err)
		}
		now := reopen(t, st)
		if x := now.Standing(c.Unit); x.State != want || x.CommitteeSize() != size {
			t.Errorf("after window %d: %s, before %d; want %s, before %d", w, x.State, x.CommitteeSize(), want, size)
		}
		for _, p := range now.All() {
			if p.Window == w && p.Standing != want.String() {
				t.Errorf("window %d: shown as %s", w, p.Standing)
			}
		}
	}
	put(passed, 7, audit.Listed, audit.Committee)
	put(Result{Unit: claim, Err: errors.New("no committee")}, 8, audit.Suspended, audit.Committee)
	put(passed, 10, audit.Listed, audit.Committee)
	taken := fmt.Errorf("unit: %w", device.ErrClosed) // by a program that started: a leased unit need not answer
	put(Result{Unit: claim, Err: taken, Broken: 1}, 11, audit.Listed, audit.Committee)
	put(failed, 11, audit.Suspended, audit.Appeal)
	put(failed, 11, audit.Suspended, audit.Appeal) // a window counts once
	put(passed, 12, audit.Listed, audit.Committee)
	put(failed, 13, audit.Suspended, audit.Appeal)
	put(failed, 14, audit.Suspended, audit.Appeal)
	if len(reopen(t, st).Delisted()) != 0 {
		t.Error("delisted too early")
	}
	put(failed, 15, audit.Delisted, audit.Appeal)
	put(passed, 16, audit.Delisted, audit.Appeal)
	now := reopen(t, st)
	if out := now.Delisted(); len(out) != 1 || !strings.Contains(out[c.Unit], "delisted") {
		t.Errorf("%v", out)
	}
	if s := now.Standing(market.UnitID{9}); s.State != audit.Unproven {
		t.Errorf("a unit never heard of: %s", s.State)
	}
}

// A unit that failed answers before eleven, of whom eight must pass it; whoever is asked draws as many.
func TestAppeal(t *testing.T) {
	t.Parallel()
	w := newWorld(20, time.Now)
	us := units(2)
	us[1].Appeal = true
	results, err := w.prover().Audit(t.Context(), us)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil || r.Record.Committee != audit.Appeal || len(r.Record.Verdicts) != audit.Appeal {
			t.Fatalf("%v, %d of %d", r.Err, len(r.Record.Verdicts), r.Record.Committee)
		}
		if err := r.Record.CheckMembers(w.Bonded); err != nil {
			t.Error(err)
		}
	}
	// A provider that gives members another size than it asked for is refused.
	w.At++
	w.before = func(_ sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		if b := req.GetBegin(); b != nil {
			b.Appeal = false
		}
		return nil, nil
	}
	if _, err := w.prover().Audit(t.Context(), us); err == nil {
		t.Error("members who were asked as seven judge as eleven")
	}
}
