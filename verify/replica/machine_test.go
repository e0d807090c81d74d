package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// play is a check that begins in slot 10, after some events, each of which must be taken.
func play(t *testing.T, valid uint32, events ...Event) Check {
	t.Helper()
	c, _, err := New(terms(valid), committed("a", "x", true), 10)
	for _, e := range events {
		if err == nil {
			c, _, err = c.Step(20, e)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func beacon() Event { return BeaconSeen{block(14, 0)} }

func replied(attempt uint32, by, result string) Event {
	return ReplicaCommitted{attempt, committed(by, result, true)}
}

// states has a check in each state, all of them reached by events.
func states(t *testing.T) map[State]Check {
	t.Helper()
	never := play(t, MaxTrust) // one in a hundred results is replicated
	for n := 0; never.State() == Unchecked; n++ {
		next, _, err := never.Step(20, BeaconSeen{block(14, n)})
		if err != nil {
			t.Fatal(err)
		}
		if next.State() == NotDrawn {
			never = next
		}
	}
	tired, _, err := play(t, 0).Step(1000, Ticked{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[State]Check{
		Unchecked:   play(t, 0),
		Replicating: play(t, 0, beacon()),
		NotDrawn:    never,
		Equal:       play(t, 0, beacon(), replied(1, "b", "x")),
		Differs:     play(t, 0, beacon(), replied(1, "b", "y"), replied(2, "c", "y")),
		Undecided: play(t, 0, beacon(), replied(1, "b", "y"), replied(2, "c", "w"), replied(3, "d", "v"),
			replied(4, "e", "u")),
		Unverified: tired,
	}
	for want, c := range out {
		if c.State() != want {
			t.Fatalf("it is %s, want %s", c.State(), want)
		}
	}
	return out
}

// TestEveryEventInEveryState: an event that cannot be is an error and changes nothing; one that is late or repeated
// changes nothing; a check that has ended takes no event, not even one that cannot be.
func TestEveryEventInEveryState(t *testing.T) {
	t.Parallel()
	type outcome string
	const (
		taken, same, refused outcome = "taken", "same", "refused"
	)
	for state, c := range states(t) {
		for name, e := range map[string]struct {
			event                  Event
			unchecked, replicating outcome
		}{
			"a block":                {BeaconSeen{block(14, 0)}, taken, same},
			"a later block":          {BeaconSeen{block(1<<40, 0)}, taken, same},
			"a block known before":   {BeaconSeen{block(13, 0)}, refused, same},
			"a replica":              {replied(1, "b", "y"), refused, taken},
			"an earlier replica":     {replied(0, "b", "y"), same, same},
			"a replica to come":      {replied(2, "b", "y"), refused, refused},
			"a failure":              {ReplicaFailed{1, party("b"), "x"}, refused, taken},
			"an earlier failure":     {ReplicaFailed{0, party("b"), "x"}, same, same},
			"a failure to come":      {ReplicaFailed{7, party("b"), "x"}, refused, refused},
			"time, too little":       {Ticked{}, same, same},
			"an unsigned replica":    {ReplicaCommitted{1, committed("b", "x", false)}, refused, taken},
			"a replica by itself":    {replied(1, "a", "x"), refused, taken},
			"by its owner's other":   {replied(1, "a2", "x"), refused, taken},
			"a replica by the buyer": {replied(1, "z", "x"), refused, taken},
			"nothing":                {nil, refused, refused},
		} {
			want := map[State]outcome{Unchecked: e.unchecked, Replicating: e.replicating}[state]
			if state.Ended() {
				want = same
			}
			next, fx, err := c.Step(20, e.event)
			got := taken
			switch {
			case err != nil && errors.Is(err, ErrEvent) && len(fx) == 0 && reflect.DeepEqual(next, c):
				got = refused
			case err == nil && len(fx) == 0 && reflect.DeepEqual(next, c):
				got = same
			case err != nil:
				t.Errorf("%s: %s: %v with %d effects", state, name, err, len(fx))
			}
			if got != want {
				t.Errorf("%s: %s is %s, want %s", state, name, got, want)
			}
		}
	}
}

// TestPartiesDoNotCount: a replica by the provider itself, by its owner's other key, or by the buyer decides nothing,
// and another one is asked for.
func TestPartiesDoNotCount(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"a", "a2", "z", "z2"} {
		c := play(t, 0, beacon(), replied(1, by, "x"))
		if v := c.Verdict(); c.State() != Replicating || c.Attempt() != 2 || len(v.Results) != 1 || v.Right >= 0 {
			t.Errorf("a replica by %s: %s, attempt %d, %d results", by, c.State(), c.Attempt(), len(v.Results))
		}
	}
	// The same of a party to the second replica.
	c := play(t, 0, beacon(), replied(1, "b", "y"), replied(2, "b2", "y"))
	if c.State() != Replicating || len(c.Verdict().Results) != 2 || len(c.Verdict().Wrong) > 0 {
		t.Errorf("an owner with two results: %s, %+v", c.State(), c.Verdict())
	}
}

// TestReplicateNotBy: each request leaves out everybody who is a party, and those that failed.
func TestReplicateNotBy(t *testing.T) {
	t.Parallel()
	c := play(t, 0, beacon(), replied(1, "b", "y"), ReplicaFailed{2, party("c"), "away"},
		ReplicaFailed{3, Party{}, "nobody"})
	fx := c.Resume()
	if len(fx) != 1 {
		t.Fatalf("%d effects", len(fx))
	}
	r, ok := fx[0].(Replicate)
	want := []Party{party("z"), party("a"), party("b"), party("c")}
	if !ok || r.Attempt != 4 || !slices.Equal(r.Not, want) {
		t.Errorf("%+v, want attempt 4, not by %v", fx[0], want)
	}
	var all []Candidate
	for _, name := range []string{"a", "a2", "b", "b2", "c", "c2", "z", "z2", "d"} {
		all = append(all, Candidate{Provider: party(name).Provider, Owner: party(name).Owner, Staked: true})
	}
	if got := Pick(r.Seed, r.Attempt, all, r.Not); !slices.Equal(got, []sign.Key{party("d").Provider}) {
		t.Errorf("%d candidates, want d alone", len(got))
	}
}

// TestUnsignedIsAlwaysChecked: a provider cannot save itself the check with a result that it does not sign.
func TestUnsignedIsAlwaysChecked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := terms(rapid.Uint32().Draw(t, "valid"))
		c, _, err := New(x, committed("a", "x", false), 10)
		if err != nil {
			t.Fatal(err)
		}
		c, _, err = c.Step(20, BeaconSeen{block(14, rapid.IntRange(0, 1<<20).Draw(t, "n"))})
		if err != nil || c.State() != Replicating {
			t.Fatalf("%s, %v", c.State(), err)
		}
	})
}

// TestReasons: whatever a peer gives as its reason, what is kept is short and can be journalled.
func TestReasons(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]string{
		"none": "", "long": strings.Repeat("x", 10*maxReason), "half a letter": strings.Repeat("é", maxReason),
		"no UTF-8": "\xff\xfe", "controls": "\x00\x1b[2J\n", "quotes": strings.Repeat(`"\`, maxReason/2),
	} {
		c := play(t, 0, beacon(), ReplicaFailed{1, party("b"), reason})
		b, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Restore(b); err != nil || !reflect.DeepEqual(back, c) || len(c.s.Reason) > maxReason {
			t.Errorf("%s: %v, %d bytes kept", name, err, len(c.s.Reason))
		}
	}
}

// TestFarSlots: slots that no network reaches do not wrap, and such a check still ends.
func TestFarSlots(t *testing.T) {
	t.Parallel()
	if _, _, err := New(terms(0), committed("a", "x", true), lastSlot+1); !errors.Is(err, ErrTerms) {
		t.Errorf("begun after the last slot: %v", err)
	}
	x := terms(0)
	x.Params.DelaySlots, x.Params.PatienceSlots = 1<<40, 1<<40
	c, _, err := New(x, committed("a", "x", true), lastSlot)
	if err != nil {
		t.Fatal(err)
	}
	if c, _, err = c.Step(1<<64-1, BeaconSeen{block(1<<64-1, 0)}); err != nil || c.Wake() <= lastSlot {
		t.Fatalf("%v: wakes at %d", err, c.Wake())
	}
	b, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(b); err != nil {
		t.Error(err)
	}
}

// TestRestoreRefused: each field of a journalled state is held to what a check can journal.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	all := states(t)
	good := func(s State) state {
		x := all[s].s
		x.Results = slices.Clone(x.Results)
		return x
	}
	for name, c := range map[string]struct {
		from   State
		change func(*state)
	}{
		"adaptive after 0": {Unchecked, func(s *state) { s.Terms.Params.AdaptiveAfter = 0 }},
		"no patience":      {Unchecked, func(s *state) { s.Terms.Params.PatienceSlots = 0 }},
		"no results":       {Unchecked, func(s *state) { s.Results = nil }},
		"six results": {Undecided, func(s *state) {
			s.Results, s.Attempt = append(s.Results, committed("f", "t", true)), 5
		}},
		"13 attempts":    {Unverified, func(s *state) { s.Attempt = MaxAttempts + 1 }},
		"13 that failed": {Unverified, func(s *state) { s.Tried = make([]Party, MaxAttempts+1) }},
		"a result of nowhere": {Unverified, func(s *state) {
			s.Results = append(s.Results, committed("b", "y", true))
		}},
		"more than always":      {Unchecked, func(s *state) { s.Odds = Always + 1 }},
		"a record too long":     {Unchecked, func(s *state) { s.Terms.Trust.Valid = MaxTrust + 1 }},
		"begun too late":        {Unchecked, func(s *state) { s.Since = lastSlot + 1 }},
		"waiting for ever":      {Unchecked, func(s *state) { s.Until = 2*lastSlot + 1 }},
		"a long reason":         {Unverified, func(s *state) { s.Reason = strings.Repeat("x", maxReason+1) }},
		"unchecked, a block":    {Unchecked, func(s *state) { s.Beacon = &Beacon{} }},
		"unchecked, attempts":   {Unchecked, func(s *state) { s.Attempt = 1 }},
		"not drawn, no block":   {NotDrawn, func(s *state) { s.Beacon = nil }},
		"not drawn, attempts":   {NotDrawn, func(s *state) { s.Attempt = 1 }},
		"replicating, nothing":  {Replicating, func(s *state) { s.Attempt = 0 }},
		"replicating, no block": {Replicating, func(s *state) { s.Beacon = nil }},
		"replicating, decided":  {Equal, func(s *state) { s.State = Replicating }},
		"replicating for ever":  {Undecided, func(s *state) { s.State = Replicating }},
		"equal, no block":       {Equal, func(s *state) { s.Beacon = nil }},
		"equal, one result":     {Equal, func(s *state) { s.Results = s.Results[:1] }},
		"equal, and not":        {Differs, func(s *state) { s.State = Equal }},
		"differs, and equal":    {Equal, func(s *state) { s.State = Differs }},
		"differs, no majority":  {Undecided, func(s *state) { s.State = Differs }},
		"differs, of two":       {Differs, func(s *state) { s.Results = s.Results[:2] }},
		"undecided too early":   {Undecided, func(s *state) { s.Results = s.Results[:4] }},
		"undecided, a majority": {Differs, func(s *state) { s.State = Undecided }},
		"no state":              {Equal, func(s *state) { s.State = "" }},
		"an unknown state":      {Equal, func(s *state) { s.State = "judged" }},
	} {
		x := good(c.from)
		if b := mustJSON(t, x); !restores(b) {
			t.Fatalf("%s: %s is not restored", name, c.from)
		}
		c.change(&x)
		if _, err := Restore(mustJSON(t, x)); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := mustJSON(t, good(Equal))
	for name, raw := range map[string][]byte{
		"nothing": nil, "null and more": []byte("null null"), "cut off": b[:len(b)-1],
		"bytes after it": append(slices.Clone(b), 'x'), "a second state": append(slices.Clone(b), b...),
		"a list": []byte("[]"), "an unknown field": append([]byte(`{"blame":1,`), b[1:]...),
		"too much": append(slices.Clone(b), make([]byte, MaxState)...),
	} {
		if _, err := Restore(raw); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func mustJSON(t *testing.T, s state) []byte {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func restores(b []byte) bool {
	_, err := Restore(b)
	return err == nil
}

// TestResume: a new process repeats the effect that its state waits for, and an ended one its verdict.
func TestResume(t *testing.T) {
	t.Parallel()
	for state, c := range states(t) {
		fx := c.Resume()
		if len(fx) != 1 {
			t.Fatalf("%s: %d effects", state, len(fx))
		}
		got := fmt.Sprintf("%T", fx[0])
		want := map[State]string{Unchecked: "replica.AskBeacon", Replicating: "replica.Replicate"}[state]
		if want == "" {
			want = "replica.Ended"
		}
		if got != want || (c.Wake() == 0) != state.Ended() {
			t.Errorf("%s: %s, wakes at %d", state, got, c.Wake())
		}
		if e, ok := fx[0].(Ended); ok && e.Verdict.State != state {
			t.Errorf("%s: it ended as %s", state, e.Verdict.State)
		}
	}
}

// TestMajority: of every list of results, what more than half of at least two have, in whichever order they came.
func TestMajority(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []Committed
		count := map[sign.Hash]int{}
		for i := range rapid.IntRange(1, MaxResults).Draw(t, "results") {
			r := committed(string(rune('a'+i)), rapid.SampledFrom([]string{"x", "y", "w"}).Draw(t, "result"), true)
			all = append(all, r)
			count[r.Output]++
		}
		right, wrong := majority(all)
		most := slices.Max(slices.Collect(maps.Values(count)))
		if decided := most >= 2 && 2*most > len(all); decided != (right >= 0) {
			t.Fatalf("%v: %d is right", count, right)
		} else if !decided {
			if len(wrong) > 0 {
				t.Fatalf("%v are blamed without a majority", wrong)
			}
			return
		}
		if count[all[right].Output] != most || len(wrong) != len(all)-most || !slices.IsSorted(wrong) {
			t.Fatalf("%v: %d is right, %v are wrong", count, right, wrong)
		}
		for _, w := range wrong {
			if all[w].Output == all[right].Output {
				t.Fatalf("%d is blamed for the right result", w)
			}
		}
	})
}

// TestDrawnOften: at certainty every block draws a result, at odds of 0 none.
func TestDrawnOften(t *testing.T) {
	t.Parallel()
	for n := range 500 {
		b := block(market.Slot(n), n)
		if !Drawn(Always, b, Nonce{1}, committed("a", "x", true)) || Drawn(0, b, Nonce{1}, committed("a", "x", true)) {
			t.Fatalf("block %d", n)
		}
	}
}
