package escrow_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// A guardian judges the content of the calls that need its signature: it gets all of them, in order, and no others.
func TestAskedContent(t *testing.T) {
	t.Parallel()
	net, me, keys := escrowtest.Net(t, escrowtest.Params()), escrowtest.Key("me"), escrowtest.KeySet(t, 1, "me", "other")
	hire := func(index uint16) program.AddStandbyTranche {
		return program.AddStandbyTranche{Payer: escrowtest.Key("payer"), Escrow: escrowtest.Key("escrow"), Index: index,
			Signers: keys.Keys, Leaves: []program.StandbyLeaf{{Standby: 1, Rate: 2, Cap: 3, Start: 4, End: 5}}}
	}
	retire := program.RetireBegin{Escrow: escrowtest.Key("escrow"), Network: net.Address(), Signers: keys.Keys, Index: 9}
	foreign := program.RetireBegin{Escrow: escrowtest.Key("escrow"), Network: net.Address(),
		Signers: []sign.Key{escrowtest.Key("x")}}
	asked, err := escrow.Consider(net, me, escrowtest.Key("payer"), []svm.Instruction{
		hire(4).Instruction(net.Program), retire.Instruction(net.Program), hire(5).Instruction(net.Program),
		foreign.Instruction(net.Program)})
	if err != nil {
		t.Fatal(err)
	}
	if len(asked.Hires) != 2 || asked.Hires[0].Index != 4 || asked.Hires[1].Index != 5 || len(asked.Opens)+len(asked.Tranches) > 0 {
		t.Errorf("hires %+v", asked.Hires)
	}
	if h := asked.Hires[0]; !slices.Equal(h.Leaves, hire(4).Leaves) || h.Escrow != escrowtest.Key("escrow") {
		t.Errorf("hire %+v", h)
	}
	if len(asked.Retires) != 2 || asked.Retires[0].Index != 9 {
		t.Errorf("retires %+v", asked.Retires)
	}
}

// A transaction costs a signature's fee for each signer and each checked signature, and its bid, and a longer one never
// less.
func TestFeeProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var in []svm.Instruction
		checked := uint64(0)
		for range rapid.IntRange(0, 4).Draw(t, "signed") {
			n := rapid.IntRange(1, svm.MaxSignatures).Draw(t, "keys")
			checked += uint64(n)
			in = append(in, svm.Signed{Keys: make([]sign.Key, n), Signatures: make([]sign.Signature, n)}.Instruction())
		}
		signers := rapid.IntRange(1, 5).Draw(t, "signers")
		bare := escrow.Fee(in, signers)
		if want := chain.SignatureFee * (uint64(signers) + checked); bare != want {
			t.Fatalf("%d lamports for %d signers and %d checked, want %d", bare, signers, checked, want)
		}
		units, price := rapid.Uint32Range(1, 1_400_000).Draw(t, "units"), rapid.Uint64Range(0, 1<<30).Draw(t, "price")
		bid := escrow.Fee(append(in, svm.Budget(units, price)...), signers) - bare
		if least := uint64(units) * price / 1_000_000; bid < least || bid > least+1 {
			t.Fatalf("%d units for %d each cost %d lamports", units, price, bid)
		}
	})
}

// A signed transaction that no chain takes counts as failed: nothing is journalled or sent.
func TestQueueRefusesTransactions(t *testing.T) {
	t.Parallel()
	task := escrow.Task{Kind: escrow.TaskOpen}
	for name, r := range map[string]escrow.SignResult{
		"no id":    {No: 1, Tx: chain.Prepared{Raw: []byte{1}}},
		"long id":  {No: 1, Tx: chain.Prepared{ID: chain.TxID(make([]byte, 89)), Raw: []byte{1}}},
		"no bytes": {No: 1, Tx: chain.Prepared{ID: "a"}},
		"long":     {No: 1, Tx: chain.Prepared{ID: "a", Raw: make([]byte, chain.MaxRaw+1)}},
		"too long": {No: 1, Err: "1300 bytes", TooLong: true},
	} {
		q := escrow.NewQueue()
		q.Ask(start, task, 0)
		effects, change, tooLong := q.Signed(start, escrowtest.Timing(), escrow.Signed{Results: []escrow.SignResult{r}}, wanted)
		_, waits := effects[0].(escrow.Waiting)
		if change || q.Len() != 0 || len(effects) != 1 || !waits || (len(tooLong) == 1) != r.TooLong {
			t.Errorf("%s: change %v, %d under way, effects %+v, too long %v", name, change, q.Len(), effects, tooLong)
		}
	}
}
