package proof

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
)

func TestProofOfNothing(t *testing.T) {
	t.Parallel()
	p := Proof{Format: format, Job: "j", Genesis: market.Genesis{Network: "test", Symbol: "STAR", SlotMillis: 400, IntervalSlots: 25, Simulated: true, Chain: sign.Hash{1}}}
	v, err := p.Check()
	if err != nil || v.Owed != 0 || v.Receipts != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if _, ok := errors.AsType[*BrokenRule](broken(RuleOwed, "", errors.New("x"))); !ok {
		t.Error("a broken rule has no type")
	}
}

// Whatever a receipt file holds, reading and checking it ends with an error or with a file that reads the same again.
func FuzzProof(f *testing.F) {
	empty, err := New(market.Genesis{Network: "test", Symbol: "STAR", SlotMillis: 400, IntervalSlots: 25, Simulated: true, Chain: sign.Hash{1}}, buyer.Job{ID: "j"}, nil)
	if err != nil {
		f.Fatal(err)
	}
	b, err := json.Marshal(empty)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":"starling-receipts/1","leases":[{"lease":{},"keys":{"keys":null},"voucher":{},"receipts":[{}]}]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			return
		}
		_, _ = p.Check() // must not panic
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(again); err != nil {
			t.Fatal(err)
		}
	})
}
