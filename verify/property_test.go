package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/verifytest"
)

// genKey, genReceipt and genVoucher draw any value that the layouts can hold, not only those that a lease allows.
func genKey(t *rapid.T, name string) [32]byte {
	return [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, name))
}

func genReceipt(t *rapid.T) Receipt {
	n := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
	sig := func(name string) sign.Signature {
		return sign.Signature(rapid.SliceOfN(rapid.Byte(), sign.SignatureSize, sign.SignatureSize).Draw(t, name))
	}
	return Receipt{
		ReceiptCore: ReceiptCore{
			Version: ReceiptVersion, Flags: rapid.SampledFrom([]uint8{0, ReceiptFinal}).Draw(t, "flags"),
			Units: rapid.Uint16().Draw(t, "units"), RankEpoch: rapid.Uint32().Draw(t, "rank epoch"),
			Lease: genKey(t, "lease"), Seq: n("seq"), Prev: genKey(t, "prev"), Provider: genKey(t, "provider"),
			Buyer: genKey(t, "buyer"), UnitsRoot: genKey(t, "root"), Supervision: n("supervision"),
			From: market.Slot(n("from")), To: market.Slot(n("to")), CPUMillis: n("cpu"),
			Amount: market.Amount(n("amount")), Cumulative: market.Amount(n("cumulative")), Output: genKey(t, "output"),
		},
		ProviderSig: sig("provider's signature"), BuyerSig: sig("buyer's signature"),
	}
}

func genVoucher(t *rapid.T) Voucher {
	return Voucher{
		Version: VoucherVersion, Flags: rapid.SampledFrom([]uint8{0, VoucherFinal}).Draw(t, "flags"),
		Lease: genKey(t, "lease"), Escrow: genKey(t, "escrow"), Seq: rapid.Uint64().Draw(t, "seq"),
		Cumulative:  market.Amount(rapid.Uint64().Draw(t, "cumulative")),
		Horizon:     market.Slot(rapid.Uint64().Draw(t, "horizon")),
		Supervision: rapid.Uint64().Draw(t, "supervision"),
	}
}

// guardians are the keys from which key sets are drawn.
var guardians = func() (out []sign.Private) {
	for i := range market.MaxVoucherKeys {
		out = append(out, private(fmt.Sprint("guardian ", i)))
	}
	return out
}()

// genSet draws a key set and the signers of its keys, in an order that is not the set's.
func genSet(t *rapid.T) (market.KeySet, []sign.Signer) {
	n := rapid.IntRange(1, market.MaxVoucherKeys).Draw(t, "keys")
	keys := rapid.Permutation(guardians).Draw(t, "signers")[:n]
	signers := make([]sign.Signer, n)
	for i, k := range keys {
		signers[i] = k
	}
	return keySet(t, uint8(rapid.IntRange(1, n).Draw(t, "threshold")), keys...), signers
}

// same fails unless the object is read back from its layout and from its JSON, and no layout of another length is read.
func same[T any](t *rapid.T, v T, wire []byte, read func([]byte) (T, error)) {
	t.Helper()
	got, err := read(wire)
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Fatalf("read %+v, %v, want %+v", got, err, v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var again T
	if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, v) {
		t.Fatalf("JSON %s is read as %+v, %v", text, again, err)
	}
	cut := rapid.IntRange(0, len(wire)-1).Draw(t, "cut")
	for _, b := range [][]byte{wire[:cut], append(bytes.Clone(wire), 0)} {
		if _, err := read(b); !errors.Is(err, market.ErrMalformed) {
			t.Fatalf("%d bytes of %d: %v, want %v", len(b), len(wire), err, market.ErrMalformed)
		}
	}
}

// Every object is read back as it was written, whatever its fields hold.
func TestLayoutsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		receipt, bare := genReceipt(t), genVoucher(t)
		core, wire := receipt.ReceiptCore.Marshal(), bare.Marshal()
		same(t, receipt, receipt.Marshal(), UnmarshalReceipt)
		same(t, receipt.ReceiptCore, core[:], UnmarshalReceiptCore)
		same(t, bare, wire[:], UnmarshalVoucher)
		set, signers := genSet(t)
		voucher, err := SignVoucher(domain, bare, set, signers[:set.Threshold]...)
		if err != nil {
			t.Fatal(err)
		}
		same(t, voucher, voucher.Marshal(), UnmarshalSignedVoucher)
		grant := SignedSupervisionGrant{
			SupervisionGrant: SupervisionGrant{
				Version: GrantVersion, Job: genKey(t, "job"), Epoch: bare.Seq, Supervisor: genKey(t, "supervisor"),
				Guardians: set.Hash(), Slot: bare.Horizon,
			},
			Signatures: Signatures{Set: set},
		}
		for _, s := range signers[:set.Threshold] {
			if grant, err = grant.With(domain, s); err != nil {
				t.Fatal(err)
			}
		}
		same(t, grant, grant.Marshal(), UnmarshalSignedSupervisionGrant)
	})
	a, b, unitsA, unitsB := conflictOf(t)
	c, err := NewConflict(domain, a, b, unitsA, unitsB)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) { same(t, c, c.Marshal(), UnmarshalConflict) })
}

// Unknown versions, flags, reserved bytes and counts are refused when they are read, and an object that was built with
// an unknown version when it is checked.
func TestUnknownFormsRefused(t *testing.T) {
	t.Parallel()
	core := leaseCore(t)
	grant := grantsOf(t)
	voucher, err := SignVoucher(domain, voucher(core), keySet(t, 1, buyer), buyer)
	if err != nil {
		t.Fatal(err)
	}
	a, b, unitsA, unitsB := conflictOf(t)
	conflict, err := NewConflict(domain, a, b, unitsA, unitsB)
	if err != nil {
		t.Fatal(err)
	}
	receipt := chainOf(t, core, 1005, []uint64{25}, false)[0]
	const proof = 2*ReceiptSize + sign.HashSize // of the first unit proof in a conflict
	for _, c := range []struct {
		name  string
		bytes []byte
		read  func([]byte) error
		at    []int // each is set to 0xff
	}{
		{"voucher", voucher.Marshal(), func(b []byte) error { _, err := UnmarshalSignedVoucher(b); return err },
			[]int{0, 1, 2, 3, 4, 5, 6, 7, VoucherSize, VoucherSize + 1, VoucherSize + 2 + sign.KeySize, VoucherSize + 2 + sign.KeySize + 1}},
		{"receipt", receipt.Marshal(), func(b []byte) error { _, err := UnmarshalReceipt(b); return err }, []int{0, 1}},
		{"grant", grant.Marshal(), func(b []byte) error { _, err := UnmarshalSignedSupervisionGrant(b); return err },
			[]int{0, 1, 2, 3, 4, 5, 6, 7, SupervisionGrantSize, SupervisionGrantSize + 1}},
		{"conflict", conflict.Marshal(), func(b []byte) error { _, err := UnmarshalConflict(b); return err },
			[]int{0, 1, ReceiptSize, ReceiptSize + 1, proof + unitProofHead - 1}},
	} {
		if err := c.read(c.bytes); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, at := range c.at {
			b := bytes.Clone(c.bytes)
			b[at] = 0xff
			if err := c.read(b); !errors.Is(err, market.ErrMalformed) {
				t.Errorf("%s with byte %d set: %v, want %v", c.name, at, err, market.ErrMalformed)
			}
		}
	}
	voucher.Version, grant.Version = 2, 2
	if err := voucher.Check(domain, core); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("voucher of version 2: %v", err)
	}
	if err := grant.Check(domain, grant.Job, grant.Guardians); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("grant of version 2: %v", err)
	}
	receipt.Version = 2
	if err := CheckChain(domain, core, []Receipt{receipt}); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("receipt of version 2: %v, which does not unwrap to %v", err, market.ErrMalformed)
	}
}

// Any change of any byte of a voucher, a grant or a conflict is refused: where it is read, or where it is checked.
func TestEveryByteOfSignedObjects(t *testing.T) {
	t.Parallel()
	set := keySet(t, 2, buyer, provider, other)
	core := leaseCore(t)
	core.VoucherKeys = set.Hash()
	voucher, err := SignVoucher(domain, voucher(core), set, buyer, other)
	if err != nil {
		t.Fatal(err)
	}
	grant := grantsOf(t)
	a, b, unitsA, unitsB := conflictOf(t)
	conflict, err := NewConflict(domain, a, b, unitsA, unitsB)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		bytes []byte
		check func([]byte) error
	}{
		"voucher": {voucher.Marshal(), func(b []byte) error {
			v, err := UnmarshalSignedVoucher(b)
			if err != nil {
				return err
			}
			return v.Check(domain, core)
		}},
		"grant": {grant.Marshal(), func(b []byte) error {
			g, err := UnmarshalSignedSupervisionGrant(b)
			if err != nil {
				return err
			}
			return g.Check(domain, grant.Job, grant.Guardians)
		}},
		"conflict": {conflict.Marshal(), func(b []byte) error {
			c, err := UnmarshalConflict(b)
			if err != nil {
				return err
			}
			return CheckConflict(domain, c)
		}},
	} {
		verifytest.EveryByteCounts(t, name, c.bytes, c.check)
	}
}

// Whatever value one field of one receipt gets, the chain is refused at this receipt for the rule of this field, even
// when both parties sign the change. CPU time and output are theirs to agree on, so a change of them breaks the link to
// the next receipt only.
func TestChainRuleOfEachField(t *testing.T) {
	t.Parallel()
	core := leaseCore(t)
	type change struct {
		rule Rule
		at   int // offset in the layout
		size int
	}
	fields := []change{
		{RuleUnits, 2, 2}, {RuleRankEpoch, 4, 4}, {RuleLease, 8, 32}, {RuleSeq, 40, 8}, {RulePrev, 48, 32},
		{RuleParties, 80, 32}, {RuleParties, 112, 32}, {RuleUnits, 144, 32}, {RuleAmount, 208, 8},
		{RuleCumulative, 216, 8}, {RulePrev, 200, 8}, {RulePrev, 224, 32},
	}
	rapid.Check(t, func(t *rapid.T) {
		rs := genChain(t, core)
		at := rapid.IntRange(0, len(rs)-1).Draw(t, "receipt")
		f := rapid.SampledFrom(fields).Draw(t, "field")
		b := rs[at].ReceiptCore.Marshal()
		b[f.at+rapid.IntRange(0, f.size-1).Draw(t, "byte")] ^= rapid.ByteRange(1, 255).Draw(t, "mask")
		changed, err := UnmarshalReceiptCore(b[:])
		if err != nil {
			t.Fatal(err)
		}
		free := f.at == 200 || f.at == 224 // CPU time and output
		seq := uint64(at) + 1
		if free {
			seq++
		}
		rs[at] = signed(t, changed)
		err = CheckChain(domain, core, rs)
		if free && at == len(rs)-1 {
			if err != nil {
				t.Fatalf("the last receipt, signed again: %v", err)
			}
			return
		}
		var broke *ChainError
		if !errors.As(err, &broke) || broke.Rule != f.rule || broke.Seq != seq {
			t.Fatalf("byte %d of receipt %d: %v, want rule %s at %d", f.at, at+1, err, f.rule, seq)
		}
	})
}

// However a lease is cut into intervals, it costs the same, and a chain that is resumed from a journal goes on as one
// that was never interrupted.
func TestChainResumes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		core := leaseCore(t)
		core.Rate = market.Rate(rapid.Uint64Range(1, 40_000_000).Draw(t, "rate"))
		core.Cap = math.MaxUint64
		whole, resumed := NewChain(core), NewChain(core)
		at := market.Slot(rapid.Uint64Range(1000, 1100).Draw(t, "start"))
		start := at
		var sum market.Amount
		for _, n := range rapid.SliceOfN(rapid.Uint64Range(1, 500), 1, 8).Draw(t, "slots") {
			r, err := whole.Next(at, at+market.Slot(n), func(*ReceiptCore) {})
			if err != nil {
				t.Fatal(err)
			}
			again, err := resumed.Next(at, at+market.Slot(n), func(*ReceiptCore) {})
			if err != nil || again != r {
				t.Fatalf("resumed: %+v, %v, want %+v", again, err, r)
			}
			if whole, err = whole.Follow(r); err != nil {
				t.Fatal(err)
			}
			resumed = NewChain(core).Resume(r, start)
			at, sum = r.To, sum+r.Amount
			want, err := core.Rate.Owed(uint64(at - start))
			if err != nil || sum != want || r.Cumulative != want {
				t.Fatalf("slots %d to %d cost %d, cumulative %d, want %d, %v", start, at, sum, r.Cumulative, want, err)
			}
		}
		if whole != resumed || resumed.Start() != start || resumed.Last().To != at {
			t.Fatalf("resumed %+v, want %+v", resumed, whole)
		}
		if fresh := NewChain(core).Resume(ReceiptCore{}, start); fresh != NewChain(core) {
			t.Fatal("a chain without receipts resumes as another")
		}
	})
}

// Next never builds a receipt that Follow refuses, and names the rule that none can keep.
func TestNextRefuses(t *testing.T) {
	t.Parallel()
	core := leaseCore(t)
	chain, err := NewChain(core).Follow(chainOf(t, core, 1005, []uint64{25}, false)[0].ReceiptCore)
	if err != nil {
		t.Fatal(err)
	}
	costly := core
	costly.Rate, costly.Cap, costly.End = math.MaxUint64, math.MaxUint64, core.Start+2_000_000
	keep := func(*ReceiptCore) {}
	for name, c := range map[string]struct {
		chain    Chain
		from, to market.Slot
		fill     func(*ReceiptCore)
		rule     Rule
	}{
		"before the lease began": {chain, 1000, 1040, keep, RuleTo},
		"backwards":              {chain, 1030, 1029, keep, RuleTo},
		"a gap":                  {chain, 1031, 1040, keep, RuleFrom},
		"empty":                  {chain, 1030, 1030, keep, RuleTo},
		"past the end":           {chain, 1030, core.End + 1, keep, RuleTo},
		"another lease":          {chain, 1030, 1040, func(r *ReceiptCore) { r.Lease[0]++ }, RuleLease},
		"more than any amount":   {NewChain(costly), 1005, costly.End, keep, RuleCumulative},
	} {
		var broke *RuleError
		if _, err := c.chain.Next(c.from, c.to, c.fill); !errors.As(err, &broke) || broke.Rule != c.rule {
			t.Errorf("%s: %v, want rule %s", name, err, c.rule)
		}
	}
	if _, err := NewChain(costly).Next(1005, costly.End, keep); !errors.Is(err, market.ErrOverflow) {
		t.Errorf("more than any amount: %v, want %v", err, market.ErrOverflow)
	}
	before := chain
	if after, err := chain.Follow(ReceiptCore{Version: ReceiptVersion}); err == nil || after != before {
		t.Errorf("a refused receipt: %v, and the chain changed: %t", err, after != before)
	}
}

// Any signers of the set reach its threshold, in any order, with one result. Fewer do not, and a wrong signature beyond
// the threshold is still refused.
func TestThresholds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set, signers := genSet(t)
		core := leaseCore(t)
		core.VoucherKeys = set.Hash()
		n := rapid.IntRange(0, len(signers)).Draw(t, "signatures")
		v, err := SignVoucher(domain, voucher(core), set, signers[:n]...)
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(signers[:n])
		reversed, err := SignVoucher(domain, voucher(core), set, signers[:n]...)
		if err != nil || !slices.Equal(reversed.Sigs, v.Sigs) {
			t.Fatalf("the order of signing matters: %v", err)
		}
		before := slices.Clone(v.Sigs)
		for _, s := range signers {
			if _, err := v.With(domain, s); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(v.Sigs, before) {
			t.Fatal("With changed the voucher that it was called on")
		}
		var broke *RuleError
		if err := v.Check(domain, core); n < int(set.Threshold) {
			if !errors.As(err, &broke) || broke.Rule != RuleThreshold {
				t.Fatalf("%d of %d: %v", n, set.Threshold, err)
			}
			return
		} else if err != nil {
			t.Fatalf("%d of %d: %v", n, set.Threshold, err)
		}
		wrong := v
		wrong.Sigs = slices.Clone(v.Sigs)
		wrong.Sigs[rapid.IntRange(0, n-1).Draw(t, "wrong")].Signature[0] ^= 1
		if err := wrong.Check(domain, core); !errors.As(err, &broke) || broke.Rule != RuleSignature {
			t.Fatalf("a wrong signature among %d of %d: %v", n, set.Threshold, err)
		}
	})
}

// Two receipts of one provider prove a conflict exactly when their leases share a unit and the receipts a slot, and the
// proof is the same from either side.
func TestConflictsInEitherOrder(t *testing.T) {
	t.Parallel()
	subset := rapid.SliceOfNDistinct(rapid.ByteRange(1, 12), 1, 8, rapid.ID[byte])
	rapid.Check(t, func(t *rapid.T) {
		side := func(name string, order byte, from []market.Slot) (Receipt, []market.UnitID) {
			var ids []market.UnitID
			for _, b := range subset.Draw(t, name) {
				ids = append(ids, market.UnitID{b})
			}
			slices.SortFunc(ids, func(a, b market.UnitID) int { return bytes.Compare(a[:], b[:]) })
			core := leaseCore(t)
			core.Order[0], core.Units, core.UnitsRoot = order, uint16(len(ids)), market.UnitsRoot(ids)
			start := rapid.SampledFrom(from).Draw(t, name+" from")
			return chainOf(t, core, start, []uint64{rapid.Uint64Range(1, 60).Draw(t, name+" slots")}, false)[0], ids
		}
		a, unitsA := side("a", 1, []market.Slot{1000, 1017})
		b, unitsB := side("b", 2, []market.Slot{a.From, a.To - 1, a.To, a.To + 1})
		shared := slices.ContainsFunc(unitsA, func(u market.UnitID) bool { return slices.Contains(unitsB, u) })
		overlap := a.From < b.To && b.From < a.To
		one, errOne := NewConflict(domain, a, b, unitsA, unitsB)
		two, errTwo := NewConflict(domain, b, a, unitsB, unitsA)
		if (errOne == nil) != (shared && overlap) || (errTwo == nil) != (errOne == nil) {
			t.Fatalf("shared unit %t, overlap %t: %v and %v", shared, overlap, errOne, errTwo)
		}
		if errOne != nil {
			want := RuleOverlap
			if !shared {
				want = RuleUnits
			}
			var broke *RuleError
			if !errors.As(errOne, &broke) || broke.Rule != want {
				t.Fatalf("%v, want rule %s", errOne, want)
			}
			return
		}
		if !reflect.DeepEqual(one, two) || !slices.Contains(unitsA, one.Unit) || !slices.Contains(unitsB, one.Unit) {
			t.Fatalf("%+v from one side, %+v from the other", one, two)
		}
		elsewhere := sign.Domain{Network: "other", Chain: domain.Chain}
		var broke *RuleError
		if err := CheckConflict(elsewhere, one); !errors.As(err, &broke) || broke.Rule != RuleProvider {
			t.Fatalf("on another network: %v", err)
		}
	})
}
