package chaintest

import (
	"bytes"
	"testing"

	"github.com/starling-network/starling/market/sign"
)

func FuzzNote(f *testing.F) {
	f.Add(note{}.marshal())
	f.Add(note{author: sign.Key{1}, lastValid: 2, since: 3, memo: []byte("memo")}.marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		tx, err := unmarshalNote(b)
		if err == nil && !bytes.Equal(tx.marshal(), b) {
			t.Fatal("comes back as other bytes")
		}
	})
}
