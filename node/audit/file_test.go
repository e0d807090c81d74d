package audit

import (
	"encoding/json"
	"testing"

	"github.com/starling-network/starling/market"
)

func FuzzFile(f *testing.F) {
	b, err := json.Marshal(NewFile(market.Genesis{Network: "x"}, []byte{1, 2, 3}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
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
	})
}
