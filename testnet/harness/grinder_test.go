package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
	rules "github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// grinder is a stranger that computes a part of what its unit is asked, with a friend on the committee that gives its nonces last. All
// others are running peers, asked over their streams.
type grinder struct {
	*outsider
	committee []sign.Key
	friend    sign.Key // zero: all members are asked, and give what they gave
	third     rules.Nonce
	asked     audit.Asked
	window    rules.Window
	drawn     sight.Drawn
	share     float64 // of the tiles that are computed; if not all, a twentieth of the walkers

	refusals []string
}

func (g *grinder) request() *nodepb.AuditRequest {
	return &nodepb.AuditRequest{Window: uint64(g.window), Attempt: 1}
}

// each asks all members but the friend, side by side.
func (g *grinder) each(req *nodepb.AuditRequest, take func(m sign.Key, r *nodepb.AuditReply)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, m := range g.committee {
		if m == g.friend {
			continue
		}
		wg.Go(func() {
			r, err := g.call(context.Background(), m, req)
			mu.Lock()
			defer mu.Unlock()
			var why *stream.Refused
			switch {
			case errors.As(err, &why):
				g.refusals = append(g.refusals, why.Code)
			case err != nil:
				g.t.Errorf("%s: %v", m.Short(), err)
			case take != nil:
				take(m, r)
			}
		})
	}
	wg.Wait()
}

// round collects the nonces of a round. The friend's is chosen when all others are known: one that suits.
func (g *grinder) round(req *nodepb.AuditRequest, number int, suits func([]rules.Given) bool) []rules.Given {
	var given []rules.Given
	g.each(req, func(m sign.Key, r *nodepb.AuditReply) {
		if len(r.Nonce) != rules.NonceSize {
			g.t.Fatalf("%s: a nonce of %d bytes", m.Short(), len(r.Nonce))
		}
		given = append(given, rules.Given{Member: m, Nonce: rules.Nonce(r.Nonce)})
	})
	if g.friend.IsZero() || len(given) == 0 {
		return given
	}
	x := rules.Given{Member: g.friend, Nonce: rules.Chain(g.third)[number]}
	for n := uint64(1); ; n++ {
		if all := append(slices.Clone(given), x); suits(all) {
			return all
		}
		binary.LittleEndian.PutUint64(x.Nonce[:], n)
	}
}

func toPB(in []rules.Given) (out []*nodepb.AuditRequest_Given) {
	for _, x := range in {
		out = append(out, &nodepb.AuditRequest_Given{Member: slices.Clone(x.Member[:]), Nonce: slices.Clone(x.Nonce[:])})
	}
	return out
}

// play has the unit audited, and gives the verdicts of the members that are peers.
func (g *grinder) play() (verdicts []rules.Verdict) {
	any := func([]rules.Given) bool { return true }
	shape, walk := g.asked.Shape, g.asked.Walk
	s, w := shape.Marshal(), walk.Marshal()
	req := g.request()
	req.Step = &nodepb.AuditRequest_Begin_{Begin: &nodepb.AuditRequest_Begin{
		Slot: uint64(g.drawn.Slot), Beacon: g.drawn.Value[:], Units: []*nodepb.AuditRequest_Unit{{
			Id: g.unit.ID[:], Class: string(g.unit.Class), Shape: s[:], Walk: w[:], MemoryMib: g.unit.MemoryMiB, MilliCpu: g.unit.MilliCPU,
		}},
	}}
	first := g.round(req, 0, any)
	if len(first) < rules.Certify(len(g.committee)) {
		g.t.Fatalf("%d members began: %v", len(first), g.refusals)
	}
	a := rules.Answer{Target: rules.Target{Provider: g.key.Key(), Unit: g.unit.ID, Window: g.window, Attempt: 1}, Shape: shape, Walk: walk}
	a.ProductSeed = rules.ProductSeed(g.drawn.Beacon, a.Target, first)
	a.DatasetSeed = rules.DatasetSeed(g.drawn.Era, a.Provider, a.Unit)
	generator := challenge.ProductGenerator(a.ProductSeed)
	tiles, hashes := make([]challenge.Tile, shape.Tiles()), make([]sign.Hash, shape.Tiles())
	computed := int(float64(len(tiles)) * g.share)
	for i := range tiles {
		if i < computed {
			tiles[i] = *challenge.NewTile(&generator, shape, shape.Place(i))
		}
		hashes[i] = tiles[i].Hash()
	}
	commit := must(challenge.Commit(shape, hashes))
	a.ProductRoot = commit.Root()
	req = g.request()
	req.Step = &nodepb.AuditRequest_Root_{Root: &nodepb.AuditRequest_Root{Root: a.ProductRoot[:]}}
	g.each(req, nil)

	req = g.request()
	req.Step = &nodepb.AuditRequest_Second_{Second: &nodepb.AuditRequest_Second{First: toPB(first)}}
	second := g.round(req, 1, func(all []rules.Given) bool {
		return !slices.ContainsFunc(rules.Drawn(rules.WalkSeed(a.ProductSeed, a.ProductRoot, all), shape), func(leaf uint32) bool {
			return int(leaf)/challenge.TileLeafs >= computed
		})
	})
	a.WalkSeed = rules.WalkSeed(a.ProductSeed, a.ProductRoot, second)
	set, ends := challenge.NewDataset(a.DatasetSeed, walk.Work), make([]uint64, walk.Walkers)
	walked := len(ends)
	if computed < len(tiles) {
		walked /= 20
	}
	for i := range walked {
		ends[i] = challenge.Go(walk, challenge.WalkKey(a.WalkSeed), uint32(i), set.Cell)
	}
	arrivals := must(challenge.NewArrivals(walk, challenge.GroupHashes(ends), nil))
	a.WalkRoot = arrivals.Root()
	sig := must(a.Sign(g.domain, g.key))
	answer := a.Marshal()
	req = g.request()
	req.Step = &nodepb.AuditRequest_Arrived_{Arrived: &nodepb.AuditRequest_Arrived{Answer: answer[:], Signature: sig[:], Second: toPB(second)}}
	g.each(req, nil)

	req = g.request()
	req.Step = &nodepb.AuditRequest_Third_{Third: &nodepb.AuditRequest_Third{}}
	third := g.round(req, 2, func(all []rules.Given) bool {
		return !slices.ContainsFunc(rules.Walkers(a.WalkSeed, a.WalkRoot, walk, all), func(k uint32) bool { return int(k) >= walked })
	})
	if len(third) == 0 {
		return nil
	}
	opened := must(commit.OpenTiles(rules.Drawn(a.WalkSeed, shape), func(i int) *challenge.Tile { return &tiles[i] }))
	shownWalk := must(arrivals.Open(rules.Walkers(a.WalkSeed, a.WalkRoot, walk, third), func(group uint32) ([]uint64, error) {
		first, n := walk.Members(group)
		return ends[first : first+n], nil
	}))
	shown := rules.Show(a, opened.Openings)
	signed := must(shown.Sign(g.domain, g.key))
	text := shown.Marshal()
	req = g.request()
	req.Step = &nodepb.AuditRequest_Show_{Show: &nodepb.AuditRequest_Show{
		Shown: text[:], Openings: append(opened.Marshal(), shownWalk.Marshal()...), Signature: signed[:], Third: toPB(third),
	}}
	g.each(req, func(m sign.Key, r *nodepb.AuditReply) {
		v, err := rules.UnmarshalVerdict(r.Verdict)
		if err != nil {
			g.t.Errorf("%s: %v", m.Short(), err)
		}
		verdicts = append(verdicts, v)
	})
	return verdicts
}

// instant waits for the instant of a window that is younger than any before.
func (o *outsider) instant() (rules.Window, sight.Drawn) {
	for {
		w := o.next()
		d, err := o.sight.Beacon(context.Background(), w)
		if err != nil {
			o.t.Fatal(err)
		}
		at := o.sight.Instants().Of(w)
		for _, now, err := o.sight.Window(); err == nil && now <= at; _, now, err = o.sight.Window() {
			if now == at {
				return w, d
			}
			time.Sleep(slotMillis * time.Millisecond / 4)
		}
	}
}

// A member that gave its nonces last could choose which entries are opened and which walkers are shown: of what its friend computed, which
// is then passed by every honest peer beside it. Running peers take a nonce only of which the one before is made, so that whoever chooses
// later has a committee without it, and with nonces of one chain what was not computed is found.
func TestAttackFriendGrindsNoncesBesidePeers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		friend bool
		share  float64
		want   rules.Outcome
		code   string // by which the peers refuse
	}{
		"the friend grinds":             {friend: true, share: 0.9, code: audit.CodeMembers},
		"the friend has nothing to win": {friend: true, share: 1, want: rules.Pass},
		"nobody grinds":                 {share: 0.9, want: rules.Wrong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := cheats(t, Options{Providers: 5, Strangers: 1}, nil)
				audited(t, n.Provider(4), 1) // by now they know each other
				g := &grinder{outsider: newOutsider(t, n, 0), share: c.share, third: rules.Nonce{7}}
				g.unit.Claim = audit.Claim{
					ID: market.UnitID(sign.Sum([]byte("grinder"))), Class: "cpu", Resources: market.Resources{MilliCPU: 300, MemoryMiB: 64},
				}
				var err error
				if g.asked, err = audit.ByPlan(g.unit.Claim); err != nil {
					t.Fatal(err)
				}
				g.window, g.drawn = g.instant()
				roster, err := g.sight.Roster(context.Background(), g.window)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range roster.Draw(g.drawn.Beacon, g.window, g.key.Key(), rules.Committee) {
					g.committee = append(g.committee, m.Key)
				}
				if c.friend {
					g.friend = g.committee[len(g.committee)-1]
				}
				verdicts := g.play()
				peers := len(g.committee)
				if c.friend {
					peers--
				}
				if c.code != "" {
					other := func(code string) bool { return code != c.code }
					if len(verdicts) > 0 || len(g.refusals) < peers || slices.ContainsFunc(g.refusals[:peers], other) {
						t.Errorf("%d verdicts, refused by %v", len(verdicts), g.refusals)
					}
					return
				}
				got := fmt.Sprint(len(verdicts))
				for _, v := range verdicts {
					if v.Outcome != c.want {
						got += " " + v.Outcome.String()
					}
				}
				if got != fmt.Sprint(peers) {
					t.Errorf("%s verdicts of %d peers, want %s of each; refused: %v", got, peers, c.want, g.refusals)
				}
			})
		})
	}
}

// A card that says that it has less memory than any of its model was behind as many identities as fit into it at one instant. Running
// peers ask nothing of such a unit, whatever it would be asked.
func TestAttackCardAsManySmallOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := cheats(t, Options{Providers: 4, Strangers: 1}, nil)
		audited(t, n.Provider(3), 1)
		o := newOutsider(t, n, 0)
		window, drawn := o.instant()
		least := must(audit.ByPlan(audit.Claim{Class: "gpu/rtx-3060", Resources: market.Resources{VRAMMiB: 12_288}}))
		begin := func(vram uint32, units int) {
			var all []*nodepb.AuditRequest_Unit
			for i := range units {
				id := sign.Sum([]byte{byte(i)})
				shape, walk := least.Shape, least.Walk
				walk.Cells = rules.DatasetBytes("gpu/rtx-3060", market.Resources{VRAMMiB: vram}) / challenge.CellSize
				s, w := shape.Marshal(), walk.Marshal()
				all = append(all, &nodepb.AuditRequest_Unit{Id: id[:], Class: "gpu/rtx-3060", Shape: s[:], Walk: w[:], VramMib: vram})
			}
			for i := range 4 {
				req := &nodepb.AuditRequest{Window: uint64(window), Attempt: 1}
				req.Step = &nodepb.AuditRequest_Begin_{Begin: &nodepb.AuditRequest_Begin{Slot: uint64(drawn.Slot), Beacon: drawn.Value[:], Units: all}}
				_, _ = o.call(context.Background(), n.Provider(i).Key.Key(), req)
			}
		}
		begin(2048, 14)
		refused := 0
		o.mu.Lock()
		for _, err := range o.errs {
			var why *stream.Refused
			if errors.As(err, &why) && why.Code == audit.CodeUnits {
				refused++
			}
		}
		o.errs = nil
		o.mu.Unlock()
		if refused != 4 {
			t.Errorf("an H200 as 14 RTX 3060 of 2 GiB: %d of 4 peers refuse", refused)
		}
		begin(12_288, 1) // a true one is asked
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, err := range o.errs {
			if err != nil {
				t.Errorf("an RTX 3060: %v", err)
			}
		}
	})
}
