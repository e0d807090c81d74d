package reputation

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

var params = Params{Unit: 100, HalfLife: 1000}

// now is the slot that tests look from.
const now = market.Slot(1_000_000)

func key(n int) sign.Key {
	var k sign.Key
	binary.BigEndian.PutUint32(k[:], uint32(n+1))
	return k
}

func id(n int) sign.Hash {
	var h sign.Hash
	binary.BigEndian.PutUint32(h[:], uint32(n))
	return h
}

// reader is the peer that looks.
var reader = key(0)

// lease are the facts of a lease that both kept.
func lease(n int, provider, buyer sign.Key, value market.Amount, at market.Slot) []Fact {
	return []Fact{{id(n), Kept, Provider, provider, buyer, value, at}, {id(n), Kept, Buyer, buyer, provider, value, at}}
}

func view(t interface {
	Helper()
	Fatal(...any)
}, facts []Fact, stakes ...Stake) *View {
	t.Helper()
	v, err := NewView(params, reader, now, facts, stakes)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// world draws facts between few peers, so that they meet often; those from key(12) on never appear.
func world(t *rapid.T) []Fact {
	var out []Fact
	for i := range rapid.IntRange(0, 60).Draw(t, "facts") {
		out = append(out, fact(t, i)...)
	}
	return out
}

func fact(t *rapid.T, n int) []Fact {
	a := rapid.IntRange(0, 11).Draw(t, "provider")
	b := (a + rapid.IntRange(1, 11).Draw(t, "buyer")) % 12
	value := market.Amount(rapid.Uint64Range(0, 100_000).Draw(t, "value"))
	at := now - market.Slot(rapid.Uint64Range(0, 5000).Draw(t, "age"))
	switch kind := rapid.SampledFrom([]Kind{Kept, Kept, Kept, Kept, Failed, AuditPassed, AuditFailed, AuditLate, SoldTwice, Lied}).Draw(t, "kind"); kind {
	case Kept:
		return lease(n, key(a), key(b), value, at)
	case Failed:
		return []Fact{{id(n), Failed, rapid.SampledFrom([]Role{Provider, Buyer}).Draw(t, "role"), key(a), key(b), value, at}}
	default:
		return []Fact{{id(n), kind, Provider, key(a), sign.Key{}, value, at}}
	}
}

func stakes(t *rapid.T) []Stake {
	var out []Stake
	for range rapid.IntRange(0, 4).Draw(t, "stakes") {
		out = append(out, Stake{key(rapid.IntRange(0, 11).Draw(t, "staker")), market.Amount(rapid.Uint64Range(0, 1<<40).Draw(t, "stake"))})
	}
	return out
}

// scores are those of all peers in both roles.
func scores(v *View) (out []Score) {
	for i := range 12 {
		out = append(out, v.Score(key(i), Provider), v.Score(key(i), Buyer))
	}
	return out
}

func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts, st := world(t), stakes(t)
		want := fmt.Sprint(scores(view(t, facts, st...)))
		twice := append(append([]Fact{}, facts...), facts...) // and what is told again counts once
		if got := fmt.Sprint(scores(view(t, rapid.Permutation(twice).Draw(t, "order"), st...))); got != want {
			t.Fatalf("%s\nafter\n%s", got, want)
		}
	})
}

func TestMoreGoodNeverLowers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts, st := world(t), stakes(t)
		j, r := rapid.IntRange(1, 11).Draw(t, "peer"), rapid.IntRange(0, 15).Draw(t, "rater")
		if j == r {
			t.Skip()
		}
		value, at := market.Amount(rapid.Uint64Range(0, 1<<40).Draw(t, "more")), now-market.Slot(rapid.Uint64Range(0, 5000).Draw(t, "when"))
		for role, more := range [][]Fact{lease(1000, key(j), key(r), value, at), lease(1000, key(r), key(j), value, at), {{id(1000), AuditPassed, Provider, key(j), sign.Key{}, 0, at}}} {
			role := Role(role % 2)
			before := view(t, facts, st...).Score(key(j), role)
			after := view(t, append(more, facts...), st...).Score(key(j), role)
			if after.Millionths < before.Millionths || after.Good < before.Good || after.Bad != before.Bad {
				t.Fatalf("%+v after %+v", after, before)
			}
		}
	})
}

func TestMoreBadNeverRaises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts, st := world(t), stakes(t)
		j := rapid.IntRange(1, 11).Draw(t, "peer")
		bad := Fact{id(1000), rapid.SampledFrom([]Kind{Failed, AuditFailed, AuditLate, SoldTwice, Lied}).Draw(t, "kind"), Provider, key(j), sign.Key{},
			market.Amount(rapid.Uint64().Draw(t, "value")), now - market.Slot(rapid.Uint64Range(0, 5000).Draw(t, "when"))}
		if bad.Kind == Failed {
			bad.Rater = reader
		}
		before := view(t, facts, st...).Score(key(j), Provider)
		after := view(t, append([]Fact{bad}, facts...), st...).Score(key(j), Provider)
		if after.Millionths > before.Millionths || after.Good != before.Good || after.Bad < before.Bad {
			t.Fatalf("%+v after %+v", after, before)
		}
	})
}

func TestHearsayChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts, st := world(t), stakes(t)
		want := fmt.Sprint(scores(view(t, facts, st...)))
		j := rapid.IntRange(0, 11).Draw(t, "peer")
		r := (j + rapid.IntRange(1, 11).Draw(t, "rater")) % 12
		if r == 0 {
			t.Skip("it is the reader's own")
		}
		for i := range rapid.IntRange(1, 20).Draw(t, "times") {
			facts = append(facts, Fact{id(1000 + i), Failed, Role(i % 2), key(j), key(r), math.MaxUint64, now})
		}
		if got := fmt.Sprint(scores(view(t, facts, st...))); got != want {
			t.Fatalf("%s\nafter\n%s", got, want)
		}
	})
}

// Whoever deals with one peer alone gains it nothing, however many they are, whatever they pay, and whatever that peer
// pays them: not in the role that they rate and not in the other.
func TestThoseWhoDealWithOnePeerAloneGainItNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts, st := world(t), stakes(t)
		j := rapid.IntRange(1, 11).Draw(t, "peer")
		before := view(t, facts, st...)
		for i := range rapid.IntRange(1, 30).Draw(t, "deals") {
			s := key(100 + rapid.IntRange(0, 9).Draw(t, "sybil"))
			value := market.Amount(rapid.Uint64Range(0, 1<<50).Draw(t, "wash"))
			if rapid.Bool().Draw(t, "buys") {
				facts = append(facts, lease(1000+i, key(j), s, value, now)...)
			} else {
				facts = append(facts, lease(1000+i, s, key(j), value, now)...)
			}
		}
		after := view(t, facts, st...)
		for _, role := range []Role{Provider, Buyer} {
			if b, a := before.Score(key(j), role), after.Score(key(j), role); a != b {
				t.Fatalf("%+v after %+v", a, b)
			}
		}
	})
}

// What a ring of attackers can come to weigh together is bounded by what the walk brings to it, however many it makes up:
// the raters of one member weigh no more than that share of the mass, over the reference.
func TestARingIsBoundedByWhatComesToIt(t *testing.T) {
	t.Parallel()
	const honest, members = 40, 4
	facts := []Fact{}
	n := 0
	deal := func(p, b int, v market.Amount) {
		n++
		facts = append(facts, lease(n, key(p), key(b), v, now)...)
	}
	for b := range honest { // buyers 1000…, providers 1…; the reader is a buyer
		for p := range 5 {
			deal(1+(b*3+p*7)%honest, 1000+b, 500)
		}
		deal(1+b, 0, 500)
	}
	for m := range members { // each has one honest buyer
		deal(500+m, 1000+m, 500)
	}
	best := func(sybils int) uint64 {
		all := append([]Fact{}, facts...)
		for s := range sybils {
			for m := range members {
				all = append(all, lease(100_000+s*members+m, key(500+m), key(10_000+s), 1<<40, now)...)
			}
		}
		return view(t, all).Score(key(500), Provider).Good
	}
	alone := best(0)
	for _, sybils := range []int{1, 10, 100, 1000} {
		// Of the honest buyers each brings a fifth of its arcs' share to its member: the rest follows from the walk's halves.
		if got := best(sybils); got > alone+2*members*maxGain/5 {
			t.Errorf("%d sybils: %d, without them %d", sybils, got, alone)
		}
	}
}

func TestSplittingGainsNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts := world(t)
		j := rapid.IntRange(1, 11).Draw(t, "peer")
		r := (j + rapid.IntRange(1, 11).Draw(t, "rater")) % 12
		at := now - market.Slot(rapid.Uint64Range(0, 5000).Draw(t, "when"))
		var parts []Fact
		var sum market.Amount
		for i := range rapid.IntRange(1, 30).Draw(t, "parts") {
			part := market.Amount(rapid.Uint64Range(0, 1<<40).Draw(t, "part"))
			parts, sum = append(parts, lease(1000+i, key(j), key(r), part, at)...), sum+part
		}
		whole := view(t, append(lease(1000, key(j), key(r), sum, at), facts...)).Score(key(j), Provider)
		split := view(t, append(parts, facts...)).Score(key(j), Provider)
		if split.Good > whole.Good || split.Millionths > whole.Millionths {
			t.Fatalf("split %+v, whole %+v", split, whole)
		}
	})
}

// Who spoke well of one that failed the reader is believed less about others; about itself the subject changes nothing.
func TestWhoVouchedForACheatIsDoubted(t *testing.T) {
	t.Parallel()
	const p, q, one, two, x, y, cheat = 1, 2, 3, 4, 5, 6, 7
	var facts []Fact
	n := 0
	deal := func(provider, buyer int) {
		facts = append(facts, lease(n, key(provider), key(buyer), 10_000, now)...)
		n++
	}
	for _, good := range []int{p, q} {
		deal(good, 0) // with the reader
		deal(good, one)
		deal(good, two)
	}
	deal(x, one)
	deal(y, two)
	deal(cheat, two)
	score := func(k int, facts []Fact) uint32 { return view(t, facts).Score(key(k), Provider).Millionths }
	if a, b := score(x, facts), score(y, facts); a != b || a <= Stranger {
		t.Fatalf("before anything failed: %d by the one, %d by the other", a, b)
	}
	was := score(cheat, facts)
	lost := append(slices.Clone(facts), Fact{id(n), Failed, Provider, key(cheat), reader, 10_000, now})
	if a, b := score(x, lost), score(y, lost); a != score(x, facts) || b >= a || b < Stranger {
		t.Errorf("by one that vouched for the cheat %d, by another %d, before %d", b, a, score(x, facts))
	}
	e := view(t, lost).Explain(key(cheat), Provider, 0)
	if good := view(t, facts).Explain(key(cheat), Provider, 0).Good; e.Good != good || e.Millionths >= was {
		t.Errorf("what is said of the cheat itself counts %d, before %d", e.Good, good)
	}
}

func TestInTheEndEveryPeerIsAStranger(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts, st := world(t), stakes(t)
		later, err := NewView(params, reader, now+market.Slot(64*params.HalfLife), facts, st)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range scores(later) {
			if s.Millionths != Stranger || !s.Newcomer() || s.Shunned() {
				t.Fatalf("%+v", s)
			}
		}
	})
}

func TestThereIsAWayBack(t *testing.T) {
	t.Parallel()
	facts := []Fact{{id(1), Failed, Provider, key(1), reader, 1000, now}}
	at := func(halves uint64) Score {
		v, err := NewView(params, reader, now+market.Slot(halves*params.HalfLife), facts, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.Score(key(1), Provider)
	}
	if s := at(0); !s.Shunned() {
		t.Errorf("at once: %+v", s)
	}
	was := at(0)
	for h := uint64(1); h < 12; h++ {
		s := at(h)
		if s.Millionths < was.Millionths || s.Bad > was.Bad {
			t.Errorf("after %d half-lives %+v, before %+v", h, s, was)
		}
		was = s
	}
	if s := at(5); !s.Shunned() {
		t.Errorf("after five half-lives: %+v", s)
	}
	if s := at(7); s.Shunned() || !s.Newcomer() {
		t.Errorf("after seven half-lives: %+v", s)
	}
	// Good work shortens it.
	for i := range 20 {
		facts = append(facts, lease(10+i, key(1), reader, 5000, now)...)
	}
	if s := at(5); s.Shunned() || s.Millionths < 10*Stranger {
		t.Errorf("after good work: %+v", s)
	}
}

// The score of a peer that is known to fail is less than that of a new key; that of one that is known to keep its word is more.
func TestAStrangerIsBetweenThem(t *testing.T) {
	t.Parallel()
	v := view(t, append(lease(1, key(1), reader, 1000, now), Fact{id(2), Failed, Provider, key(2), reader, 0, now}))
	good, bad, none := v.Score(key(1), Provider), v.Score(key(2), Provider), v.Score(key(3), Provider)
	if good.Millionths <= none.Millionths || bad.Millionths >= none.Millionths || none.Millionths != Stranger || !none.Newcomer() {
		t.Errorf("%+v\n%+v\n%+v", good, bad, none)
	}
}

// A peer that buys well is not trusted to sell.
// A history of small jobs that were kept outweighs one lost lease that cost as little, whatever the lease's unspent hours would have
// cost. A peer that loses every lease is shunned soon, and one that loses much at once.
func TestFailuresWeighWhatWasLost(t *testing.T) {
	t.Parallel()
	small := params.Unit / 100
	at := func(kept, failed int, lost market.Amount) Score {
		var facts []Fact
		for i := range kept {
			facts = append(facts, lease(i, key(1), reader, small, now)...)
		}
		for i := range failed {
			facts = append(facts, Fact{id(1000 + i), Failed, Provider, key(1), reader, lost, now})
		}
		return view(t, facts).Score(key(1), Provider)
	}
	if s := at(100, 1, small); s.Shunned() || s.Good < 4*s.Bad {
		t.Errorf("one small loss after a hundred small jobs: %+v", s)
	}
	if s := at(100, 1, 36*params.Unit); !s.Shunned() {
		t.Errorf("a great loss: %+v", s)
	}
	if s := at(0, 1, small); !s.Newcomer() {
		t.Errorf("one small loss and nothing else: %+v", s)
	}
	if s := at(0, 20, 0); !s.Shunned() {
		t.Errorf("twenty losses and nothing else: %+v", s)
	}
}

func TestRolesAreApart(t *testing.T) {
	t.Parallel()
	facts := lease(1, key(1), reader, 1000, now)
	facts = append(facts, lease(2, key(1), key(2), 1000, now)...)
	facts = append(facts, Fact{id(3), Failed, Buyer, key(1), reader, 1000, now})
	v := view(t, facts)
	if s := v.Score(key(1), Provider); s.Bad != 0 || s.Good == 0 {
		t.Errorf("provider: %+v", s)
	}
	if s := v.Score(key(1), Buyer); s.Bad == 0 || s.Good != 0 {
		t.Errorf("buyer: %+v", s)
	}
}

func TestStakeIsABeginning(t *testing.T) {
	t.Parallel()
	facts := lease(1, key(1), key(2), 1000, now) // the reader has dealt with nobody
	facts = append(facts, lease(2, key(3), key(2), 1000, now)...)
	facts = append(facts, lease(3, key(4), key(2), 1000, now)...)
	if s := view(t, facts).Score(key(3), Provider); s.Millionths != Stranger {
		t.Errorf("without stake: %+v", s)
	}
	if s := view(t, facts, Stake{key(1), 1 << 40}).Score(key(3), Provider); s.Millionths != Stranger {
		t.Errorf("by the word of one: %+v", s)
	}
	if s := view(t, facts, Stake{key(1), 1 << 40}, Stake{key(4), 1 << 40}).Score(key(3), Provider); s.Millionths <= Stranger {
		t.Errorf("with stake: %+v", s)
	}
}

func TestExplanationSumsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := view(t, world(t), stakes(t)...)
		for i := range 13 {
			role := Role(rapid.IntRange(0, 1).Draw(t, "role"))
			e := v.Explain(key(i), role, rapid.IntRange(0, 4).Draw(t, "most"))
			var adds int64
			var evidence uint64
			for _, l := range e.Lines {
				adds, evidence = adds+l.Adds, evidence+l.Evidence
			}
			if adds != int64(e.Millionths) || evidence != e.Good+e.Bad || e.Score != v.Score(key(i), role) {
				t.Fatalf("%+v", e)
			}
		}
	})
}

func TestScoresOfManyAreThoseOfEach(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := view(t, world(t), stakes(t)...)
		for _, role := range []Role{Provider, Buyer} {
			for i, s := range v.Scores(role, v.Peers(role)...) {
				if one := v.Score(v.Peers(role)[i], role); one != s {
					t.Fatalf("%+v, alone %+v", s, one)
				}
			}
		}
	})
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	good := lease(1, key(1), key(2), 5, now)[0]
	for name, change := range map[string]func(*Fact){
		"kind 0": func(f *Fact) { f.Kind = 0 }, "kind 99": func(f *Fact) { f.Kind = 99 }, "role": func(f *Fact) { f.Role = 2 },
		"nobody": func(f *Fact) { f.Subject = sign.Key{} }, "itself": func(f *Fact) { f.Rater = f.Subject },
		"unrated": func(f *Fact) { f.Rater = sign.Key{} }, "audited by": func(f *Fact) { f.Kind = AuditPassed },
		"audited buyer": func(f *Fact) { f.Kind, f.Rater, f.Role = AuditPassed, sign.Key{}, Buyer },
	} {
		f := good
		change(&f)
		if _, err := NewView(params, reader, now, []Fact{f}, nil); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := UnmarshalFact(f.Marshal()); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s decoded: %v", name, err)
		}
	}
	if _, err := NewView(params, reader, now, make([]Fact, MaxFacts+1), nil); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many facts: %v", err)
	}
	if _, err := NewView(params, reader, now, nil, make([]Stake, MaxStakes+1)); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many stakes: %v", err)
	}
	many := make([]Fact, 0, MaxPeers)
	for i := range MaxPeers {
		many = append(many, Fact{id(i), Kept, Provider, key(2 * i), key(2*i + 1), 1, now})
	}
	if _, err := NewView(params, reader, now, many, nil); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many peers: %v", err)
	}
	if _, err := NewView(Params{}, reader, now, nil, nil); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("no params: %v", err)
	}
	// What is dated ahead is worth no more, and the greatest numbers break nothing.
	ahead := lease(1, key(1), reader, math.MaxUint64, math.MaxUint64)
	ahead = append(ahead, Fact{id(2), Failed, Provider, key(1), reader, math.MaxUint64, math.MaxUint64})
	for i := range 10 {
		ahead = append(ahead, Fact{id(10 + i), SoldTwice, Provider, key(1), sign.Key{}, 0, 0})
	}
	p := Params{Unit: math.MaxUint64, HalfLife: math.MaxUint64}
	v, err := NewView(p, reader, math.MaxUint64, ahead, []Stake{{key(1), math.MaxUint64}})
	if err != nil {
		t.Fatal(err)
	}
	if s := v.Score(key(1), Provider); s.Millionths > one {
		t.Errorf("%+v", s)
	}
}

func FuzzFact(f *testing.F) {
	f.Add(lease(1, key(1), key(2), 5, now)[0].Marshal())
	f.Add(Fact{id(2), SoldTwice, Provider, key(1), sign.Key{}, 0, 9}.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		fact, err := UnmarshalFact(b)
		if err != nil {
			return
		}
		if again := fact.Marshal(); !bytes.Equal(again, b) {
			t.Fatalf("%x\nwas\n%x", again, b)
		}
		if _, err := NewView(params, reader, now, []Fact{fact}, nil); err != nil {
			t.Fatal(err)
		}
	})
}
