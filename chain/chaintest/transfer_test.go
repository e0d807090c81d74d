package chaintest

import (
	"bytes"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market/sign"
)

func FuzzTransfer(f *testing.F) {
	f.Add(transfer{}.marshal())
	f.Add(transfer{owner: sign.Key{1}, lastValid: 2, since: 3, memo: []byte("memo"), payouts: []chain.Payout{{To: sign.Key{4}, Amount: 5}}}.marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		tx, err := unmarshalTransfer(b)
		if err == nil && !bytes.Equal(tx.marshal(), b) {
			t.Fatal("comes back as other bytes")
		}
	})
}
