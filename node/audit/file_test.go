package audit

import (
	"encoding/json"
	"testing"

	"github.com/starling-network/starling/market"
)

func FuzzFile(f *testing.F) {
	for _, k := range []Kept{{Record: []byte{1, 2, 3}}, {Record: []byte{1}, Anchor: []byte{1, 1}}} {
		b, err := json.Marshal(NewFile(market.Genesis{Network: "x"}, k))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := ParseFile(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseFile(again); err != nil && len(again) <= MaxFile {
			t.Fatalf("%s is written as %s: %v", b, again, err)
		}
		_, _ = file.Check()
		_, _ = file.Anchored()
	})
}
