package rewards_test

import (
	"bytes"
	"errors"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

var epoch3 = rewards.Epoch{Number: 3, From: 5, To: 15}

func genTally(t *rapid.T) rewards.Tally {
	x := rewards.Tally{Line: rewards.Line{
		UnitKey:    rewards.UnitKey{Provider: sign.Key{rapid.Byte().Draw(t, "provider")}, Unit: market.UnitID{rapid.Byte().Draw(t, "unit")}},
		Windows:    rapid.Uint32Range(1, 10).Draw(t, "windows"),
		Operations: rapid.Uint64().Draw(t, "operations"), Reads: rapid.Uint64().Draw(t, "reads"), Memory: rapid.Uint64().Draw(t, "memory"),
		Digest: sign.Hash{rapid.Byte().Draw(t, "digest")},
	}, Judged: map[sign.Key]uint32{}}
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		x.Judged[sign.Key{rapid.Byte().Draw(t, "member")}] += rapid.Uint32Range(1, 10).Draw(t, "verdicts")
	}
	return x
}

func genTallies(t *rapid.T) []rewards.Tally {
	return rapid.SliceOfNDistinct(rapid.Custom(genTally), 0, 40, func(x rewards.Tally) rewards.UnitKey { return x.UnitKey }).Draw(t, "tallies")
}

func genShared(t *rapid.T) (shared [rewards.Sources]uint64) {
	for i := range shared {
		shared[i] = rapid.Uint64().Draw(t, "shared")
	}
	return shared
}

// wallet: two keys in four share a wallet, and one in eight is not registered.
func wallet(k sign.Key) (sign.Key, bool) { return sign.Key{k[0] / 2, 1}, k[0]%8 != 7 }

// Whatever was counted, in whatever order: never more is paid than is divided, nobody twice, and nearly all of it; every payee can
// show what it is paid, and a table and its payees come back from their bytes as they were.
func TestDivide(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ts, shared := genTallies(t), genShared(t)
		table := rewards.NewTable(3, shared, ts)
		again, err := rewards.UnmarshalTable(table.Marshal())
		if err != nil || !slices.Equal(again.Lines, table.Lines) || again.Shared != shared || again.Epoch != 3 {
			t.Fatalf("%+v, %v", again, err)
		}
		other := slices.Clone(ts)
		slices.Reverse(other)
		for source := range rewards.Sources {
			a, err := table.Divide(uint8(source), ts, rewards.Guards{}, wallet)
			b, err2 := rewards.NewTable(3, shared, other).Divide(uint8(source), other, rewards.Guards{}, wallet)
			if !slices.Equal(a.Payees, b.Payees) || errors.Is(err, rewards.ErrNothing) != errors.Is(err2, rewards.ErrNothing) {
				t.Fatalf("another order gives %+v (%v), not %+v (%v)", b, err2, a, err)
			}
			if err != nil {
				if !errors.Is(err, rewards.ErrNothing) {
					t.Fatal(err)
				}
				continue
			}
			var sum, carry uint64
			r := a.Rewards()
			for i, p := range a.Payees {
				sum, carry = bits.Add64(sum, p.Amount, carry)
				if p.Amount == 0 || carry != 0 || i > 0 && bytes.Compare(a.Payees[i-1].Wallet[:], p.Wallet[:]) >= 0 {
					t.Fatalf("payees %+v", a.Payees)
				}
				index, amount, path, err := a.Proof(p.Wallet)
				if err != nil || index != uint32(i) || amount != p.Amount || path.Verify(r.Root, account.RewardLeaf(p.Wallet, amount), i, len(a.Payees)) != nil {
					t.Fatalf("proof of %d: %d, %d, %v", i, index, amount, err)
				}
			}
			if sum != r.Sum || sum > shared[source] || shared[source]-sum > uint64(len(weighed(ts, source))) {
				t.Fatalf("%d of %d is paid to %d", sum, shared[source], len(a.Payees))
			}
			back, err := rewards.UnmarshalAward(uint8(source), 3, a.Marshal())
			if err != nil || back.Rewards() != r {
				t.Fatalf("%+v, %v", back, err)
			}
			if _, _, _, err := a.Proof(sign.Key{255, 255}); !errors.Is(err, rewards.ErrNotPaid) {
				t.Fatalf("a stranger: %v", err)
			}
		}
	})
}

// weighed are those that could be paid from a source.
func weighed(ts []rewards.Tally, source int) map[sign.Key]bool {
	out := map[sign.Key]bool{}
	for _, x := range ts {
		if source == 0 {
			w, _ := wallet(x.Provider)
			out[w] = true
			continue
		}
		for m := range x.Judged {
			w, _ := wallet(m)
			out[w] = true
		}
	}
	return out
}

// A verifier looks at the certificates behind each line that is not its own, and refuses a table that leaves out what it knows.
func TestCompare(t *testing.T) {
	t.Parallel()
	tally := func(provider byte, windows uint32) rewards.Tally {
		return rewards.Tally{Line: rewards.Line{UnitKey: rewards.UnitKey{Provider: sign.Key{provider}, Unit: market.UnitID{1}}, Windows: windows,
			Operations: 1e12, Reads: 1e9, Memory: 1 << 30, Digest: sign.Hash{byte(windows)}}}
	}
	mine := []rewards.Tally{tally(1, 10), tally(2, 10), tally(3, 4)}
	table := func(ts ...rewards.Tally) rewards.Table { return rewards.NewTable(3, [rewards.Sources]uint64{}, ts) }
	for _, c := range []struct {
		what   string
		table  rewards.Table
		unseen int
		err    error
	}{
		{"my own", table(mine...), 0, nil},
		{"one unit more", table(append(slices.Clone(mine), tally(9, 10))...), 1, nil},
		{"another line of a unit", table(tally(1, 10), tally(2, 9), tally(3, 4)), 1, nil},
		{"a unit more than a tenth short", table(tally(1, 10), tally(2, 8), tally(3, 4)), 0, rewards.ErrShort},
		{"a unit left out", table(tally(1, 10), tally(2, 10)), 0, rewards.ErrShort},
		{"more windows than there are", table(tally(1, 11), tally(2, 10), tally(3, 4)), 0, rewards.ErrTable},
		{"another epoch's", rewards.NewTable(4, [rewards.Sources]uint64{}, mine), 0, rewards.ErrTable},
	} {
		unseen, err := c.table.Compare(epoch3, mine)
		if len(unseen) != c.unseen || !errors.Is(err, c.err) || c.err == nil && err != nil {
			t.Errorf("%s: %v, %v", c.what, unseen, err)
		}
	}
	// A line that says more of a unit than was proven to me has to be seen, even if only its rates are other ones.
	more := tally(1, 10)
	more.Operations++
	if unseen, err := table(more, tally(2, 10), tally(3, 4)).Compare(epoch3, mine); err != nil || len(unseen) != 1 {
		t.Errorf("better rates: %v, %v", unseen, err)
	}
}

// certificates of one unit in windows of its own.
func certificates(t testing.TB, windows ...audit.Window) ([]audit.Certificate, audittest.Case) {
	t.Helper()
	c := audittest.New(7)
	var out []audit.Certificate
	for _, w := range windows {
		c.Window = w
		r, err := c.Make()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r.Certificate())
	}
	return out, c
}

// What counts together is of one unit, in the epoch, and no window twice; bytes come back as they were.
func TestCount(t *testing.T) {
	t.Parallel()
	cs, c := certificates(t, 5, 7, 14)
	k := rewards.UnitKey{Provider: c.Provider.Key(), Unit: c.Unit}
	got, err := rewards.Count(epoch3, k, cs)
	if err != nil || got.Windows != 3 || got.Operations == 0 || got.Reads == 0 || len(got.Judged) != 7 {
		t.Fatalf("%+v, %v", got, err)
	}
	for m, n := range got.Judged {
		if n != 3 {
			t.Errorf("member %s judged %d times", m, n)
		}
	}
	again, err := rewards.UnmarshalCertificates(rewards.MarshalCertificates(cs))
	if err != nil || len(again) != 3 {
		t.Fatalf("%d, %v", len(again), err)
	}
	if same, err := rewards.Count(epoch3, k, again); err != nil || same.Line != got.Line {
		t.Errorf("%+v, %v", same, err)
	}
	other := k
	other.Unit[0]++
	late, _ := certificates(t, 15)
	for what, err := range map[string]error{
		"a window twice":      second(rewards.Count(epoch3, k, []audit.Certificate{cs[0], cs[0]})),
		"not in order":        second(rewards.Count(epoch3, k, []audit.Certificate{cs[1], cs[0]})),
		"another unit's":      second(rewards.Count(epoch3, other, cs)),
		"after the epoch":     second(rewards.Count(epoch3, k, late)),
		"none":                second(rewards.Count(epoch3, k, nil)),
		"of the epoch before": second(rewards.Count(rewards.Epoch{Number: 4, From: 15, To: 25}, k, cs)),
	} {
		if !errors.Is(err, rewards.ErrCertificates) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A table with a unit whose certificates do not exist is nobody's: what is shown for it counts to something else.
func TestEpochs(t *testing.T) {
	t.Parallel()
	v := account.Votes{VotingSlots: 1, LockSlots: 1, LeastBonded: 1, LeastBond: 1, FirstSlot: 1000, EpochSlots: 250, EpochsOfMonth: 2}
	for n, want := range []rewards.Epoch{{Number: 0, From: 10, To: 13}, {Number: 1, From: 13, To: 15}, {Number: 2, From: 15, To: 18}} {
		if e, err := rewards.EpochOf(v, 100, uint64(n)); err != nil || e != want {
			t.Errorf("epoch %d: %+v, %v", n, e, err)
		}
	}
	for now, want := range map[market.Slot]int{0: -1, 1249: -1, 1250: 0, 1499: 0, 1500: 1, 100_000: 395} {
		if n, ok := rewards.Last(v, now); ok != (want >= 0) || ok && n != uint64(want) {
			t.Errorf("slot %d: %d, %t", now, n, ok)
		}
	}
	if _, err := rewards.EpochOf(v, 100, ^uint64(0)); !errors.Is(err, rewards.ErrEpoch) {
		t.Errorf("an epoch that never ends: %v", err)
	}
	v.EpochSlots = 1 << 40
	if _, err := rewards.EpochOf(v, 100, 0); !errors.Is(err, rewards.ErrEpoch) {
		t.Errorf("an epoch of too many windows: %v", err)
	}
}

func FuzzTable(f *testing.F) {
	f.Add(rewards.NewTable(3, [rewards.Sources]uint64{1, 2}, []rewards.Tally{{Line: rewards.Line{Windows: 3, Operations: 4}}}).Marshal())
	f.Add(rewards.NewTable(3, [rewards.Sources]uint64{1, 2}, []rewards.Tally{{Line: rewards.Line{Windows: 3, Operations: 4}}}).WithGuarded([]rewards.Guarded{
		{ID: sign.Signature{2}, Net: 5}, {ID: sign.Signature{1}, Net: 7}}).Marshal())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := rewards.UnmarshalTable(b)
		if err == nil && !bytes.Equal(x.Marshal(), b) {
			t.Errorf("%x comes back as %x", b, x.Marshal())
		}
	})
}

func FuzzAward(f *testing.F) {
	f.Add(rewards.Award{Payees: []rewards.Payee{{Wallet: sign.Key{1}, Amount: 2}, {Wallet: sign.Key{2}, Amount: 3}}}.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := rewards.UnmarshalAward(0, 0, b)
		if err == nil && !bytes.Equal(x.Marshal(), b) {
			t.Errorf("%x comes back as %x", b, x.Marshal())
		}
	})
}

func FuzzCertificates(f *testing.F) {
	cs, c := certificates(f, 5, 7)
	f.Add(rewards.MarshalCertificates(cs))
	k := rewards.UnitKey{Provider: c.Provider.Key(), Unit: c.Unit}
	rules := audit.NewRules(c.Genesis())
	f.Fuzz(func(t *testing.T, b []byte) {
		cs, err := rewards.UnmarshalCertificates(b)
		if err != nil {
			return
		}
		if !bytes.Equal(rewards.MarshalCertificates(cs), b) {
			t.Errorf("%x comes back as %x", b, rewards.MarshalCertificates(cs))
		}
		for _, c := range cs {
			_ = c.Check(rules, audit.Seen{})
		}
		_, _ = rewards.Count(epoch3, k, cs)
	})
}
