package reputation

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// TestFactLayoutRefused: one length, one version, and reserved bytes that are 0.
func TestFactLayoutRefused(t *testing.T) {
	t.Parallel()
	good := lease(1, key(1), key(2), 5, now)[0].Marshal()
	for n := range FactSize {
		if _, err := UnmarshalFact(good[:n]); !errors.Is(err, market.ErrMalformed) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if _, err := UnmarshalFact(append(good[:FactSize:FactSize], 0)); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("a byte more: %v", err)
	}
	for _, at := range []int{0, 3, 4, 5, 6, 7} {
		for _, bit := range []byte{1, 0x80} {
			b := append([]byte(nil), good...)
			b[at] ^= bit
			if f, err := UnmarshalFact(b); !errors.Is(err, market.ErrMalformed) {
				t.Errorf("byte %d: %+v, %v", at, f, err)
			}
		}
	}
}

// TestEveryKindOfFact: words are between two peers, proofs are about a provider and by nobody, and nothing else is.
func TestEveryKindOfFact(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for kind := range Kind(16) {
		word, proof := kind == Kept || kind == Failed, kind >= AuditPassed && kind <= Lied
		if named := kindNames[kind] != ""; named != (word || proof) || names[kind.String()] {
			t.Errorf("kind %d is named %q", kind, kind)
		}
		names[kind.String()] = true
		for role := range Role(4) {
			for _, rater := range []sign.Key{{}, key(2)} {
				f := Fact{ID: id(1), Kind: kind, Role: role, Subject: key(1), Rater: rater, Value: 5, At: now}
				want := word && role <= Buyer && !rater.IsZero() || proof && role == Provider && rater.IsZero()
				back, err := UnmarshalFact(f.Marshal())
				if (err == nil) != want || err == nil && back != f {
					t.Errorf("%s of a %s by %s: %+v, %v", kind, role, rater.Short(), back, err)
				}
			}
		}
	}
}

func TestRoleText(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{Provider, Buyer} {
		text, err := role.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		back := Provider + Buyer - role
		if err := back.UnmarshalText(text); err != nil || back != role {
			t.Errorf("%s comes back as %s, %v", role, back, err)
		}
	}
	for _, bad := range []string{"", "Provider", "seller", "buyer ", "provider\x00"} {
		role := Buyer
		if err := role.UnmarshalText([]byte(bad)); !errors.Is(err, market.ErrMalformed) || role != Buyer {
			t.Errorf("%q: %s, %v", bad, role, err)
		}
	}
}

// TestRepeatedFactsCountOnce: a fact that is repeated, or repeated with a lower value, changes no score.
func TestRepeatedFactsCountOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts := world(t)
		want := scores(view(t, facts))
		for range rapid.IntRange(1, 10).Draw(t, "repeated") {
			if len(facts) == 0 {
				break
			}
			f := rapid.SampledFrom(facts).Draw(t, "fact")
			f.Value -= market.Amount(rapid.Uint64Range(0, uint64(f.Value)).Draw(t, "less"))
			facts = append(facts, f)
		}
		got := scores(view(t, facts))
		if len(got) != len(want) {
			t.Fatalf("%d scores, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i].Millionths != want[i].Millionths {
				t.Fatalf("score %d went from %d to %d", i, want[i].Millionths, got[i].Millionths)
			}
		}
	})
}
