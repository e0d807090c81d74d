package replica

import (
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Names of test providers are letters: "a" and "a2" have one owner.
func party(name string) Party {
	return Party{Provider: sign.Key(sign.Sum([]byte("provider"), []byte(name))), Owner: sign.Key(sign.Sum([]byte("owner"), []byte(name[:1])))}
}

func output(name string) sign.Hash { return sign.Sum([]byte("result"), []byte(name)) }

func committed(by, result string, signed bool) Committed {
	return Committed{party(by), market.LeaseID(sign.Sum([]byte("lease"), []byte(by))), output(result), signed}
}

func params() Params { return DefaultParams(100) }

func terms(valid uint32) Terms {
	return Terms{Params: params(), Trust: Trust{Valid: valid}, Buyer: party("z"), Nonce: Nonce{7}}
}

func block(slot market.Slot, n int) Beacon {
	return Beacon{Slot: slot, Hash: sign.Sum(fmt.Appendf(nil, "block %d", n))}
}

var domain = sign.Domain{Chain: sign.Hash{1}, Network: "test"}

func private(name string) sign.Private {
	return sign.NewPrivate(sign.Sum([]byte("seed"), []byte(name)))
}

func work() Work {
	return Work{
		Seed: 42, MemoryMiB: 64, DiskMiB: 16, Program: sign.Sum([]byte("program")), Args: []string{"-n", "3"},
		Env:     []Variable{{"STARLING_COUNT", "1"}, {"STARLING_RANK", "0"}},
		Inputs:  []Input{{"/in/data", false, sign.Sum([]byte("data"))}, {"/in/tree", true, sign.Sum([]byte("tree"))}},
		Outputs: []string{"/out"},
	}
}

func result(name string) Result { return Result{Trees: []sign.Hash{output(name)}} }

// signed is the final receipt of a provider for a result of a work.
func signed(w Work, by string, r Result) Signed {
	p, b := private(by), private("buyer")
	core := verify.ReceiptCore{
		Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, RankEpoch: 1, Lease: market.LeaseID(sign.Sum([]byte("lease"), []byte(by))),
		Seq: 1, Provider: p.Key(), Buyer: b.Key(), From: 10, To: 20, Amount: 5, Cumulative: 5, Output: Output(w.Hash(), r),
	}
	s := Signed{Receipt: verify.Receipt{ReceiptCore: core}, Result: r}
	s.Receipt.ProviderSig, _ = core.Sign(domain, p)
	s.Receipt.BuyerSig, _ = core.Sign(domain, b)
	return s
}
