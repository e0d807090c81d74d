// Package audittest makes whole audits for tests: a provider, a committee and an answer to a small challenge, honest by
// default.
package audittest

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// Key is the private key of a name.
func Key(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }

// Domain is where the audits are signed.
func Domain() sign.Domain {
	return sign.Domain{Network: "audit", Chain: sign.Sum([]byte("chain")),
		Program: sign.Key(sign.Sum([]byte("program")))}
}

// Case is one audit to be made.
type Case struct {
	Window   audit.Window
	Slots    uint64 // of a window
	OneIn    uint64 // windows for each with an audit; 0: each has one
	Attempt  uint8
	Shape    challenge.Shape
	Walk     challenge.Walk
	Provider sign.Private
	Unit     market.UnitID
	Roster   audit.Roster
	Members  map[sign.Key]sign.Private
	In       sign.Domain                       // where it is signed
	Beacons  func(w audit.Window) audit.Beacon // nil: made up

	// Faults of a dishonest provider or member; nil of an honest one.
	Tile    func(i int, t *challenge.Tile)    // before it is committed
	Opening func(i int, o *challenge.Opening) // after it was opened
	End     func(i int, s *uint64)            // before it is committed
	Verdict func(v *audit.Verdict)            // before it is signed
}

// New is a case of n members and a challenge that takes milliseconds.
func New(n int) Case {
	c := Case{
		Window: 7, Slots: 100, Attempt: 1, Provider: Key("provider"), Unit: market.UnitID(sign.Sum([]byte("unit"))),
		Shape:   challenge.Shape{Rows: 64, Columns: 128, Depth: 128, Products: 2},
		Walk:    challenge.Walk{Cells: 256, Work: 2, Walkers: 32, Steps: 8},
		Members: map[sign.Key]sign.Private{}, In: Domain(),
	}
	for i := range n {
		k := Key(fmt.Sprintf("member %d", i))
		c.Members[k.Key()] = k
		c.Roster = append(c.Roster, audit.Member{Key: k.Key(), Owner: k.Key(), Weight: uint64(1 + i)})
	}
	return c
}

// Small is the resources of a unit that makes its record in a moment.
var Small = market.Resources{MilliCPU: 63, MemoryMiB: 64}

// NewUnit is a case of a unit of class cpu with Small resources that passes.
func NewUnit(unit string) Case {
	c := New(7)
	c.Unit = market.UnitID(sign.Sum([]byte(unit)))
	var err error
	if c.Shape, c.Walk, err = audit.Plan("cpu", Small); err != nil {
		panic(err) // the plan has this class
	}
	c.Verdict = func(v *audit.Verdict) { v.Walk = 60_000 }
	return c
}

// Beacon is the beacon of the case's window.
func (c Case) Beacon() audit.Beacon {
	if c.Beacons != nil {
		return c.Beacons(c.Window)
	}
	return audit.Beacon{Slot: market.Slot(c.Window.First(c.Slots)), Value: sign.Sum([]byte("beacon"))}
}

// Era is the beacon that the unit's dataset is made of.
func (c Case) Era() audit.Beacon {
	w := c.Instants().EraOf(c.Window)
	if c.Beacons != nil {
		return c.Beacons(w)
	}
	return audit.Beacon{Slot: market.Slot(w.First(c.Slots)), Value: sign.Sum([]byte("beacon of the era"))}
}

// given are the nonces of a committee in one round.
func given(members audit.Roster, round int) []audit.Given {
	out := make([]audit.Given, len(members))
	for i, m := range members {
		out[i] = audit.Given{Member: m.Key, Nonce: nonce(m.Key, round)}
	}
	return out
}

func nonce(k sign.Key, round int) audit.Nonce {
	h := sign.Sum(k[:], []byte("third nonce"))
	return audit.Chain(audit.Nonce(h[:audit.NonceSize]))[round]
}

// Make plays the audit through.
func (c Case) Make() (audit.Record, error) {
	d, beacon, era := c.In, c.Beacon(), c.Era()
	committee := c.Roster.Draw(beacon, c.Window, c.Provider.Key(), audit.Committee)
	a := audit.Answer{
		Target: audit.Target{Provider: c.Provider.Key(), Unit: c.Unit, Window: c.Window, Attempt: c.Attempt},
		Shape:  c.Shape, Walk: c.Walk,
	}
	a.ProductSeed = audit.ProductSeed(beacon, a.Target, given(committee, 0))
	tiles, open, err := c.products(a)
	if err != nil {
		return audit.Record{}, err
	}
	commit, err := challenge.Commit(c.Shape, tiles)
	if err != nil {
		return audit.Record{}, err
	}
	a.ProductRoot = commit.Root()
	a.DatasetSeed = audit.DatasetSeed(era, a.Provider, a.Unit)
	a.WalkSeed = audit.WalkSeed(a.ProductSeed, a.ProductRoot, given(committee, 1))
	set := challenge.NewDataset(a.DatasetSeed, c.Walk.Work)
	ends := make([]uint64, c.Walk.Walkers)
	for i := range ends {
		ends[i] = challenge.Go(c.Walk, challenge.WalkKey(a.WalkSeed), uint32(i), set.Cell)
		if c.End != nil {
			c.End(i, &ends[i])
		}
	}
	arrivals, err := challenge.NewArrivals(c.Walk, challenge.GroupHashes(ends), nil)
	if err != nil {
		return audit.Record{}, err
	}
	a.WalkRoot = arrivals.Root()

	r := audit.Record{Beacon: beacon, Committee: uint8(len(committee)), WindowSlots: c.Slots, Answer: a}
	if r.Opened, err = open(commit, audit.Drawn(a.WalkSeed, a.Shape)); err != nil {
		return audit.Record{}, err
	}
	if r.Walked, err = arrivals.Open(audit.Walkers(a.WalkSeed, a.WalkRoot, c.Walk, given(committee, 2)),
		func(group uint32) ([]uint64, error) {
			first, n := c.Walk.Members(group)
			return ends[first : first+n], nil
		}); err != nil {
		return audit.Record{}, err
	}
	if r.AnswerSig, err = a.Sign(d, c.Provider); err != nil {
		return audit.Record{}, err
	}
	r.Shown = audit.Show(a, r.Opened.Openings)
	if r.ShownSig, err = r.Shown.Sign(d, c.Provider); err != nil {
		return audit.Record{}, err
	}
	return c.judge(r, committee)
}

// judge adds the verdicts.
func (c Case) judge(r audit.Record, committee audit.Roster) (audit.Record, error) {
	for i, m := range committee {
		v := audit.Verdict{
			Outcome: audit.Pass, Member: m.Key, Answer: r.Shown.Answer, Openings: r.Shown.Openings,
			Nonces:  audit.Chain(nonce(m.Key, 2)),
			Product: uint64(1_000_000 + i), Walk: uint64(250_000 + i), Slot: c.Instants().Of(c.Window),
		}
		if c.Verdict != nil {
			c.Verdict(&v)
		}
		sig, err := v.Sign(c.In, c.Members[m.Key])
		if err != nil {
			return r, err
		}
		r.Verdicts = append(r.Verdicts, audit.Signed{Verdict: v, Signature: sig})
	}
	slices.SortFunc(r.Verdicts, func(a, b audit.Signed) int { return slices.Compare(a.Member[:], b.Member[:]) })
	return r, nil
}

// products computes the tiles as the provider has them, faults included. It also returns the function with which the
// provider opens them.
func (c Case) products(
	a audit.Answer,
) ([]sign.Hash, func(*challenge.Commitment, []uint32) (challenge.Opened, error), error) {
	g := challenge.ProductGenerator(a.ProductSeed)
	all := make([]challenge.Tile, c.Shape.Tiles())
	tiles := make([]sign.Hash, len(all))
	for i := range all {
		all[i] = *challenge.NewTile(&g, c.Shape, c.Shape.Place(i))
		if c.Tile != nil {
			c.Tile(i, &all[i])
		}
		tiles[i] = all[i].Hash()
	}
	return tiles, func(commit *challenge.Commitment, drawn []uint32) (challenge.Opened, error) {
		o, err := commit.OpenTiles(drawn, func(i int) *challenge.Tile { return &all[i] })
		for i := range o.Openings {
			if c.Opening != nil {
				c.Opening(i, &o.Openings[i])
			}
		}
		return o, err
	}, nil
}

// Seen is a reader's knowledge of the case's window.
func (c Case) Seen() audit.Seen {
	return audit.Seen{Roster: c.Roster, Beacon: c.Beacon(), Era: c.Era()}
}

// Genesis is a network of the case's windows and domain.
func (c Case) Genesis() market.Genesis {
	d := Domain()
	return market.Genesis{
		Network: d.Network, Chain: d.Chain, Program: d.Program, Escrow: sign.Key{1}, Mint: sign.Key{2}, Symbol: "STAR",
		Decimals: 6, SlotMillis: 400, IntervalSlots: 25, AuditSlots: c.Slots, AuditOneIn: max(c.OneIn, 1),
	}
}

// Instants are when audits begin on a network of the case's windows.
func (c Case) Instants() audit.Instants { return audit.NewInstants(c.Genesis()) }
