package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/sim/audits"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/testnet/sim/trades"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// FaultLine is the result of one fault of honest peers, played in full: the numbers of runs without a signature, of
// runs with correct signed data, and of provable lies, which must be zero.
type FaultLine struct {
	Fault    string `json:"fault"`
	Trials   int    `json:"trials"`
	Withheld int    `json:"withheld"`
	Harmless int    `json:"harmless"`
	Slashed  int    `json:"slashed"`
}

// fault is a bit flip in an honest provider, or another failure of it.
type fault struct {
	name string
	play func(p *provider, r *rand.Rand) error
}

// bitFaults are flipped bits and restored backups of an honest provider.
var bitFaults = []fault{
	{"a bit of a product in the device's memory", func(p *provider, r *rand.Rand) error {
		p.device = flipTile(r, p.shape.Tiles())
		return p.answer()
	}},
	{"a bit of a tile's hash in the host's", func(p *provider, r *rand.Rand) error {
		at, bit := r.IntN(p.shape.Tiles()), r.IntN(8*sign.HashSize)
		p.host = func(i int, h *sign.Hash) {
			if i == at {
				h[bit/8] ^= 1 << (bit % 8)
			}
		}
		return p.answer()
	}},
	{"a bit of a tile as the processor computes it again", func(p *provider, r *rand.Rand) error {
		p.again = flipTile(r, p.shape.Tiles())
		return p.answer()
	}},
	{"a bit of the opening, before it is signed", func(p *provider, r *rand.Rand) error {
		at, value, bit := r.IntN(challenge.Openings), r.IntN(challenge.LeafWords), r.IntN(32)
		p.opened = func(o *challenge.Opened) { o.Openings[at].Values[value] ^= 1 << bit }
		return p.answer()
	}},
	{"a bit of the seed of all computation", func(p *provider, r *rand.Rand) error {
		p.seed[r.IntN(sign.HashSize)] ^= 1 << r.IntN(8)
		return p.answer()
	}},
	{"a peer restored from a backup answers again", func(p *provider, r *rand.Rand) error {
		if err := p.answer(); err != nil {
			return err
		}
		p.restored(r)
		return p.answer()
	}},
	{"the same, and a bit of the first answer had flipped", func(p *provider, r *rand.Rand) error {
		p.device = flipTile(r, p.shape.Tiles())
		first := p.answer()
		p.device = nil
		p.restored(r)
		return errors.Join(first, p.answer())
	}},
}

// faults plays every fault many times.
func faults(ctx context.Context, o play.Options) ([]FaultLine, error) {
	var lines []FaultLine
	for _, f := range bitFaults {
		line := FaultLine{Fault: f.name}
		for i := range o.Faults {
			if err := ctx.Err(); err != nil {
				return lines, err
			}
			w := play.NewWorld(o.Seed, "fault/"+f.name, i)
			p := newProvider(i)
			err := f.play(p, w.R)
			if err != nil && !errors.Is(err, challenge.ErrFault) {
				return lines, fmt.Errorf("%s: %w", f.name, err)
			}
			line.Trials++
			switch {
			case p.proven():
				line.Slashed++
			case err != nil:
				line.Withheld++
			default:
				line.Harmless++
			}
		}
		lines = append(lines, line)
	}
	again := FaultLine{Fault: "a peer restored from a backup sells units again that it had sold"}
	for i := range o.Faults {
		proven, err := trades.SellsAgain(play.NewWorld(o.Seed, "fault/sold", i))
		if err != nil {
			return lines, err
		}
		if again.Trials++; proven {
			again.Slashed++
		} else {
			again.Harmless++
		}
	}
	return append(lines, again), nil
}

func flipTile(r *rand.Rand, tiles int) func(int, *challenge.Tile) {
	at, value, bit := r.IntN(tiles), r.IntN(challenge.TileSide*challenge.TileSide), r.IntN(32)
	return func(i int, t *challenge.Tile) {
		if i == at {
			t[value] ^= 1 << bit
		}
	}
}

// provider is an honest provider by the rules of verify/audit: it signs an answer once, and openings only after Seal.
type provider struct {
	key    sign.Private
	target audit.Target
	shape  challenge.Shape
	seed   sign.Hash // from the members
	walk   sign.Hash

	device func(i int, t *challenge.Tile) // its failure
	host   func(i int, h *sign.Hash)
	again  func(i int, t *challenge.Tile)
	opened func(o *challenge.Opened)

	answers []audit.Answer // signed
	sigs    []sign.Signature
	shown   []audit.Shown
	shows   []sign.Signature
	what    []challenge.Opened
}

func newProvider(i int) *provider {
	c := audits.Case(i)
	return &provider{
		key: c.Provider, target: audit.Target{Provider: c.Provider.Key(), Unit: c.Unit, Window: c.Window, Attempt: 1},
		shape: challenge.Shape{Rows: 64, Columns: 256, Depth: 64, Products: 1},
		seed:  sign.Sum([]byte("first nonces"), []byte{byte(i), byte(i >> 8)}),
		walk:  sign.Sum([]byte("second nonces"), []byte{byte(i), byte(i >> 8)}),
	}
}

// restored drops the provider's state. Members give no nonce twice, so it gets other seeds.
func (p *provider) restored(r *rand.Rand) {
	for i := range p.seed {
		p.seed[i], p.walk[i] = byte(r.Uint32()), byte(r.Uint32())
	}
}

// answer computes, commits, signs, opens and signs again. It returns challenge.ErrFault if it withholds.
func (p *provider) answer() error {
	g := challenge.ProductGenerator(p.seed)
	tiles := make([]sign.Hash, p.shape.Tiles())
	for i := range tiles {
		t := challenge.NewTile(&g, p.shape, p.shape.Place(i))
		if p.device != nil {
			p.device(i, t)
		}
		if tiles[i] = t.Hash(); p.host != nil {
			p.host(i, &tiles[i])
		}
	}
	commit, err := challenge.Commit(p.shape, tiles)
	if err != nil {
		return err
	}
	a := audit.Answer{
		Target: p.target, Shape: p.shape, ProductSeed: p.seed, ProductRoot: commit.Root(), WalkSeed: p.walk,
		Walk: challenge.Walk{Cells: 1, Work: 1, Walkers: 1, Steps: 1},
	}
	sig, err := a.Sign(audittest.Domain(), p.key)
	if err != nil {
		return err
	}
	p.answers, p.sigs = append(p.answers, a), append(p.sigs, sig)
	o, err := commit.OpenTiles(audit.Drawn(a.WalkSeed, a.Shape), func(i int) *challenge.Tile {
		t := challenge.NewTile(&g, p.shape, p.shape.Place(i))
		if p.again != nil {
			p.again(i, t)
		}
		return t
	})
	if err != nil {
		return err
	}
	if p.opened != nil {
		p.opened(&o)
	}
	shown, err := audit.Seal(a, o)
	if err != nil {
		return err
	}
	if sig, err = shown.Sign(audittest.Domain(), p.key); err != nil {
		return err
	}
	p.shown, p.shows, p.what = append(p.shown, shown), append(p.shows, sig), append(p.what, o)
	return nil
}

// proven reports whether any of its signed data proves a lie.
func (p *provider) proven() bool {
	for i, s := range p.shown {
		for _, a := range p.answers {
			if a.Hash() != s.Answer {
				continue
			}
			for _, l := range audit.FindLie(a, s, p.shows[i], nil, p.what[i].Openings, true) {
				if l.Check(audittest.Domain()) == nil {
					return true
				}
			}
		}
	}
	for i := range p.answers {
		for k := range i {
			if audit.NewTwoAnswers(p.answers[i], p.sigs[i], p.answers[k], p.sigs[k]).Check(audittest.Domain()) == nil {
				return true
			}
		}
	}
	return false
}
