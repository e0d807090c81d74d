package audit_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// friendly is an audit before seven members, of whom one is the provider's friend and gives its nonces last. The provider computes
// 85 % of the tiles and walks a twentieth of the walkers.
type friendly struct {
	audittest.Case
	committee audit.Roster
	friend    sign.Key
	shape     challenge.Shape
	walk      challenge.Walk
}

// given are the nonces of a round: honest chains, and what the friend says.
func (f friendly) given(round int, friend audit.Nonce) []audit.Given {
	out := make([]audit.Given, len(f.committee))
	for i, m := range f.committee {
		h := sign.Sum(m.Key[:], []byte("third"))
		out[i] = audit.Given{Member: m.Key, Nonce: audit.Chain(audit.Nonce(h[:audit.NonceSize]))[round]}
		if m.Key == f.friend {
			out[i].Nonce = friend
		}
	}
	return out
}

// grind tries nonces of the friend until one suits it.
func (f friendly) grind(round int, good func([]audit.Given) bool) []audit.Given {
	for n := uint64(1); ; n++ {
		var x audit.Nonce
		binary.LittleEndian.PutUint64(x[:], n)
		if g := f.given(round, x); good(g) {
			return g
		}
	}
}

// forge makes the record that comes of it.
func (f friendly) forge(t *testing.T) audit.Record {
	t.Helper()
	beacon, d := f.Beacon(), audittest.Domain()
	a := audit.Answer{Target: audit.Target{Provider: f.Provider.Key(), Unit: f.Unit, Window: f.Window, Attempt: 1},
		Shape: f.shape, Walk: f.walk}
	first := f.given(0, audit.Nonce{1})
	a.ProductSeed = audit.ProductSeed(beacon, a.Target, first)
	g := challenge.ProductGenerator(a.ProductSeed)
	all, hashes := make([]challenge.Tile, f.shape.Tiles()), make([]sign.Hash, f.shape.Tiles())
	computed := len(all) * 85 / 100
	for i := range all {
		if i < computed {
			all[i] = *challenge.NewTile(&g, f.shape, f.shape.Place(i))
		}
		hashes[i] = all[i].Hash()
	}
	commit, err := challenge.Commit(f.shape, hashes)
	if err != nil {
		t.Fatal(err)
	}
	a.ProductRoot = commit.Root()
	second := f.grind(1, func(g []audit.Given) bool {
		return !slices.ContainsFunc(audit.Drawn(audit.WalkSeed(a.ProductSeed, a.ProductRoot, g), f.shape),
			func(leaf uint32) bool {
				return int(leaf)/challenge.TileLeafs >= computed
			})
	})
	a.WalkSeed, a.DatasetSeed = audit.WalkSeed(a.ProductSeed, a.ProductRoot, second), audit.DatasetSeed(f.Era(),
		a.Provider, a.Unit)
	set, ends := challenge.NewDataset(a.DatasetSeed, f.walk.Work), make([]uint64, f.walk.Walkers)
	walked := len(ends) / 20
	for i := range walked {
		ends[i] = challenge.Go(f.walk, challenge.WalkKey(a.WalkSeed), uint32(i), set.Cell)
	}
	arrivals, err := challenge.NewArrivals(f.walk, challenge.GroupHashes(ends), nil)
	if err != nil {
		t.Fatal(err)
	}
	a.WalkRoot = arrivals.Root()
	third := f.grind(2, func(g []audit.Given) bool {
		return !slices.ContainsFunc(audit.Walkers(a.WalkSeed, a.WalkRoot, f.walk, g), func(k uint32) bool {
			return int(k) >= walked
		})
	})
	r := audit.Record{Beacon: beacon, Committee: 7, WindowSlots: f.Slots, Answer: a}
	if r.Opened, err = commit.OpenTiles(audit.Drawn(a.WalkSeed, f.shape), func(i int) *challenge.Tile {
		return &all[i]
	}); err != nil {
		t.Fatal(err)
	}
	if r.Walked, err = arrivals.Open(audit.Walkers(a.WalkSeed, a.WalkRoot, f.walk, third),
		func(group uint32) ([]uint64, error) {
			first, n := f.walk.Members(group)
			return ends[first : first+n], nil
		}); err != nil {
		t.Fatal(err)
	}
	if r.Shown, err = audit.Seal(a, r.Opened); err != nil {
		t.Fatal(err)
	}
	r.AnswerSig, _ = a.Sign(d, f.Provider)
	r.ShownSig, _ = r.Shown.Sign(d, f.Provider)
	for i, m := range f.committee {
		v := audit.Verdict{
			Outcome: audit.Pass, Member: m.Key, Answer: r.Shown.Answer, Openings: r.Shown.Openings, Product: 1_000_000,
			Walk: 250_000, Nonces: [3]audit.Nonce{first[i].Nonce, second[i].Nonce, third[i].Nonce},
			Slot: market.Slot(f.Window.First(f.Slots)) + 26,
		}
		sig, err := v.Sign(d, f.Members[m.Key])
		if err != nil {
			t.Fatal(err)
		}
		r.Verdicts = append(r.Verdicts, audit.Signed{Verdict: v, Signature: sig})
	}
	slices.SortFunc(r.Verdicts, func(a, b audit.Signed) int { return slices.Compare(a.Member[:], b.Member[:]) })
	return r
}

// One friend on a committee that gave its nonces last could choose which entries are opened and which walkers are shown: of what was really
// computed. Its nonces are a chain, so what it gives was chosen before anything was computed.
func TestAttackFriendGrindsNonces(t *testing.T) {
	t.Parallel()
	c := audittest.New(7)
	f := friendly{
		Case: c, committee: c.Roster.Draw(c.Beacon(), c.Window, c.Provider.Key(), audit.Committee),
		shape: challenge.Shape{Rows: 1024, Columns: 1024, Depth: 64, Products: 2},
		walk:  challenge.Walk{Cells: 4096, Work: 2, Walkers: 4096, Steps: 8},
	}
	f.friend = f.committee[4].Key
	r := f.forge(t)
	// All that was computed is right, so nothing else can refuse the record, and nobody can be slashed for it.
	if err := r.CheckComputed(); err != nil {
		t.Fatal("the forged record is found by what was computed: ", err)
	}
	if lies := audit.FindLie(r.Answer, r.Shown, r.ShownSig, r.Verdicts, r.Opened.Openings, true); len(lies) != 0 {
		t.Fatal("a lie is found in what is right")
	}
	wantRule(t, "a record whose friend chose its nonces last", r.Check(audittest.Domain()), audit.RuleNonce)
	bs := audit.NewRules(c.Genesis())
	if err := r.Certificate().Check(bs,
		audit.Seen{Beacon: c.Beacon(), Era: c.Era(), Roster: c.Roster}); !audit.IsRule(err, audit.RuleNonce) {
		t.Errorf("its certificate: %v", err)
	}
}
