package escrow_test

import (
	"slices"
	"testing"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

func TestFee(t *testing.T) {
	t.Parallel()
	checked := svm.Signed{Keys: make([]sign.Key, 2), Signatures: make([]sign.Signature, 2), Message: []byte("m")}.Instruction()
	claim := []svm.Instruction{checked, program.RetireFinish{}.Instruction(sign.Key{1})}
	for name, c := range map[string]struct {
		in      []svm.Instruction
		signers int
		want    uint64
	}{
		"one signature": {claim[1:], 1, 5000},
		"checked":       {claim, 1, 15_000},
		"and a bid":     {slices.Concat(claim, svm.Budget(50_000, 2000)), 2, 20_100},
		"a part of one": {slices.Concat(claim[1:], svm.Budget(1, 1)), 1, 5001},
	} {
		if got := escrow.Fee(c.in, c.signers); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
