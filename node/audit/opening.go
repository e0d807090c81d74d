package audit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// show opens the drawn entries and collects the verdicts. The error of an attempt that a member left comes with
// results, without records.
func (s *session) show(ctx context.Context) ([]Result, error) {
	results := make([]Result, len(s.units))
	for i, u := range s.units {
		results[i] = Result{Unit: u.Claim}
		if results[i].Err = s.openUnit(ctx, u); results[i].Err != nil {
			results[i].Broken = 1
			s.p.cfg.Log.Error("a unit's answer is withheld", "unit", u.ID, "err", results[i].Err)
			continue
		}
		req, shown := s.request(), u.shown.Marshal()
		req.Step = &nodepb.AuditRequest_Show_{Show: &nodepb.AuditRequest_Show{
			Unit: uint32(i), Shown: shown[:], Openings: append(u.opened.Marshal(), u.walked.Marshal()...),
			Signature: u.signed[:], Third: givenToPB(s.given[2]),
		}}
		verdicts, found := make([]audit.Signed, len(s.members)), make([]string, len(s.members))
		err := s.each(ctx, req, func(k int, r *nodepb.AuditReply) error {
			var err error
			if found[k] = market.Clean(r.Found, maxFound); len(s.given[2]) == len(s.given[0]) {
				verdicts[k], err = s.verdict(u, k, r)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if s.gone() != nil {
			continue
		}
		results[i].Record = s.record(u, verdicts)
		if err := results[i].Record.Check(s.p.cfg.Domain); err != nil {
			results[i].Err = fmt.Errorf("%w: %w%s", ErrNotPassed, err, firstOf(found))
		}
	}
	return results, s.gone()
}

// verdict reads member k's verdict on a unit. It must cover the unit's openings and the member's nonces. A record with
// any other verdict is invalid, so one member could void the verdicts of all others; such a member counts as gone.
func (s *session) verdict(u *running, k int, r *nodepb.AuditReply) (audit.Signed, error) {
	v, err := audit.UnmarshalVerdict(r.Verdict)
	if err != nil || len(r.Signature) != sign.SignatureSize {
		return audit.Signed{}, fmt.Errorf("no verdict: %v, signature of %d bytes", err, len(r.Signature))
	}
	var nonces [3]audit.Nonce
	for i, given := range s.given {
		nonces[i] = given[k].Nonce
	}
	switch err := v.CheckTimes(s.beacon.Beacon, s.window, s.p.cfg.WindowSlots); {
	case err != nil:
		return audit.Signed{}, err
	case v.Member != s.members[k]:
		return audit.Signed{}, fmt.Errorf("a verdict of %s", v.Member.Short())
	case v.Answer != u.shown.Answer || v.Openings != u.shown.Openings:
		return audit.Signed{}, errors.New("a verdict of another answer, or of other openings")
	case v.Nonces != nonces:
		return audit.Signed{}, errors.New("a verdict with other nonces than the member gave")
	}
	out := audit.Signed{Verdict: v, Signature: sign.Signature(r.Signature)}
	return out, v.Verify(s.p.cfg.Domain, out.Signature)
}

// firstOf is the first fault that a member reported, for a person.
func firstOf(found []string) string {
	for _, f := range found {
		if f != "" {
			return fmt.Sprintf(" (answer of a member: %.256q)", f)
		}
	}
	return ""
}

// openUnit makes a unit's openings and their signature. It recomputes opened tiles and walks shown walkers again. If
// one differs from the commitment, it returns challenge.ErrFault and shows nothing: opening it would look like a lie.
func (s *session) openUnit(ctx context.Context, u *running) error {
	var err error
	key := challenge.WalkKey(u.answer.WalkSeed)
	walkers := audit.Walkers(u.answer.WalkSeed, u.answer.WalkRoot, u.Walk, s.given[2])
	u.walked, err = u.ends.Open(walkers, func(group uint32) ([]uint64, error) {
		return u.Device.Ends(ctx, key, u.dataset, u.Walk, group)
	})
	if err != nil {
		return err
	}
	drawn := audit.Drawn(u.answer.WalkSeed, u.Shape)
	tiles := newTiles(u.answer.ProductSeed, u.Shape, drawn)
	if u.opened, err = u.commit.OpenTiles(drawn, func(i int) *challenge.Tile { return tiles[i] }); err != nil {
		return err
	}
	if plant := s.p.plant; plant != nil {
		plant(u.answer, &u.opened)
		u.shown = audit.Show(u.answer, u.opened.Openings)
	} else if u.shown, err = audit.Seal(u.answer, u.opened); err != nil {
		return err
	}
	u.signed, err = u.shown.Sign(s.p.cfg.Domain, s.p.cfg.Key)
	return err
}

// newTiles computes the tiles of drawn leaves on several processors: one of the greatest depth takes a processor 30 ms.
func newTiles(seed sign.Hash, shape challenge.Shape, drawn []uint32) map[int]*challenge.Tile {
	var of []int
	for _, leaf := range drawn { // they ascend
		if at := int(leaf) / challenge.TileLeafs; len(of) == 0 || of[len(of)-1] != at {
			of = append(of, at)
		}
	}
	tiles := make([]*challenge.Tile, len(of))
	var g errgroup.Group
	g.SetLimit(min(runtime.GOMAXPROCS(0), device.Processors))
	for i, at := range of {
		g.Go(func() error {
			generator := challenge.ProductGenerator(seed)
			tiles[i] = challenge.NewTile(&generator, shape, shape.Place(at))
			return nil
		})
	}
	_ = g.Wait() // none has an error
	out := map[int]*challenge.Tile{}
	for i, at := range of {
		out[at] = tiles[i]
	}
	return out
}

func (s *session) record(u *running, verdicts []audit.Signed) audit.Record {
	slices.SortFunc(verdicts, func(a, b audit.Signed) int { return slices.Compare(a.Member[:], b.Member[:]) })
	return audit.Record{
		Beacon: s.beacon.Beacon, Committee: uint8(s.size), WindowSlots: s.p.cfg.WindowSlots,
		Answer: u.answer, AnswerSig: u.sig,
		Shown: u.shown, ShownSig: u.signed, Verdicts: verdicts, Opened: u.opened, Walked: u.walked,
	}
}
