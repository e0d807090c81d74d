package evidence

import (
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/replica"
)

// dissent is a proof that two providers signed different results, one for each n.
func dissent(t *testing.T, n int) replica.Dissent {
	t.Helper()
	d := replica.Dissent{Work: replica.Work{Seed: uint64(n) + 1, MemoryMiB: 1, DiskMiB: 1, Outputs: []string{"/out"}}}
	for i, name := range []string{"right", "wrong"} {
		by, r := private(name), replica.Result{Trees: []sign.Hash{sign.Sum([]byte(name))}}
		core := verify.ReceiptCore{Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, Lease: market.LeaseID{byte(i), byte(n), byte(n >> 8)}, Seq: 1,
			Provider: by.Key(), Buyer: private("buyer").Key(), From: 1, To: 2, Output: replica.Output(d.Work.Hash(), r)}
		s := replica.Signed{Receipt: verify.Receipt{ReceiptCore: core}, Result: r}
		var errs [2]error
		s.Receipt.ProviderSig, errs[0] = core.Sign(genesis.Domain(), by)
		s.Receipt.BuyerSig, errs[1] = core.Sign(genesis.Domain(), private("buyer"))
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		d.Results = append(d.Results, s)
	}
	return d
}

// Proofs that results differ are kept once, over restarts, and the oldest makes room for one too many; one that does not hold is refused.
func TestDissentsAreKept(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t), store.NewMemory()
	k := w.open("buyer", s)
	first, err := k.KeepDissent(t.Context(), dissent(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	k = w.open("buyer", s)
	if again, err := k.KeepDissent(t.Context(), dissent(t, 0)); err != nil || again != first {
		t.Fatalf("%s, %v", again, err)
	}
	forged := dissent(t, 1)
	forged.Results[0].Receipt.ProviderSig[0] ^= 1
	if _, err := k.KeepDissent(t.Context(), forged); err == nil {
		t.Fatal("a proof without its provider's signature is kept")
	}
	var last string
	for n := range maxDissents {
		if last, err = k.KeepDissent(t.Context(), dissent(t, n+1)); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := k.Dissents(t.Context())
	has := func(id string) bool { return slices.ContainsFunc(kept, func(d Dissent) bool { return d.ID == id }) }
	if err != nil || len(kept) != maxDissents || has(first) || !has(last) {
		t.Fatalf("%d kept, the first %v, the last %v: %v", len(kept), has(first), has(last), err)
	}
	f, err := NewDissentProof(genesis, kept[0].Proof).CheckDissent()
	if err != nil || len(f.Signed) != 2 || f.ID != kept[0].ID {
		t.Errorf("%+v, %v", f, err)
	}
}
