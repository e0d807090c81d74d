package rewards_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

func genGuarded(t *rapid.T) rewards.Guarded {
	g := rewards.Guarded{ID: sign.Signature{rapid.Byte().Draw(t, "id")}, Slot: market.Slot(rapid.Uint64Range(0, 1000).Draw(t, "slot")), Mint: sign.Key{1}}
	g.Net = rapid.OneOf(rapid.Uint64Range(1, 1e9), rapid.Uint64Min(1)).Draw(t, "net")
	for _, k := range rapid.SliceOfNDistinct(rapid.Byte(), 1, 6, rapid.ID[byte]).Draw(t, "keys") {
		g.Keys = append(g.Keys, sign.Key{k})
	}
	slices.SortFunc(g.Keys, func(a, b sign.Key) int { return bytes.Compare(a[:], b[:]) })
	return g
}

func genGuards(t *rapid.T) rewards.Guards {
	terms := account.MintTerms{Mint: sign.Key{1}, FeeBps: rapid.Uint16Range(0, 10_000).Draw(t, "fee"), PoolBps: rapid.Uint16Range(0, 10_000).Draw(t, "pool")}
	return rewards.Guards{Terms: terms, Claims: rapid.SliceOfN(rapid.Custom(genGuarded), 0, 30).Draw(t, "claims")}
}

// Whatever was claimed, in whatever order, each once: guardians get no more than half of the pool, and nobody who signs for itself more
// than half of what its own claims bring into it; what they do not get is divided by verdicts, and never more is paid than there is.
func TestDivideGuarded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ts, g, shared := genTallies(t), genGuards(t), genShared(t)
		table := rewards.NewTable(3, shared, ts).WithGuarded(g.Claims)
		again, err := rewards.UnmarshalTable(table.Marshal())
		if err != nil || !slices.Equal(again.Claims, table.Claims) || !slices.Equal(again.Lines, table.Lines) {
			t.Fatalf("%+v, %v", again, err)
		}
		g.Claims = rewards.Largest(g.Claims, len(g.Claims)) // of two claims of one name there is only one
		other := g
		other.Claims = slices.Concat(g.Claims, g.Claims)
		slices.Reverse(other.Claims)
		if !slices.Equal(rewards.NewTable(3, shared, ts).WithGuarded(other.Claims).Claims, table.Claims) {
			t.Fatal("another order gives another table")
		}
		a, err := table.Divide(1, ts, g, wallet)
		b, err2 := table.Divide(1, ts, other, wallet)
		if !slices.Equal(a.Payees, b.Payees) || (err == nil) != (err2 == nil) {
			t.Fatalf("another order, each twice, gives %+v (%v), not %+v (%v)", b, err2, a, err)
		}
		if err == nil && a.Rewards().Sum > shared[1] {
			t.Fatalf("%d of %d is paid", a.Rewards().Sum, shared[1])
		}
		if e, err := table.Divide(0, ts, g, wallet); err == nil {
			if plain, _ := table.Divide(0, ts, rewards.Guards{}, wallet); !slices.Equal(e.Payees, plain.Payees) {
				t.Fatal("guardians are paid of the emission")
			}
		}
		// Guardians alone, and each claim alone: what it pays all who signed, against what it brought.
		alone, err := table.Divide(1, nil, g, wallet)
		if err == nil && alone.Rewards().Sum > shared[1]/2 {
			t.Fatalf("guardians get %d of %d", alone.Rewards().Sum, shared[1])
		}
		for _, c := range g.Claims {
			got, err := table.Divide(1, nil, rewards.Guards{Terms: g.Terms, Claims: []rewards.Guarded{c}}, wallet)
			if err != nil {
				continue
			}
			if !c.Counts() {
				t.Fatalf("%d keys are paid", len(c.Keys))
			}
			if n, most := (rewards.Guards{Terms: g.Terms, Claims: []rewards.Guarded{c}}).Of(c.Keys[0]); n != 1 || got.Rewards().Sum > most*uint64(len(c.Keys)) {
				t.Fatalf("each of %d is paid at most %d, all together %d", len(c.Keys), most, got.Rewards().Sum)
			}
			if gross, fee, pool := claimed(c.Net, g.Terms); gross > 0 && 2*got.Rewards().Sum > pool {
				t.Fatalf("of a claim of %d, whose fee of %d brings the pool %d, its guardians get %d", gross, fee, pool, got.Rewards().Sum)
			}
		}
	})
}

// claimed is the least claim that pays a provider so much, its fee as the program takes it at the beginning of a lease, and the pool's
// share; zeros where that is too much to be counted with here.
func claimed(net uint64, terms account.MintTerms) (gross, fee, pool uint64) {
	const most = 1 << 45
	f := uint64(terms.FeeBps)
	if net > most || f == 10_000 {
		return 0, 0, 0
	}
	if gross = net * 10_000 / (10_000 - f); gross > most {
		return 0, 0, 0
	}
	for gross -= min(gross, 2); gross-(gross*f+9_999)/10_000 < net; {
		gross++
	}
	fee = gross - net
	return gross, fee, fee * uint64(terms.PoolBps) / 10_000
}

// A claim counts in the epoch that has its slot, and in no other.
func TestGuardedOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := account.Votes{VotingSlots: 1, LockSlots: 1, LeastBonded: 1, LeastBond: 1, FirstSlot: rapid.Uint64Range(0, 500).Draw(t, "first"),
			EpochSlots: rapid.Uint64Range(1, 300).Draw(t, "length"), EpochsOfMonth: 5}
		g, in := genGuarded(t), 0
		for epoch := range uint64(1001) {
			if g.In(v, epoch) {
				in++
			}
		}
		if want := 0; uint64(g.Slot) >= v.FirstSlot {
			if want = 1; in != want {
				t.Fatalf("slot %d is in %d epochs of %d slots from %d", g.Slot, in, v.EpochSlots, v.FirstSlot)
			}
		} else if in != want {
			t.Fatalf("slot %d is in an epoch, the first begins at %d", g.Slot, v.FirstSlot)
		}
	})
}

// A verifier looks on the chain for each claim that it does not know, and refuses a table that leaves a guardian short.
func TestCompareGuarded(t *testing.T) {
	t.Parallel()
	claim := func(id byte, net uint64, keys ...byte) rewards.Guarded {
		g := rewards.Guarded{ID: sign.Signature{id}, Net: net}
		for _, k := range keys {
			g.Keys = append(g.Keys, sign.Key{k})
		}
		return g
	}
	mine := []rewards.Guarded{claim(1, 95, 1, 2), claim(2, 5, 1, 2), claim(3, 50, 3, 4)}
	for _, c := range []struct {
		what   string
		table  []rewards.Guarded
		unseen int
		err    error
	}{
		{"my own", mine, 0, nil},
		{"one more", append(slices.Clone(mine), claim(9, 1000, 9, 8)), 1, nil},
		{"less than a tenth missing", []rewards.Guarded{mine[0], mine[2]}, 0, nil},
		{"a guardian left out", mine[:2], 0, rewards.ErrShort},
		{"more than was paid", []rewards.Guarded{claim(1, 96, 1, 2), mine[1], mine[2]}, 0, rewards.ErrProof},
		{"less than was paid", []rewards.Guarded{claim(1, 94, 1, 2), mine[1], mine[2]}, 0, rewards.ErrProof},
		{"none", nil, 0, rewards.ErrShort},
	} {
		table := rewards.NewTable(3, [rewards.Sources]uint64{}, nil).WithGuarded(c.table)
		unseen, err := table.CompareGuarded(mine)
		if len(unseen) != c.unseen || !errors.Is(err, c.err) || c.err == nil && err != nil {
			t.Errorf("%s: %v, %v", c.what, unseen, err)
		}
	}
	var many []rewards.Guarded
	for i := range rewards.MaxGuarded + 5 {
		g := claim(0, uint64(i+1), 1, 2)
		g.ID[1], g.ID[2] = byte(i>>8), byte(i)
		many = append(many, g)
	}
	full := rewards.NewTable(3, [rewards.Sources]uint64{}, nil).WithGuarded(many)
	if len(full.Claims) != rewards.MaxGuarded || slices.ContainsFunc(full.Claims, func(c rewards.Claim) bool { return c.Net <= 5 }) {
		t.Errorf("%d claims, not the largest", len(full.Claims))
	}
	if _, err := full.CompareGuarded(append(many, mine...)); err != nil {
		t.Errorf("a full table: %v", err)
	}
}
