package audit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

const codeMalformed = "malformed"

// codeOf is the reason of a refusal.
func codeOf(err error) string {
	if r, ok := errors.AsType[*stream.Refused](err); ok {
		return r.Code
	}
	if _, ok := errors.AsType[*stream.Malformed](err); ok {
		return codeMalformed
	}
	return fmt.Sprint(err)
}

// badStep is one step of an audit made wrong in one way, from the honest one that is due.
type badStep struct {
	name   string
	want   string
	change func(w *world, r *nodepb.AuditRequest)
}

// answered changes a field of the answer, which the provider signs.
func answered(name, want string, change func(a *audit.Answer)) badStep {
	return badStep{name, want, func(w *world, r *nodepb.AuditRequest) {
		x := r.GetArrived()
		a, err := audit.UnmarshalAnswer(x.Answer)
		if err != nil {
			panic(err)
		}
		change(&a)
		sig, err := a.Sign(audittest.Domain(), w.provider)
		if err != nil {
			panic(err)
		}
		b := a.Marshal()
		x.Answer, x.Signature = b[:], sig[:]
	}}
}

// instead asks another step in the place of the one that is due.
func instead(name, want string, change func(r *nodepb.AuditRequest)) badStep {
	return badStep{name, want, func(_ *world, r *nodepb.AuditRequest) { change(r) }}
}

// lists are the ways in which the list of what everybody gave in a round is wrong.
func lists(of func(r *nodepb.AuditRequest) *[]*nodepb.AuditRequest_Given, own func(in []*nodepb.AuditRequest_Given) *nodepb.AuditRequest_Given) []badStep {
	change := func(name, want string, f func(in []*nodepb.AuditRequest_Given) []*nodepb.AuditRequest_Given) badStep {
		return instead(name, want, func(r *nodepb.AuditRequest) { l := of(r); *l = f(*l) })
	}
	type given = []*nodepb.AuditRequest_Given
	return []badStep{
		change("a list of nobody", CodeMembers, func(given) given { return nil }),
		change("a list of too few", CodeMembers, func(in given) given { return in[:4] }),
		change("a list of more than the committee", CodeMembers, func(in given) given { return append(in, in...) }),
		change("somebody left out", CodeMembers, func(in given) given {
			mine := own(in)
			return slices.DeleteFunc(in, func(g *nodepb.AuditRequest_Given) bool { return g == mine })
		}),
		change("somebody twice", CodeMembers, func(in given) given { in[0] = in[1]; return in }),
		change("somebody who was not drawn", CodeMembers, func(in given) given { in[0].Member = make([]byte, 32); return in }),
		change("a member of 31 bytes", codeMalformed, func(in given) given { in[0].Member = in[0].Member[:31]; return in }),
		change("a nonce of 15 bytes", codeMalformed, func(in given) given { in[0].Nonce = in[0].Nonce[:15]; return in }),
		change("a nonce of 17 bytes", codeMalformed, func(in given) given { in[0].Nonce = append(in[0].Nonce, 0); return in }),
		change("another nonce than this peer's", CodeMembers, func(in given) given { own(in).Nonce[0]++; return in }),
	}
}

// stepsDue are the wrong steps that a member is asked when a step is due, before it is asked the right one.
func stepsDue(member sign.Key, r *nodepb.AuditRequest) (due string, bad []badStep) {
	own := func(in []*nodepb.AuditRequest_Given) *nodepb.AuditRequest_Given {
		i := slices.IndexFunc(in, func(g *nodepb.AuditRequest_Given) bool { return sign.Key(g.Member) == member })
		return in[i]
	}
	early := []badStep{
		instead("a step that nobody knows", codeMalformed, func(r *nodepb.AuditRequest) { r.Step = nil }),
		instead("a window that was not begun", CodeUnknown, func(r *nodepb.AuditRequest) { r.Window++ }),
		instead("the window before", CodeUnknown, func(r *nodepb.AuditRequest) { r.Window-- }),
		instead("an attempt that was not begun", CodeUnknown, func(r *nodepb.AuditRequest) { r.Attempt++ }),
		instead("no attempt", CodeAttempt, func(r *nodepb.AuditRequest) { r.Attempt = 0 }),
		instead("an attempt beyond a byte", CodeAttempt, func(r *nodepb.AuditRequest) { r.Attempt += 256 }),
	}
	arrivedEarly := instead("an answer before the second nonce", CodeOrder, func(r *nodepb.AuditRequest) {
		r.Step = &nodepb.AuditRequest_Arrived_{Arrived: &nodepb.AuditRequest_Arrived{}}
	})
	thirdEarly := instead("the third nonce before all answers", CodeOrder, func(r *nodepb.AuditRequest) {
		r.Step = &nodepb.AuditRequest_Third_{Third: &nodepb.AuditRequest_Third{}}
	})
	showEarly := instead("shown before it is due", CodeOrder, func(r *nodepb.AuditRequest) {
		r.Step = &nodepb.AuditRequest_Show_{Show: &nodepb.AuditRequest_Show{}}
	})
	root := func(name, want string, change func(x *nodepb.AuditRequest_Root)) badStep {
		return instead(name, want, func(r *nodepb.AuditRequest) {
			x := &nodepb.AuditRequest_Root{Root: make([]byte, 32)}
			change(x)
			r.Step = &nodepb.AuditRequest_Root_{Root: x}
		})
	}
	switch {
	case r.GetBegin() != nil:
		return "begin", beginsRefused()
	case r.GetRoot() != nil:
		return "root", append(early, arrivedEarly, thirdEarly, showEarly,
			root("the root of no unit", codeMalformed, func(x *nodepb.AuditRequest_Root) { x.Unit = 2 }),
			root("the root of the last number", codeMalformed, func(x *nodepb.AuditRequest_Root) { x.Unit = math.MaxUint32 }),
			root("no root", codeMalformed, func(x *nodepb.AuditRequest_Root) { x.Root = nil }),
			root("a root of 31 bytes", codeMalformed, func(x *nodepb.AuditRequest_Root) { x.Root = x.Root[:31] }),
			root("a root of 33 bytes", codeMalformed, func(x *nodepb.AuditRequest_Root) { x.Root = make([]byte, 33) }),
			instead("the second nonce before all roots", CodeOrder, func(r *nodepb.AuditRequest) {
				r.Step = &nodepb.AuditRequest_Second_{Second: &nodepb.AuditRequest_Second{}}
			}))
	case r.GetSecond() != nil:
		return "second", slices.Concat(early, []badStep{arrivedEarly, thirdEarly, showEarly},
			[]badStep{root("another root", CodeOrder, func(*nodepb.AuditRequest_Root) {})},
			lists(func(r *nodepb.AuditRequest) *[]*nodepb.AuditRequest_Given { return &r.GetSecond().First }, own))
	case r.GetArrived() != nil:
		return "arrived", slices.Concat(early, []badStep{thirdEarly, showEarly}, answersRefused(),
			lists(func(r *nodepb.AuditRequest) *[]*nodepb.AuditRequest_Given { return &r.GetArrived().Second }, own))
	case r.GetThird() != nil:
		return "third", append(early, showEarly,
			instead("somebody's first nonce changed", CodeMembers, func(r *nodepb.AuditRequest) {
				x := &nodepb.AuditRequest_Second{}
				for range 5 {
					x.First = append(x.First, &nodepb.AuditRequest_Given{Member: make([]byte, 32), Nonce: make([]byte, 16)})
				}
				r.Step = &nodepb.AuditRequest_Second_{Second: x}
			}))
	case r.GetShow() != nil:
		return "show", slices.Concat(early, showsRefused(),
			lists(func(r *nodepb.AuditRequest) *[]*nodepb.AuditRequest_Given { return &r.GetShow().Third }, own))
	}
	return "", nil
}

func beginsRefused() []badStep {
	begin := func(name, want string, change func(b *nodepb.AuditRequest_Begin)) badStep {
		return instead(name, want, func(r *nodepb.AuditRequest) { change(r.GetBegin()) })
	}
	unit := func(name, want string, change func(u *nodepb.AuditRequest_Unit)) badStep {
		return begin(name, want, func(b *nodepb.AuditRequest_Begin) { change(b.Units[1]) })
	}
	shape := func(s challenge.Shape) []byte { b := s.Marshal(); return b[:] }
	walk := func(w challenge.Walk) []byte { b := w.Marshal(); return b[:] }
	asked, _ := plan(Claim{Class: "cpu"})
	easier, shorter, smaller := asked.Shape, asked.Walk, asked.Walk
	easier.Products, shorter.Steps, smaller.Cells = 1, 1, 256
	return []badStep{
		instead("the next window", CodeWindow, func(r *nodepb.AuditRequest) { r.Window++ }),
		instead("the window before", CodeWindow, func(r *nodepb.AuditRequest) { r.Window-- }),
		instead("the last window there is", CodeWindow, func(r *nodepb.AuditRequest) { r.Window = math.MaxUint64 }),
		instead("no attempt", CodeAttempt, func(r *nodepb.AuditRequest) { r.Attempt = 0 }),
		instead("a fourth attempt", CodeAttempt, func(r *nodepb.AuditRequest) { r.Attempt = 4 }),
		instead("an attempt beyond a byte", CodeAttempt, func(r *nodepb.AuditRequest) { r.Attempt = 257 }),
		begin("another value of the beacon", CodeWindow, func(b *nodepb.AuditRequest_Begin) { b.Beacon[31]++ }),
		begin("another slot", CodeWindow, func(b *nodepb.AuditRequest_Begin) { b.Slot++ }),
		begin("the last slot there is", CodeWindow, func(b *nodepb.AuditRequest_Begin) { b.Slot = math.MaxUint64 }),
		begin("a beacon of 33 bytes", CodeWindow, func(b *nodepb.AuditRequest_Begin) { b.Beacon = append(b.Beacon, 0) }),
		begin("no unit", CodeUnits, func(b *nodepb.AuditRequest_Begin) { b.Units = nil }),
		begin("a unit twice", CodeUnits, func(b *nodepb.AuditRequest_Begin) { b.Units[1] = b.Units[0] }),
		begin("too many units", CodeUnits, func(b *nodepb.AuditRequest_Begin) {
			b.Units = slices.Repeat(b.Units, MaxUnits)
		}),
		unit("a unit of 31 bytes", codeMalformed, func(u *nodepb.AuditRequest_Unit) { u.Id = u.Id[:31] }),
		unit("a class that is none", codeMalformed, func(u *nodepb.AuditRequest_Unit) { u.Class = strings.Repeat("x", 1<<16) }),
		unit("a class that is not asked", CodeUnits, func(u *nodepb.AuditRequest_Unit) { u.Class = "gpu/h100" }),
		unit("a shape of 15 bytes", codeMalformed, func(u *nodepb.AuditRequest_Unit) { u.Shape = u.Shape[:15] }),
		unit("a shape of nothing", codeMalformed, func(u *nodepb.AuditRequest_Unit) { u.Shape = make([]byte, challenge.ShapeSize) }),
		unit("a shape that overflows", codeMalformed, func(u *nodepb.AuditRequest_Unit) {
			u.Shape = shape(challenge.Shape{Rows: 64, Columns: 64, Depth: 64, Products: math.MaxUint32})
		}),
		unit("an easier shape", CodeUnits, func(u *nodepb.AuditRequest_Unit) { u.Shape = shape(easier) }),
		unit("no walk", codeMalformed, func(u *nodepb.AuditRequest_Unit) { u.Walk = nil }),
		unit("a walk that overflows", codeMalformed, func(u *nodepb.AuditRequest_Unit) {
			u.Walk = walk(challenge.Walk{Cells: math.MaxUint64, Work: 1 << 16, Walkers: math.MaxUint32, Steps: 1 << 16})
		}),
		unit("a shorter walk", CodeUnits, func(u *nodepb.AuditRequest_Unit) { u.Walk = walk(shorter) }),
		unit("a walk over less memory", CodeUnits, func(u *nodepb.AuditRequest_Unit) { u.Walk = walk(smaller) }),
	}
}

func answersRefused() []badStep {
	raw := func(name, want string, change func(x *nodepb.AuditRequest_Arrived)) badStep {
		return instead(name, want, func(r *nodepb.AuditRequest) { change(r.GetArrived()) })
	}
	return []badStep{
		answered("another provider", CodeAnswer, func(a *audit.Answer) { a.Provider[0]++ }),
		answered("another unit", CodeAnswer, func(a *audit.Answer) { a.Unit[0]++ }),
		answered("another window", CodeAnswer, func(a *audit.Answer) { a.Window++ }),
		answered("the last window there is", CodeAnswer, func(a *audit.Answer) { a.Window = math.MaxUint64 }),
		answered("another attempt", CodeAnswer, func(a *audit.Answer) { a.Attempt++ }),
		answered("no attempt", codeMalformed, func(a *audit.Answer) { a.Attempt = 0 }),
		answered("a fourth attempt", codeMalformed, func(a *audit.Answer) { a.Attempt = 4 }),
		answered("another product seed", CodeAnswer, func(a *audit.Answer) { a.ProductSeed[0]++ }),
		answered("another shape", CodeAnswer, func(a *audit.Answer) { a.Shape.Products++ }),
		answered("a shape of nothing", codeMalformed, func(a *audit.Answer) { a.Shape = challenge.Shape{} }),
		answered("another product root", CodeAnswer, func(a *audit.Answer) { a.ProductRoot[0]++ }),
		answered("another dataset", CodeAnswer, func(a *audit.Answer) { a.DatasetSeed[0]++ }),
		answered("another walk", CodeAnswer, func(a *audit.Answer) { a.Walk.Steps-- }),
		answered("a walk out of bounds", codeMalformed, func(a *audit.Answer) { a.Walk.Cells = math.MaxUint64 }),
		answered("another walk seed", CodeAnswer, func(a *audit.Answer) { a.WalkSeed[0]++ }),
		raw("an answer of no unit", codeMalformed, func(x *nodepb.AuditRequest_Arrived) { x.Unit = 2 }),
		raw("the other unit's answer", CodeAnswer, func(x *nodepb.AuditRequest_Arrived) { x.Unit ^= 1 }),
		raw("an answer of another version", codeMalformed, func(x *nodepb.AuditRequest_Arrived) { x.Answer[0]++ }),
		raw("reserved bytes", codeMalformed, func(x *nodepb.AuditRequest_Arrived) { x.Answer[5] = 1 }),
		raw("an answer cut off", codeMalformed, func(x *nodepb.AuditRequest_Arrived) { x.Answer = x.Answer[:audit.AnswerSize-1] }),
		raw("an answer and more", codeMalformed, func(x *nodepb.AuditRequest_Arrived) { x.Answer = append(x.Answer, 0) }),
		raw("a signature of 63 bytes", codeMalformed, func(x *nodepb.AuditRequest_Arrived) { x.Signature = x.Signature[:63] }),
		raw("another walk root under the signature", CodeAnswer, func(x *nodepb.AuditRequest_Arrived) { x.Answer[audit.AnswerSize-1]++ }),
		{"signed by somebody else", CodeAnswer, func(_ *world, r *nodepb.AuditRequest) {
			signAnswer(r.GetArrived(), audittest.Domain(), audittest.Key("else"))
		}},
		{"signed for another network", CodeAnswer, func(w *world, r *nodepb.AuditRequest) {
			d := audittest.Domain()
			d.Network = "other"
			signAnswer(r.GetArrived(), d, w.provider)
		}},
	}
}

func signAnswer(x *nodepb.AuditRequest_Arrived, d sign.Domain, by sign.Signer) {
	a, err := audit.UnmarshalAnswer(x.Answer)
	if err != nil {
		panic(err)
	}
	sig, err := a.Sign(d, by)
	if err != nil {
		panic(err)
	}
	x.Signature = sig[:]
}

func showsRefused() []badStep {
	show := func(name, want string, change func(x *nodepb.AuditRequest_Show)) badStep {
		return instead(name, want, func(r *nodepb.AuditRequest) { change(r.GetShow()) })
	}
	signed := func(name string, change func(w *world, s *audit.Shown) (sign.Domain, sign.Signer)) badStep {
		return badStep{name, CodeAnswer, func(w *world, r *nodepb.AuditRequest) {
			x := r.GetShow()
			s, err := audit.UnmarshalShown(x.Shown)
			if err != nil {
				panic(err)
			}
			sig, err := s.Sign(change(w, &s))
			if err != nil {
				panic(err)
			}
			b := s.Marshal()
			x.Shown, x.Signature = b[:], sig[:]
		}}
	}
	return []badStep{
		show("of no unit", codeMalformed, func(x *nodepb.AuditRequest_Show) { x.Unit = 2 }),
		show("nothing", codeMalformed, func(x *nodepb.AuditRequest_Show) { x.Openings = nil }),
		show("cut off in an opening", codeMalformed, func(x *nodepb.AuditRequest_Show) { x.Openings = x.Openings[:200] }),
		show("without the walkers", codeMalformed, func(x *nodepb.AuditRequest_Show) {
			o, _, err := challenge.UnmarshalOpened(x.Openings)
			if err != nil {
				panic(err)
			}
			x.Openings = o.Marshal()
		}),
		show("more than there is", codeMalformed, func(x *nodepb.AuditRequest_Show) { x.Openings = append(x.Openings, 0) }),
		show("more openings than anybody draws", codeMalformed, func(x *nodepb.AuditRequest_Show) { x.Openings[0], x.Openings[1] = 0xff, 0xff }),
		show("a statement cut off", CodeAnswer, func(x *nodepb.AuditRequest_Show) { x.Shown = x.Shown[:audit.ShownSize-1] }),
		show("a statement of another version", CodeAnswer, func(x *nodepb.AuditRequest_Show) { x.Shown[0]++ }),
		show("another root under the signature", CodeAnswer, func(x *nodepb.AuditRequest_Show) { x.Shown[audit.ShownSize-1]++ }),
		show("a signature of 65 bytes", codeMalformed, func(x *nodepb.AuditRequest_Show) { x.Signature = append(x.Signature, 0) }),
		signed("of another answer", func(w *world, s *audit.Shown) (sign.Domain, sign.Signer) {
			s.Answer[0]++
			return audittest.Domain(), w.provider
		}),
		signed("by somebody else", func(_ *world, _ *audit.Shown) (sign.Domain, sign.Signer) {
			return audittest.Domain(), audittest.Key("else")
		}),
		signed("for another network", func(w *world, _ *audit.Shown) (sign.Domain, sign.Signer) {
			d := audittest.Domain()
			d.Network = "other"
			return d, w.provider
		}),
	}
}

// Before every right step each member is asked the same in every wrong way there is, and by another peer: it refuses with the reason,
// and what it refused changes nothing, for the audit passes; nobody is called a liar and nothing is judged twice.
func TestEveryWrongStepIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(12, time.Now)
	drawn := w.Bonded.Draw(w.Block(w.At), w.At, w.provider.Key(), audit.Committee+audit.Slack)
	var mu sync.Mutex
	seen := map[string]int{}
	tried := map[string]bool{} // what each member was asked wrong: once, whatever units there are
	w.before = func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		due, bad := stepsDue(m, req)
		mu.Lock()
		first := due != "" && !tried[due+m.String()]
		tried[due+m.String()] = true
		mu.Unlock()
		if !first {
			return nil, nil
		}
		if due != "begin" { // which anybody may, of its own
			bad = append(bad, badStep{"another provider", CodeUnknown, nil}, badStep{"begun again", CodeAttempt, nil})
		}
		for _, c := range bad {
			r, from := proto.Clone(req).(*nodepb.AuditRequest), w.provider.Key()
			switch {
			case c.change != nil:
				c.change(w, r)
			case c.want == CodeUnknown:
				from = audittest.Key("else").Key()
			default:
				b := w.begun(t)
				r.Step = &nodepb.AuditRequest_Begin_{Begin: b}
			}
			if _, err := w.members[m].Answer(t.Context(), from, r); codeOf(err) != c.want {
				t.Errorf("%s, %s: %v, want %s", due, c.name, err, c.want)
			}
		}
		mu.Lock()
		seen[due] += len(bad)
		mu.Unlock()
		return nil, nil
	}
	results, err := w.prover().Audit(t.Context(), units(2))
	if err != nil || results[0].Err != nil || results[1].Err != nil {
		t.Fatal("what was refused changed the audit: ", err, errs(results))
	}
	for _, due := range []string{"begin", "root", "second", "arrived", "third", "show"} {
		if seen[due] < 9*audit.Committee {
			t.Errorf("step %s was asked wrong %d times", due, seen[due])
		}
	}
	if len(w.lies) != 0 || w.judged[audit.Pass] != 2*audit.Committee || len(w.judged) != 1 {
		t.Errorf("lies %v, judged %v", w.lies, w.judged)
	}
	for k, m := range w.members {
		if slices.ContainsFunc(drawn, func(d audit.Member) bool { return d.Key == k }) {
			continue
		}
		r := firstStep(w.At)
		r.Step = &nodepb.AuditRequest_Begin_{Begin: w.begun(t)}
		if _, err := m.Answer(t.Context(), w.provider.Key(), r); codeOf(err) != CodeDrawn {
			t.Errorf("one that is not drawn: %v", err)
		}
	}
}

func errs(results []Result) (out []error) {
	for _, r := range results {
		out = append(out, r.Err)
	}
	return out
}

// begun is how an audit of two units begins.
func (w *world) begun(t testing.TB) *nodepb.AuditRequest_Begin {
	t.Helper()
	beacon := w.Block(w.At)
	b := &nodepb.AuditRequest_Begin{Slot: uint64(beacon.Slot), Beacon: beacon.Value[:]}
	for _, u := range units(2) {
		asked, err := plan(u.Claim)
		if err != nil {
			t.Fatal(err)
		}
		shape, walk := asked.Shape.Marshal(), asked.Walk.Marshal()
		b.Units = append(b.Units, &nodepb.AuditRequest_Unit{Id: u.ID[:], Class: string(u.Class), Shape: shape[:], Walk: walk[:]})
	}
	return b
}

// What is shown and is not what was answered is wrong to every member, and while nobody signed a value that is not the product's, no lie.
func TestWrongIsNoLie(t *testing.T) {
	t.Parallel()
	type shown struct {
		opened challenge.Opened
		walked challenge.Walked
	}
	for name, c := range map[string]struct {
		change func(s *shown)
		signed bool // the provider signs what it shows
	}{
		"a value that is not the one signed":    {func(s *shown) { s.opened.Openings[3].Values[4]++ }, false},
		"a node of the openings":                {func(s *shown) { s.opened.Nodes[0][0]++ }, false},
		"a node too many":                       {func(s *shown) { s.opened.Nodes = append(s.opened.Nodes, sign.Hash{1}) }, false},
		"an opening less, signed":               {func(s *shown) { s.opened.Openings = s.opened.Openings[1:] }, true},
		"one opening alone, signed":             {func(s *shown) { s.opened.Openings = s.opened.Openings[:1] }, true},
		"a node less, signed":                   {func(s *shown) { s.opened.Nodes = s.opened.Nodes[1:] }, true},
		"a walker less":                         {func(s *shown) { s.walked.Ends = s.walked.Ends[1:] }, false},
		"a walker's end":                        {func(s *shown) { s.walked.Ends[1].Group[s.walked.Ends[1].Walker%64]++ }, false},
		"another walker":                        {func(s *shown) { s.walked.Ends[3].Walker = 39 - s.walked.Ends[3].Walker%2 }, false},
		"a walker that is not there":            {func(s *shown) { s.walked.Ends[3].Walker = math.MaxUint32 - 63 }, false},
		"a group cut off behind what was drawn": {func(s *shown) { e := &s.walked.Ends[0]; e.Group = e.Group[:e.Walker+1] }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(7, time.Now)
			w.before = func(m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
				x := req.GetShow()
				if x == nil {
					return nil, nil
				}
				var s shown
				var err error
				var rest []byte
				if s.opened, rest, err = challenge.UnmarshalOpened(x.Openings); err == nil {
					s.walked, _, err = challenge.UnmarshalWalked(rest)
				}
				if err != nil {
					return nil, err
				}
				c.change(&s)
				x.Openings = append(s.opened.Marshal(), s.walked.Marshal()...)
				if c.signed {
					of, err := audit.UnmarshalShown(x.Shown)
					if err != nil {
						return nil, err
					}
					of.Openings = audit.Show(audit.Answer{}, s.opened.Openings).Openings
					sig, err := of.Sign(audittest.Domain(), w.provider)
					if err != nil {
						return nil, err
					}
					b := of.Marshal()
					x.Shown, x.Signature = b[:], sig[:]
				}
				return nil, nil
			}
			results, err := w.prover().Audit(t.Context(), units(1))
			if err == nil && results[0].Err == nil {
				t.Error("it passes")
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.lies) != 0 || w.judged[audit.Pass] != 0 {
				t.Errorf("lies %v, judged %v", w.lies, w.judged)
			}
		})
	}
}

// firstStep is a step of a window's first attempt.
func firstStep(w audit.Window) *nodepb.AuditRequest {
	return &nodepb.AuditRequest{Window: uint64(w), Attempt: 1}
}
