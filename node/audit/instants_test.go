package audit

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/audit/sight/sighttest"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// taken is codeOf of what was not refused.
const taken = "<nil>"

// A member gives no nonce but at the window's instant, by the slot that it sees; a provider that comes late says so and asks nobody.
func TestMembersRefuseOtherInstants(t *testing.T) {
	t.Parallel()
	in := (&sighttest.Still{}).Instants()
	width := in.Width("cpu")
	for name, x := range map[string]struct {
		off  int64
		want string
	}{
		"at the instant": {0, taken}, "as early as may be": {-int64(width.Early), taken}, "as late as may be": {int64(width.Late) - 1, taken},
		"too early": {-int64(width.Early) - 1, CodeInstant}, "too late": {int64(width.Late), CodeInstant}, "another time of the window": {40, CodeInstant},
	} {
		w := newWorld(7, time.Now)
		var mu sync.Mutex
		refused := map[string]int{}
		w.before = func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
			if req.GetBegin() == nil {
				return nil, nil
			}
			mu.Lock()
			defer mu.Unlock()
			was := w.Off
			defer func() { w.Off = was }()
			w.Off = x.off // members look later than the provider did
			r, err := w.members[m].Answer(t.Context(), w.provider.Key(), req)
			refused[codeOf(err)]++
			return r, err
		}
		_, err := w.prover().Audit(t.Context(), units(1))
		if (err == nil) != (x.want == taken) || refused[x.want] != 7 {
			t.Errorf("%s: %v, %v", name, refused, err)
		}
		if x.want == taken {
			continue
		}
		late := newWorld(7, time.Now)
		late.Off = x.off
		late.before = func(sign.Key, *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
			t.Errorf("%s: the provider asks", name)
			return nil, errors.New("no")
		}
		if _, err := late.prover().Audit(t.Context(), units(1)); !errors.Is(err, ErrInstant) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A second attempt is for units that members saw work in the first: who was not there, asks for others, or broke off, is refused.
func TestLaterAttemptsAreOfWhoWorked(t *testing.T) {
	t.Parallel()
	// What two others in a committee of seven saw of an attempt that both left at some step.
	steps := map[string]func(*nodepb.AuditRequest) bool{
		"root":    func(r *nodepb.AuditRequest) bool { return r.GetRoot() != nil },
		"second":  func(r *nodepb.AuditRequest) bool { return r.GetSecond() != nil },
		"arrived": func(r *nodepb.AuditRequest) bool { return r.GetArrived() != nil },
		"third":   func(r *nodepb.AuditRequest) bool { return r.GetThird() != nil },
		"show":    func(r *nodepb.AuditRequest) bool { return r.GetShow() != nil },
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(9, time.Now)
			drawn := w.Bonded.Draw(w.Block(w.At), w.At, w.provider.Key(), audit.Committee)
			var mu sync.Mutex
			shown := map[uint32]int{}
			w.before = func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
				if (m == drawn[1].Key || m == drawn[4].Key) && req.Attempt == 1 && step(req) {
					return nil, errors.New("gone")
				}
				if req.GetShow() != nil {
					mu.Lock()
					shown[req.Attempt]++
					mu.Unlock()
				}
				return nil, nil
			}
			results, err := w.prover().Audit(t.Context(), units(2))
			if err != nil || results[0].Err != nil || results[1].Err != nil {
				t.Fatalf("%v, %v", results, err)
			}
			if shown[1] < 2*5 || shown[2] != 2*5 {
				t.Errorf("shown to %v", shown)
			}
			for _, r := range results {
				if r.Record.Answer.Attempt != 2 || len(r.Record.Verdicts) != 5 {
					t.Errorf("attempt %d, %d verdicts", r.Record.Answer.Attempt, len(r.Record.Verdicts))
				}
				if err := errors.Join(r.Record.CheckInstant(w.Instants(), "cpu"), r.Record.CheckMembers(w.Bonded)); err != nil {
					t.Error(err)
				}
			}
		})
	}

	// begin is the first step of a provider that asks for a unit, as its own prover makes it.
	begin := func(t *testing.T, w *world, us []Unit, attempt uint32) *nodepb.AuditRequest {
		t.Helper()
		var req *nodepb.AuditRequest
		var mu sync.Mutex
		was := w.before
		w.before = func(_ sign.Key, r *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
			mu.Lock()
			defer mu.Unlock()
			req = r
			return nil, errors.New("no")
		}
		if _, err := w.prover().Audit(t.Context(), us); err == nil || req == nil {
			t.Fatalf("nothing is asked: %v", err)
		}
		w.before = was
		req.Attempt = attempt
		return req
	}
	ask := func(t *testing.T, w *world, req *nodepb.AuditRequest) (refused map[string]int) {
		t.Helper()
		refused = map[string]int{}
		for _, m := range w.members {
			_, err := m.Answer(t.Context(), w.provider.Key(), req)
			refused[codeOf(err)]++
		}
		return refused
	}

	t.Run("never there", func(t *testing.T) {
		t.Parallel()
		w := newWorld(7, time.Now)
		for n := uint32(2); n <= audit.MaxAttempts; n++ {
			if got := ask(t, w, begin(t, w, units(1), n)); got[CodeAttempt] != 7 {
				t.Errorf("attempt %d: %v", n, got)
			}
		}
	})
	t.Run("begun and broken off", func(t *testing.T) {
		t.Parallel()
		for name, until := range map[string]func(*nodepb.AuditRequest) bool{"begin": func(r *nodepb.AuditRequest) bool { return r.GetRoot() != nil }, "root": steps["second"], "walk": steps["third"], "rounds": steps["show"]} {
			w := newWorld(7, time.Now)
			w.before = func(_ sign.Key, r *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
				if until(r) {
					return nil, errors.New("it stops here")
				}
				return nil, nil
			}
			if _, err := w.prover().Audit(t.Context(), units(1)); err == nil {
				t.Fatal("it passes")
			}
			w.before = nil
			if got := ask(t, w, begin(t, w, units(1), 2)); got[CodeAttempt] != 7 {
				t.Errorf("after %s: %v", name, got)
			}
		}
	})
	t.Run("another unit", func(t *testing.T) {
		t.Parallel()
		w := newWorld(7, time.Now)
		us := units(2)
		if _, err := w.prover().Audit(t.Context(), us[:1]); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, w, begin(t, w, us[1:], 2)); got[CodeAttempt] != 7 {
			t.Errorf("the card's other unit: %v", got)
		}
		if got := ask(t, w, begin(t, w, us, 2)); got[CodeAttempt] != 7 {
			t.Errorf("both: %v", got)
		}
		more := slices.Clone(us[:1])
		more[0].MilliCPU *= 2
		if got := ask(t, w, begin(t, w, more, 2)); got[CodeAttempt] != 7 {
			t.Errorf("the same unit, said to be larger: %v", got)
		}
		if got := ask(t, w, begin(t, w, us[:1], 2)); got[taken] != 7 {
			t.Errorf("the unit that worked: %v", got)
		}
	})
	t.Run("wrong in the first", func(t *testing.T) {
		t.Parallel()
		w := newWorld(7, time.Now)
		us := units(1)
		us[0].Device = nowhere(t, us[0])
		if r, err := w.prover().Audit(t.Context(), us); err != nil || !errors.Is(r[0].Err, ErrNotPassed) {
			t.Fatalf("%v, %v", r, err)
		}
		if got := ask(t, w, begin(t, w, units(1), 2)); got[CodeAttempt] != 7 {
			t.Errorf("%v", got)
		}
	})
}

// A unit that computes at the instant and asks for its next nonce when another unit has left the card is late.
func TestSecondNonceInTime(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	at := time.Now()
	w := newWorld(7, func() time.Time { mu.Lock(); defer mu.Unlock(); return at })
	w.before = func(_ sign.Key, r *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		mu.Lock()
		defer mu.Unlock()
		if r.GetSecond() != nil && at.Sub(w.beginning) < 2*time.Minute {
			at = w.beginning.Add(2 * time.Minute)
		}
		return nil, nil
	}
	w.beginning = at
	r, err := w.prover().Audit(t.Context(), units(1))
	if err != nil || !errors.Is(r[0].Err, ErrNotPassed) {
		t.Fatalf("%v, %v", r, err)
	}
	for _, v := range r[0].Record.Verdicts {
		if v.Outcome != audit.Late {
			t.Errorf("%s", v.Outcome)
		}
	}
}

// A unit that everybody passed and that was late by its class is judged once more, and keeps what it has when that comes to nothing; one
// whose card had time for another is not.
func TestLateIsJudgedOnceMore(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		late  uint8 // attempts that are
		whole time.Duration
		want  uint8 // the attempt whose record is kept
	}{
		"in time":                    {0, time.Minute, 1},
		"late once":                  {1, time.Minute, 2},
		"late twice":                 {2, time.Minute, 3},
		"late always":                {3, time.Minute, 3},
		"late, and too long at work": {1, 0, 1},
	} {
		w := newWorld(9, time.Now)
		for _, m := range w.members {
			m.cfg.Plan = func(c Claim) (Asked, error) {
				a, err := plan(c)
				a.WholeLimit = x.whole
				return a, err
			}
		}
		cfg := w.prover().cfg
		us := units(2)
		cfg.Late = func(c Claim, r audit.Record) error {
			if c.ID == us[1].ID && r.Answer.Attempt <= x.late {
				return errors.New("late")
			}
			return nil
		}
		r, err := NewProver(cfg).Audit(t.Context(), us)
		if err != nil || r[0].Err != nil || r[1].Err != nil {
			t.Fatalf("%s: %v, %v", name, r, err)
		}
		if a, b := r[0].Record.Answer.Attempt, r[1].Record.Answer.Attempt; a != 1 || b != x.want {
			t.Errorf("%s: attempts %d and %d, want 1 and %d", name, a, b, x.want)
		}
	}
}

// slowOnes are what members sign of two units that are too slow for them.
func slowOnes(t *testing.T) (*world, []Unit, []audit.Refusal) {
	t.Helper()
	w := newWorld(12, time.Now)
	for _, m := range w.members {
		m.cfg.Plan = func(c Claim) (Asked, error) {
			a, err := plan(c)
			a.ProductLimit = time.Nanosecond
			return a, err
		}
	}
	us := units(2)
	if _, err := w.prover().Audit(t.Context(), us); err != nil {
		t.Log(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w, us, w.refused
}

func (w *world) failed(t *testing.T, st store.Store) *sight.Failed {
	t.Helper()
	g := audittest.New(1).Genesis()
	g.AuditSlots = windowSlots
	f, err := sight.OpenFailed(t.Context(), st, g, w.Still)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// In a window without an audit nobody is judged: members give no nonce, whoever asks, and what colluding members sign there is no record, and
// no failure of anybody either.
func TestAttackAuditInAWindowWithoutOne(t *testing.T) {
	t.Parallel()
	w, us, all := slowOnes(t)
	f := w.failed(t, store.NewMemory())
	if err := f.Check(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	w.Still.OneIn = 1 << 10
	for w.Instants().Fires(w.Block(w.At)) {
		w.Still.OneIn++
	}
	if err := f.Check(t.Context(), all[0]); !audit.IsRule(err, audit.RuleInstant) {
		t.Errorf("a refusal there: %v", err)
	}
	asked, refused := 0, 0
	var mu sync.Mutex
	w.before = func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		r, err := w.members[m].Answer(t.Context(), w.provider.Key(), req)
		mu.Lock()
		defer mu.Unlock()
		if asked++; codeOf(err) == CodeInstant {
			refused++
		}
		return r, err
	}
	if _, err := w.prover().Audit(t.Context(), us[:1]); !errors.Is(err, ErrInstant) || asked != 0 {
		t.Errorf("its own prover asks %d: %v", asked, err)
	}
	blind := *w.Still // a provider that says that the window has an audit
	blind.OneIn = 1
	p := w.prover()
	p.cfg.Sight = &blind
	if _, err := p.Audit(t.Context(), us[:1]); !errors.Is(err, ErrCommittee) || asked == 0 || refused != asked {
		t.Errorf("%d of %d refuse: %v", refused, asked, err)
	}
	r := made(t, audittest.NewUnit("unit 0"))
	few := audittest.New(7)
	few.OneIn = 1 << 10
	for few.Instants().Fires(r.Beacon) {
		few.OneIn--
	}
	if err := r.CheckInstant(few.Instants(), ""); !audit.IsRule(err, audit.RuleInstant) {
		t.Errorf("a record: %v", err)
	}
	if err := r.Certificate().Check(audit.NewRules(few.Genesis()), few.Seen()); !audit.IsRule(err, audit.RuleInstant) {
		t.Errorf("a certificate: %v", fmt.Sprint(err))
	}
}
