package policy

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

func TestServes(t *testing.T) {
	t.Parallel()
	a, b, c := sign.Key{1}, sign.Key{2}, sign.Key{3}
	for name, s := range map[string]struct {
		pol  Policy
		want [3]bool
	}{
		"everybody":    {Policy{}, [3]bool{true, true, true}},
		"block":        {Policy{Block: map[sign.Key]string{a: "owes"}}, [3]bool{false, true, true}},
		"at run time":  {Policy{Blocked: func(k sign.Key) bool { return k == b }}, [3]bool{true, false, true}},
		"only":         {Policy{Only: []sign.Key{a, b}}, [3]bool{true, true, false}},
		"only blocked": {Policy{Only: []sign.Key{a, b}, Block: map[sign.Key]string{a: ""}}, [3]bool{false, true, false}},
	} {
		for i, k := range []sign.Key{a, b, c} {
			no := s.pol.Serves(k)
			if (no == nil) != s.want[i] || no != nil && (no.Reason != market.ReasonBlocked || no.Error() != "this provider does not serve you") {
				t.Errorf("%s: buyer %d: %v", name, i, no)
			}
		}
	}
}

func TestCheckLots(t *testing.T) {
	t.Parallel()
	unit := func(class market.Class, change func(*market.Unit)) market.Unit {
		u, err := market.NewUnit(sign.Key{1}, class, "a model", "serial", 0, market.Resources{MilliCPU: 1})
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(&u)
		}
		return u
	}
	lot := func(class market.Class, change func(*Lot)) Lot {
		l := Lot{Class: class, Units: []market.Unit{unit(class, nil)}, PerUnit: market.Resources{MilliCPU: 1}, Price: 5}
		if change != nil {
			change(&l)
		}
		return l
	}
	real := market.Genesis{Network: "x", Symbol: "STAR"}
	var many []Lot
	for i := range market.MaxOffers + 1 {
		many = append(many, lot(market.Class("gpu/"+string(rune('a'+i))), nil))
	}
	for want, lots := range map[string][]Lot{
		"":                          {lot("cpu", nil), lot("gpu/a", nil)},
		"a provider sells 1 to":     many,
		"0 classes":                 {},
		"has no units":              {lot("cpu", func(l *Lot) { l.Units = nil })},
		"listed twice":              {lot("cpu", nil), lot("cpu", nil)},
		"under the floor":           {lot("cpu", func(l *Lot) { l.Floor = 6 })},
		"cannot be sold on":         {lot("cpu", func(l *Lot) { l.Simulated = true })},
		"is not like the others":    {lot("cpu", func(l *Lot) { l.Units[0].Class = "gpu" })},
		"is not like the others ":   {lot("cpu", func(l *Lot) { l.PerUnit.DiskMiB = 1 })},
		"is not like the others  ":  {lot("cpu", func(l *Lot) { l.Capability = 90 })},
		"is not like the others   ": {lot("cpu", func(l *Lot) { l.Units[0].Simulated = true })},
	} {
		_, err := Units(lots, real)
		if want = strings.TrimSpace(want); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
