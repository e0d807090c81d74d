package replica

import (
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/deterministic"
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

func work() deterministic.Work {
	return deterministic.Work{
		Seed: 42, MemoryMiB: 64, DiskMiB: 16, Program: sign.Sum([]byte("program")), Args: []string{"-n", "3"},
		Env:     []deterministic.Variable{{Name: "STARLING_COUNT", Value: "1"}, {Name: "STARLING_RANK", Value: "0"}},
		Inputs:  []deterministic.Input{{Path: "/in/data", Content: sign.Sum([]byte("data"))}, {Path: "/in/tree", Tree: true, Content: sign.Sum([]byte("tree"))}},
		Outputs: []string{"/out"},
	}
}

func result(name string) deterministic.Result {
	return deterministic.Result{Trees: []sign.Hash{output(name)}}
}

// signed is the final receipt of a provider for a result of a work.
func signed(w deterministic.Work, by string, r deterministic.Result) Signed {
	p, b := private(by), private("buyer")
	core := verify.ReceiptCore{
		Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, RankEpoch: 1, Lease: market.LeaseID(sign.Sum([]byte("lease"), []byte(by))),
		Seq: 1, Provider: p.Key(), Buyer: b.Key(), From: 10, To: 20, Amount: 5, Cumulative: 5, Output: w.Output(r),
	}
	s := Signed{Receipt: verify.Receipt{ReceiptCore: core}, Result: r}
	s.Receipt.ProviderSig, _ = core.Sign(domain, p)
	s.Receipt.BuyerSig, _ = core.Sign(domain, b)
	return s
}
