package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight/sighttest"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

const windowSlots = sighttest.Slots

func made(t testing.TB, c audittest.Case) audit.Record {
	t.Helper()
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func plan(c Claim) (Asked, error) {
	if c.Class != "cpu" {
		return Asked{}, errors.New("only cpu units are audited here")
	}
	return Asked{
		Shape: challenge.Shape{Rows: 64, Columns: 128, Depth: 128, Products: 2}, Walk: challenge.Walk{Cells: 512, Work: 2, Walkers: 40, Steps: 6},
		ProductLimit: time.Minute, WalkLimit: time.Minute, SecondLimit: time.Minute, WholeLimit: 2 * time.Minute,
	}, nil
}

// asked is what a unit is asked.
func (w *world) asked(c Claim) (Asked, error) {
	if w.plan != nil {
		return w.plan(c)
	}
	return plan(c)
}

// world is a provider and the peers that may judge it, without a network between them.
type world struct {
	*sighttest.Still
	provider sign.Private
	members  map[sign.Key]*Member
	now      func() time.Time
	lies     []audit.Lie
	judged   map[audit.Outcome]int
	refused  []audit.Refusal
	mu       sync.Mutex

	beginning time.Time // of a test's clock
	plan      Plan      // nil: plan

	// before may stand between the provider and a member: it changes the request, or answers in the member's place.
	before func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error)
}

func newWorld(n int, now func() time.Time) *world {
	w := &world{Still: &sighttest.Still{At: 50}, provider: audittest.Key("provider"), members: map[sign.Key]*Member{}, now: now, judged: map[audit.Outcome]int{}}
	for i := range n {
		k := audittest.Key(fmt.Sprint("member", i))
		w.Bonded = append(w.Bonded, audit.Member{Key: k.Key(), Owner: k.Key(), Weight: 5})
		w.members[k.Key()] = NewMember(MemberConfig{
			Domain: audittest.Domain(), Key: k, WindowSlots: windowSlots, Sight: w.Still, Plan: w.asked, Now: now, Results: w, Log: slog.New(slog.DiscardHandler),
		})
	}
	return w
}

func (w *world) Judged(_ sign.Key, v audit.Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judged[v.Outcome]++
}

func (w *world) KeepFraud(_ context.Context, l audit.Lie) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lies = append(w.lies, l)
	return nil
}

func (w *world) Refuse(x audit.Refusal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, x)
}

func (w *world) call(ctx context.Context, m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
	req = proto.Clone(req).(*nodepb.AuditRequest) // as over a stream: what is done to one member's is not done to all
	if w.before != nil {
		if r, err := w.before(m, req); r != nil || err != nil {
			return r, err
		}
	}
	return w.members[m].Answer(ctx, w.provider.Key(), req)
}

func (w *world) prover() *Prover {
	return NewProver(ProverConfig{
		Domain: audittest.Domain(), Key: w.provider, WindowSlots: windowSlots, Sight: w.Still, Plan: w.asked, Call: w.call, Log: slog.New(slog.DiscardHandler),
		Wait: func(context.Context, market.Slot) error { return nil },
	})
}

func units(n int) []Unit {
	out := make([]Unit, n)
	for i := range out {
		out[i] = Unit{
			Claim:  Claim{ID: market.UnitID(sign.Sum([]byte{byte(i)})), Class: "cpu", Resources: market.Resources{MilliCPU: 1000}},
			Device: cpu.New(cpu.Config{Memory: 1 << 20, Threads: 1}),
		}
	}
	return out
}

func TestAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(12, time.Now)
	results, err := w.prover().Audit(t.Context(), units(3))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("unit %d: %v", i, r.Err)
		}
		if err := r.Record.CheckMembers(w.Bonded); err != nil {
			t.Error(err)
		}
		if got := r.Record.Rates(); got.Operations == 0 || got.Reads == 0 || got.Memory != 512*challenge.CellSize {
			t.Errorf("%+v", got)
		}
	}
	if w.judged[audit.Pass] != 3*audit.Committee || len(w.judged) != 1 {
		t.Errorf("judged: %v", w.judged)
	}
	// Once more in the same window: the attempts go on where they stopped, for members count them.
	if _, err := w.prover().Audit(t.Context(), units(1)); !errors.Is(err, ErrCommittee) {
		t.Errorf("a second audit in one window: %v", err)
	}
}

// Members that leave at any step cost an attempt and nothing else; too many of them cost the audit.
func TestMembersLeave(t *testing.T) {
	t.Parallel()
	steps := map[string]func(*nodepb.AuditRequest) bool{
		"begin":   func(r *nodepb.AuditRequest) bool { return r.GetBegin() != nil },
		"root":    func(r *nodepb.AuditRequest) bool { return r.GetRoot() != nil },
		"second":  func(r *nodepb.AuditRequest) bool { return r.GetSecond() != nil },
		"arrived": func(r *nodepb.AuditRequest) bool { return r.GetArrived() != nil },
		"third":   func(r *nodepb.AuditRequest) bool { return r.GetThird() != nil },
		"show":    func(r *nodepb.AuditRequest) bool { return r.GetShow() != nil },
	}
	for name, at := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(9, time.Now)
			beacon := w.Block(w.At)
			drawn := w.Bonded.Draw(beacon, w.At, w.provider.Key(), 2)
			for _, silent := range []int{2, 6} {
				w.before = func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
					out := slices.IndexFunc(w.Bonded.Draw(beacon, w.At, w.provider.Key(), silent), func(x audit.Member) bool { return x.Key == m })
					if out >= 0 && at(req) {
						return nil, errors.New("gone")
					}
					return nil, nil
				}
				results, err := w.prover().Audit(t.Context(), units(1))
				switch {
				case silent == 2 && (err != nil || results[0].Err != nil):
					t.Fatalf("two of nine silent: %v", err)
				case silent == 2:
					for _, v := range results[0].Record.Verdicts {
						if v.Member == drawn[0].Key || v.Member == drawn[1].Key {
							t.Error("a silent member judged")
						}
					}
				case err == nil:
					t.Error("six of nine silent, and it passes")
				}
				w.At++
			}
		})
	}
}

// tampering is a device that answers something else.
type tampering struct {
	device.Device
	multiply func(tiles []sign.Hash)
	walk     func(groups []sign.Hash)
	ends     func(ends []uint64)
}

func (d tampering) Multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) ([]sign.Hash, error) {
	tiles, err := d.Device.Multiply(ctx, seed, s)
	if d.multiply != nil {
		d.multiply(tiles)
	}
	return tiles, err
}

func (d tampering) Commit(ctx context.Context, seed sign.Hash, s challenge.Shape) (*challenge.Commitment, error) {
	tiles, err := d.Multiply(ctx, seed, s)
	if err != nil {
		return nil, err
	}
	return challenge.Commit(s, tiles)
}

func (d tampering) Walk(ctx context.Context, key uint64, of device.Dataset, w challenge.Walk) ([]sign.Hash, error) {
	groups, err := d.Device.Walk(ctx, key, of, w)
	if d.walk != nil {
		d.walk(groups)
	}
	return groups, err
}

func (d tampering) Ends(ctx context.Context, key uint64, of device.Dataset, w challenge.Walk, group uint32) ([]uint64, error) {
	ends, err := d.Device.Ends(ctx, key, of, w, group)
	if d.ends != nil {
		d.ends(ends)
	}
	return ends, err
}

// nowhere is a unit's device whose walkers all end at 0.
func nowhere(t *testing.T, u Unit) device.Device {
	t.Helper()
	asked, err := plan(u.Claim)
	if err != nil {
		t.Fatal(err)
	}
	groups := challenge.GroupHashes(make([]uint64, asked.Walk.Walkers))
	return tampering{Device: u.Device, walk: func(out []sign.Hash) { copy(out, groups) }, ends: func(ends []uint64) { clear(ends) }}
}

// A fault of the hardware is found before it is signed as an opening, and blames nobody. A walk that did not happen is found.
func TestFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(7, time.Now)
	us := units(4)
	us[0].Device = tampering{Device: us[0].Device, multiply: func(tiles []sign.Hash) {
		for i := range tiles {
			tiles[i][7] ^= 1
		}
	}}
	us[1].Device = nowhere(t, us[1])
	us[2].Device = tampering{Device: us[2].Device, ends: func(ends []uint64) { ends[len(ends)-1]++ }}
	results, err := w.prover().Audit(t.Context(), us)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(results[0].Err, challenge.ErrFault) || !errors.Is(results[1].Err, ErrNotPassed) || !errors.Is(results[2].Err, challenge.ErrFault) || results[3].Err != nil {
		t.Errorf("%v; %v; %v; %v", results[0].Err, results[1].Err, results[2].Err, results[3].Err)
	}
	if len(w.lies) != 0 {
		t.Errorf("a fault is called a lie: %v", w.lies)
	}
}

// Who opens and signs values that are not the product's is caught, and the proof of it is kept.
func TestFalseOpening(t *testing.T) {
	t.Parallel()
	w := newWorld(7, time.Now)
	w.before = func(_ sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		s := req.GetShow()
		if s == nil {
			return nil, nil
		}
		opened, rest, err := challenge.UnmarshalOpened(s.Openings)
		if err != nil {
			return nil, err
		}
		for i := range opened.Openings {
			opened.Openings[i].Values = [challenge.LeafWords]int32{1}
		}
		// The member has the answer; the provider signs what it shows.
		var answer audit.Answer
		for _, m := range w.members {
			for _, a := range m.attempts {
				if a.key.number == uint8(req.Attempt) {
					answer = *a.units[0].answer
				}
			}
		}
		shown := audit.Show(answer, opened.Openings)
		sig, err := shown.Sign(audittest.Domain(), w.provider)
		b := shown.Marshal()
		s.Openings, s.Signature, s.Shown = append(opened.Marshal(), rest...), sig[:], b[:]
		return nil, err
	}
	results, err := w.prover().Audit(t.Context(), units(1))
	if err == nil && results[0].Err == nil {
		t.Fatal("false openings pass")
	}
	if len(w.lies) == 0 {
		t.Fatal("no lie was kept")
	}
	for _, l := range w.lies {
		if err := l.Check(audittest.Domain()); err != nil || l.Liar() != w.provider.Key() {
			t.Errorf("%v, of %s", err, l.Liar())
		}
	}
}

// A slow unit is late, which is no lie.
func TestLate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	at := time.Now()
	w := newWorld(7, func() time.Time { // every look at the clock is ten minutes later
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(10 * time.Minute)
		return at
	})
	results, err := w.prover().Audit(t.Context(), units(1))
	if err != nil || !errors.Is(results[0].Err, ErrNotPassed) {
		t.Fatalf("%v, %v", results, err)
	}
	for _, v := range results[0].Record.Verdicts {
		if v.Outcome != audit.Late {
			t.Errorf("%s", v.Outcome)
		}
	}
	if len(w.lies) != 0 {
		t.Error("being late is called a lie")
	}
}

// What a member is asked out of order, by the wrong peer, about the wrong window or with parts that do not belong, it refuses
// and names the reason; never does it panic.
func TestRefused(t *testing.T) {
	t.Parallel()
	code := func(err error) string {
		var r *stream.Refused
		var m *stream.Malformed
		switch {
		case errors.As(err, &r):
			return r.Code
		case errors.As(err, &m):
			return "malformed"
		case err != nil:
			return err.Error()
		}
		return ""
	}
	type change = func(w *world, req *nodepb.AuditRequest)
	begin := func(f func(b *nodepb.AuditRequest_Begin)) change {
		return func(_ *world, req *nodepb.AuditRequest) {
			if b := req.GetBegin(); b != nil {
				f(b)
			}
		}
	}
	for name, c := range map[string]struct {
		change change
		want   string
	}{
		"another window":    {func(_ *world, r *nodepb.AuditRequest) { r.Window++ }, CodeWindow},
		"attempt 0":         {func(_ *world, r *nodepb.AuditRequest) { r.Attempt = 0 }, CodeAttempt},
		"attempt 4":         {func(_ *world, r *nodepb.AuditRequest) { r.Attempt = 4 }, CodeAttempt},
		"no step":           {func(_ *world, r *nodepb.AuditRequest) { r.Step = nil }, CodeUnknown},
		"another beacon":    {begin(func(b *nodepb.AuditRequest_Begin) { b.Beacon = make([]byte, 32) }), CodeWindow},
		"half a beacon":     {begin(func(b *nodepb.AuditRequest_Begin) { b.Beacon = b.Beacon[:16] }), CodeWindow},
		"no unit":           {begin(func(b *nodepb.AuditRequest_Begin) { b.Units = nil }), CodeUnits},
		"65 units":          {begin(func(b *nodepb.AuditRequest_Begin) { b.Units = make([]*nodepb.AuditRequest_Unit, MaxUnits+1) }), CodeUnits},
		"an empty unit":     {begin(func(b *nodepb.AuditRequest_Begin) { b.Units[0] = &nodepb.AuditRequest_Unit{} }), "malformed"},
		"a unit twice":      {begin(func(b *nodepb.AuditRequest_Begin) { b.Units = append(b.Units, b.Units[0]) }), CodeUnits},
		"a class not asked": {begin(func(b *nodepb.AuditRequest_Begin) { b.Units[0].Class = "gpu/x" }), CodeUnits},
		"a bad class":       {begin(func(b *nodepb.AuditRequest_Begin) { b.Units[0].Class = "\x00" }), "malformed"},
		"an easier shape": {begin(func(b *nodepb.AuditRequest_Begin) {
			s := challenge.Shape{Rows: 64, Columns: 64, Depth: 64, Products: 1}.Marshal()
			b.Units[0].Shape = s[:]
		}), CodeUnits},
		"no shape":                 {begin(func(b *nodepb.AuditRequest_Begin) { b.Units[0].Shape = nil }), "malformed"},
		"not drawn":                {func(w *world, _ *nodepb.AuditRequest) { w.Bonded = nil }, CodeDrawn},
		"a step without its begin": {func(_ *world, r *nodepb.AuditRequest) { r.Step = &nodepb.AuditRequest_Third_{} }, CodeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(7, time.Now)
			var mu sync.Mutex
			var got error
			w.before = func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
				mu.Lock()
				defer mu.Unlock()
				if got == nil {
					c.change(w, req)
					_, got = w.members[m].Answer(t.Context(), w.provider.Key(), req)
				}
				return nil, errors.New("enough")
			}
			if _, err := w.prover().Audit(t.Context(), units(1)); err == nil {
				t.Error("it passes")
			}
			if code(got) != c.want {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}

	// Every later step, made wrong in one way while the rest is honest.
	for name, c := range map[string]struct {
		change func(r *nodepb.AuditRequest) bool // whether it was changed
		want   string
	}{
		"root of no unit": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetRoot(); x != nil {
				x.Unit = 9
			}
			return r.GetRoot() != nil
		}, "malformed"},
		"half a root": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetRoot(); x != nil {
				x.Root = x.Root[:3]
			}
			return r.GetRoot() != nil
		}, "malformed"},
		"second before the root": {func(r *nodepb.AuditRequest) bool {
			if r.GetRoot() == nil {
				return false
			}
			r.Step = &nodepb.AuditRequest_Second_{Second: &nodepb.AuditRequest_Second{}}
			return true
		}, CodeOrder},
		"too few members": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetSecond(); x != nil {
				x.First = x.First[:4]
			}
			return r.GetSecond() != nil
		}, CodeMembers},
		"a member of one's own": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetSecond(); x != nil {
				x.First[0].Member = make([]byte, 32)
			}
			return r.GetSecond() != nil
		}, CodeMembers},
		"a member twice": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetSecond(); x != nil {
				x.First[0] = x.First[1]
			}
			return r.GetSecond() != nil
		}, CodeMembers},
		"half a nonce": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetSecond(); x != nil {
				x.First[0].Nonce = nil
			}
			return r.GetSecond() != nil
		}, "malformed"},
		"an answer to another seed": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetArrived(); x != nil {
				x.Answer[90]++
			}
			return r.GetArrived() != nil
		}, CodeAnswer},
		"half an answer": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetArrived(); x != nil {
				x.Answer = x.Answer[:9]
			}
			return r.GetArrived() != nil
		}, "malformed"},
		"an answer not signed": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetArrived(); x != nil {
				x.Signature = make([]byte, 64)
			}
			return r.GetArrived() != nil
		}, CodeAnswer},
		"too few the second time": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetArrived(); x != nil {
				x.Second = x.Second[:4]
			}
			return r.GetArrived() != nil
		}, CodeMembers},
		"nothing shown": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetShow(); x != nil {
				x.Openings = nil
			}
			return r.GetShow() != nil
		}, "malformed"},
		"more than was asked": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetShow(); x != nil {
				x.Openings = append(x.Openings, 0)
			}
			return r.GetShow() != nil
		}, "malformed"},
		"nothing said of what is shown": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetShow(); x != nil {
				x.Shown = nil
			}
			return r.GetShow() != nil
		}, CodeAnswer},
		"shown and not signed": {func(r *nodepb.AuditRequest) bool {
			if x := r.GetShow(); x != nil {
				x.Signature = make([]byte, 64)
			}
			return r.GetShow() != nil
		}, CodeAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(7, time.Now)
			var mu sync.Mutex
			var got error
			w.before = func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
				mu.Lock()
				defer mu.Unlock()
				if got == nil && c.change(req) {
					_, got = w.members[m].Answer(t.Context(), w.provider.Key(), req)
					return nil, errors.New("enough")
				}
				return nil, nil
			}
			_, _ = w.prover().Audit(t.Context(), units(1))
			if code(got) != c.want {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(7, time.Now)
	for _, n := range []int{0, MaxUnits + 1} {
		if _, err := w.prover().Audit(t.Context(), units(n)); !errors.Is(err, ErrUnits) {
			t.Errorf("%d units: %v", n, err)
		}
	}
	us := units(1)
	us[0].Class = "gpu/x"
	if _, err := w.prover().Audit(t.Context(), us); err == nil {
		t.Error("a class that is not asked")
	}
	w.Bonded = audit.Roster{{Key: w.provider.Key(), Owner: w.provider.Key(), Weight: 1}}
	if _, err := w.prover().Audit(t.Context(), units(1)); !errors.Is(err, ErrCommittee) {
		t.Errorf("nobody but the provider: %v", err)
	}
}
