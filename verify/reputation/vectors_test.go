package reputation

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

var rewrite = flag.Bool("rewrite", false, "write the vectors anew")

// vector is a reader's facts, and what it makes of them.
type vector struct {
	Unit     market.Amount `json:"unit"`
	HalfLife uint64        `json:"half_life"`
	Reader   sign.Key      `json:"reader"`
	Now      market.Slot   `json:"now"`
	Facts    []string      `json:"facts"` // layouts, hexadecimal
	Stakes   []Stake       `json:"stakes"`
	Scores   []Score       `json:"scores"`
}

// vectors are two small networks, one without a history of the reader's own.
func vectors() []vector {
	var facts []Fact
	n := 0
	deal := func(p, b int, v market.Amount, age market.Slot) {
		facts = append(facts, lease(n, key(p), key(b), v, now-age)...)
		n++
	}
	for b := range 4 { // buyers 0 (the reader), 11, 12, 13; providers 1 to 5, of which 5 washes
		by := []int{0, 11, 12, 13}[b]
		for p := range 3 {
			deal(1+(b+p)%4, by, market.Amount(500*(p+1)), market.Slot(300*p))
		}
	}
	deal(5, 12, 700, 10)
	for s := range 6 {
		deal(5, 50+s, 1_000_000, 0)
	}
	facts = append(facts, Fact{id(900), Failed, Provider, key(2), reader, 2000, now - 500}, Fact{id(901), Failed, Buyer, key(13), reader, 10, now},
		Fact{id(902), AuditPassed, Provider, key(3), sign.Key{}, 0, now}, Fact{id(903), AuditLate, Provider, key(3), sign.Key{}, 0, now},
		Fact{id(904), AuditFailed, Provider, key(4), sign.Key{}, 0, now - 2000}, Fact{id(905), SoldTwice, Provider, key(1), sign.Key{}, 0, now},
		Fact{id(906), Failed, Provider, key(3), key(11), 1 << 40, now})
	var out []vector
	for _, v := range []vector{{Reader: reader}, {Reader: key(77), Stakes: []Stake{{key(1), 1 << 30}, {key(3), 1 << 31}}}} {
		v.Unit, v.HalfLife, v.Now = params.Unit, params.HalfLife, now
		for _, f := range facts {
			v.Facts = append(v.Facts, hex.EncodeToString(f.Marshal()))
		}
		out = append(out, v)
	}
	return out
}

func TestVectors(t *testing.T) {
	t.Parallel()
	file := filepath.Join("testdata", "scores.json")
	run := func(vs []vector) []byte {
		for i := range vs {
			v := &vs[i]
			var facts []Fact
			for _, text := range v.Facts {
				b, err := hex.DecodeString(text)
				if err != nil {
					t.Fatal(err)
				}
				f, err := UnmarshalFact(b)
				if err != nil {
					t.Fatal(err)
				}
				facts = append(facts, f)
			}
			view, err := NewView(Params{v.Unit, v.HalfLife}, v.Reader, v.Now, facts, v.Stakes)
			if err != nil {
				t.Fatal(err)
			}
			v.Scores = append(view.Scores(Provider, view.Peers(Provider)...), view.Scores(Buyer, view.Peers(Buyer)...)...)
		}
		b, err := json.MarshalIndent(vs, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return append(b, '\n')
	}
	if *rewrite {
		if err := os.WriteFile(file, run(vectors()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(want, &vs); err != nil {
		t.Fatal(err)
	}
	if got := run(vs); !bytes.Equal(got, want) {
		t.Errorf("%s differs; if that is meant, run with -rewrite", file)
	}
}
