package evidence

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// proofOf is a double sale of one unit by two leases, in slots 20 to 30 after the beginning of the hour.
func proofOf(t *testing.T, g market.Genesis) (Proof, verify.Conflict) {
	t.Helper()
	_, ra := lease(t, "a", units, began+10, 2)
	_, rb := lease(t, "b", units[:1], began+20, 2)
	c, err := verify.NewConflict(genesis.Domain(), ra[1], rb[0], units, units[:1])
	if err != nil {
		t.Fatal(err)
	}
	return NewProof(g, c.Marshal()), c
}

func TestProofFile(t *testing.T) {
	t.Parallel()
	p, c := proofOf(t, genesis)
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseProof(b)
	if err != nil {
		t.Fatal(err)
	}
	f, err := read.Check()
	if err != nil {
		t.Fatal(err)
	}
	if f.Provider != seller.Key() || f.Unit != units[0] || f.From != began+20 || f.To != began+30 || f.Conflict.A.Lease != c.A.Lease || f.Lasted().Seconds() != 4 {
		t.Errorf("found %+v", f)
	}
	for name, text := range map[string]string{
		"nothing":        "",
		"no JSON":        "x",
		"another format": strings.Replace(string(b), format, "starling-evidence/9", 1),
		"unknown field":  strings.Replace(string(b), `"format"`, `"more":1,"format"`, 1),
		"two values":     string(b) + "{}",
		"too long":       string(b) + strings.Repeat(" ", MaxFile),
	} {
		if _, err := ParseProof([]byte(text)); !errors.Is(err, ErrFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := p
	other.Genesis.Network = "elsewhere"
	if _, err := other.Check(); err == nil {
		t.Error("it proves something on another network")
	}
	other = p
	other.Conflict = other.Conflict[:100]
	if _, err := other.Check(); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("cut off: %v", err)
	}
	other = p
	other.Genesis.Symbol = ""
	if _, err := other.Check(); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("without a network: %v", err)
	}
}

func FuzzProof(f *testing.F) {
	f.Add([]byte(`{"format":"starling-evidence/1","genesis":{},"conflict":"AAAA"}`))
	f.Add([]byte(`{"format":"starling-evidence/1","genesis":{},"dissent":"AQIAAAAAAAA="}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseProof(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseProof(again); err != nil && len(again) <= MaxFile {
			t.Fatal(err)
		}
		_, _ = p.Check()
		_, _ = p.CheckDissent()
	})
}
