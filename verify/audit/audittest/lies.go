package audittest

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// Openings returns openings of an answer's products, with one wrong value.
func Openings(a audit.Answer, index, value int) []challenge.Opening {
	g := challenge.ProductGenerator(a.ProductSeed)
	row, column := make([]byte, a.Shape.Depth), make([]byte, a.Shape.Depth)
	out := make([]challenge.Opening, 5)
	for i := range out {
		o := &out[i]
		o.Leaf = uint32(300*i + 7)
		p := a.Shape.Place(int(o.Leaf) / challenge.TileLeafs)
		in := o.Leaf % challenge.TileLeafs
		g.Line(row, challenge.A, p.Product, p.Row+in/2)
		for k := range o.Values {
			g.Line(column, challenge.B, p.Product, p.Column+in%2*challenge.LeafWords+uint32(k))
			o.Values[k] = challenge.Dot(row, column)
		}
	}
	out[index].Values[value] ^= 1
	return out
}

// LyingAnswer returns a provider's answer in a window, for Openings.
func LyingAnswer(provider sign.Key, w audit.Window) audit.Answer {
	return audit.Answer{
		Target:      audit.Target{Provider: provider, Unit: market.UnitID{1}, Window: w, Attempt: 1},
		ProductSeed: sign.Sum([]byte("seed")), Shape: challenge.Shape{Rows: 128, Columns: 192, Depth: 64, Products: 2},
		ProductRoot: sign.Sum([]byte("root")), DatasetSeed: sign.Sum([]byte("dataset")),
		Walk: challenge.Walk{Cells: 1000, Work: 5, Walkers: 8, Steps: 12}, WalkSeed: sign.Sum([]byte("walk")),
		WalkRoot: sign.Sum([]byte("ends")),
	}
}

// Lies returns one lie of each kind in a window: the first two by a provider, the last by a member that passed the
// first.
func Lies(d sign.Domain, provider, member sign.Private, w audit.Window) []audit.Lie {
	signed := func(sig sign.Signature, err error) sign.Signature {
		if err != nil {
			panic(err)
		}
		return sig
	}
	a := LyingAnswer(provider.Key(), w)
	os := Openings(a, 2, audit.Pick(a.WalkSeed)(2))
	shown := audit.Show(a, os)
	v := audit.Verdict{Outcome: audit.Pass, Member: member.Key(), Answer: a.Hash(), Openings: shown.Openings}
	lies := audit.FindLie(a, shown, signed(shown.Sign(d, provider)),
		[]audit.Signed{{Verdict: v, Signature: signed(v.Sign(d, member))}}, os, false)
	b := a
	b.ProductRoot[0] ^= 1
	two := audit.NewTwoAnswers(a, signed(a.Sign(d, provider)), b, signed(b.Sign(d, provider)))
	return []audit.Lie{lies[0], two, lies[1]}
}
