package audit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// session is one attempt.
type session struct {
	p       *Prover
	number  uint8
	window  audit.Window
	beacon  Drawn
	size    int // of the committee
	appeal  bool
	rooted  bool // the products' roots are known
	drawn   audit.Roster
	members []sign.Key // members that gave a first nonce
	given   [3][]audit.Given
	units   []*running

	mu   sync.Mutex
	left map[sign.Key]*leftError // those of members that gave no more
}

// running is a unit in an attempt.
type running struct {
	Unit
	Asked
	dataset device.Dataset
	commit  *challenge.Commitment
	answer  audit.Answer
	sig     sign.Signature
	ends    *challenge.Arrivals
	opened  challenge.Opened
	walked  challenge.Walked
	shown   audit.Shown
	signed  sign.Signature
}

// open draws the committee and makes the datasets resident, which is no part of what is timed. In a later attempt it
// asks those that stayed.
func (p *Prover) open(ctx context.Context, s *session, units []Unit, stayed []sign.Key) (*session, error) {
	roster, err := p.cfg.Sight.Roster(ctx, s.window)
	if err != nil {
		return nil, fmt.Errorf("reading the bonded set: %w", err)
	}
	s.size, s.left = audit.Committee, map[sign.Key]*leftError{}
	if s.appeal = slices.ContainsFunc(units, func(u Unit) bool { return u.Appeal }); s.appeal {
		s.size = audit.Appeal
	}
	s.drawn = roster.Draw(s.beacon.Beacon, s.window, p.cfg.Key.Key(), s.size+audit.Slack)
	s.size = min(s.size, len(s.drawn))
	if stayed != nil {
		s.drawn = slices.DeleteFunc(s.drawn, func(m audit.Member) bool { return !slices.Contains(stayed, m.Key) })
	}
	if s.size == 0 || len(s.drawn) < audit.Certify(s.size) {
		return nil, fmt.Errorf("%w: %d are left of %d", ErrCommittee, len(s.drawn), s.size)
	}
	for _, u := range units {
		asked, err := p.cfg.Plan(u.Claim)
		if err != nil {
			return nil, fmt.Errorf("unit %s: %w", u.ID.Short(), err)
		}
		seed := audit.DatasetSeed(s.beacon.Era, p.cfg.Key.Key(), u.ID)
		s.units = append(s.units, &running{Unit: u, Asked: asked, dataset: device.Of(seed, asked.Walk)})
	}
	return s, s.together(ctx, func(ctx context.Context, u *running) error { return u.Device.Fill(ctx, u.dataset) })
}

// together does something with all units at once.
func (s *session) together(ctx context.Context, do func(ctx context.Context, u *running) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, u := range s.units {
		g.Go(func() error {
			if err := do(ctx, u); err != nil {
				return fmt.Errorf("unit %s: %w", u.ID.Short(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

// request is a step of this attempt.
func (s *session) request() *nodepb.AuditRequest {
	return &nodepb.AuditRequest{Window: uint64(s.window), Attempt: uint32(s.number)}
}

// wait returns when the attempt may begin. ErrInstant when it is too late for any unit.
func (s *session) wait(ctx context.Context) error {
	cfg := s.p.cfg
	at := cfg.Sight.Instants().Of(s.window)
	if err := cfg.Wait(ctx, at); err != nil {
		return err
	}
	window, slot, err := cfg.Sight.Window()
	if err != nil {
		return err
	}
	if window != s.window {
		return fmt.Errorf("%w: it was slot %d, in window %d", ErrInstant, at, s.window)
	}
	for _, u := range s.units {
		if err := cfg.Sight.Instants().Check(window, s.beacon.Beacon, s.number, u.Class, slot); err != nil {
			return fmt.Errorf("%w: %w", ErrInstant, err)
		}
	}
	return nil
}

// stayed are the members that answered every request.
func (s *session) stayed() []sign.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.members), func(m sign.Key) bool { return s.left[m] != nil })
}

// leaves notes that a member gave no more.
func (s *session) leaves(m sign.Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[m] == nil {
		s.left[m] = &leftError{m, err}
	}
}

// gone is the first member that left, in the order of members; nil while all are there.
func (s *session) gone() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if l := s.left[m]; l != nil {
			return l
		}
	}
	return nil
}

// each asks every member that is still there the same at once. One that does not answer has left; with fewer than must
// pass a record, the attempt ends.
func (s *session) each(ctx context.Context, req *nodepb.AuditRequest, take func(i int, r *nodepb.AuditReply) error) error {
	stayed := s.stayed()
	var wg sync.WaitGroup
	for i, m := range s.members {
		if !slices.Contains(stayed, m) {
			continue
		}
		wg.Go(func() {
			r, err := s.p.cfg.Call(ctx, m, req)
			if err == nil && take != nil {
				err = take(i, r)
			}
			if err != nil && ctx.Err() == nil {
				s.leaves(m, err)
			}
		})
	}
	wg.Wait()
	return s.enough(ctx)
}

// enough is the error of an attempt that too many left.
func (s *session) enough(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(s.stayed()) < audit.Certify(s.size) {
		return s.gone()
	}
	return nil
}

// nonces asks every member for the second or third nonce.
func (s *session) nonces(ctx context.Context, round int, req *nodepb.AuditRequest) error {
	given := make([]audit.Given, len(s.members))
	err := s.each(ctx, req, func(i int, r *nodepb.AuditReply) error {
		if len(r.Nonce) != audit.NonceSize {
			return fmt.Errorf("a nonce of %d bytes", len(r.Nonce))
		}
		given[i] = audit.Given{Member: s.members[i], Nonce: audit.Nonce(r.Nonce)}
		if before := (audit.Given{Member: s.members[i], Nonce: given[i].Nonce.Before()}); !slices.Contains(s.given[round-1], before) {
			given[i] = audit.Given{}
			return errors.New("a nonce that the one before is not made of")
		}
		return nil
	})
	s.given[round] = slices.DeleteFunc(given, func(g audit.Given) bool { return g.Member.IsZero() })
	return err
}

func givenToPB(in []audit.Given) []*nodepb.AuditRequest_Given {
	out := make([]*nodepb.AuditRequest_Given, len(in))
	for i, g := range in {
		out[i] = &nodepb.AuditRequest_Given{Member: g.Member[:], Nonce: g.Nonce[:]}
	}
	return out
}

// play is one attempt from the first nonce to the verdicts.
func (s *session) play(ctx context.Context) ([]Result, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	if err := s.together(ctx, s.multiply); err != nil {
		return nil, err
	}
	s.rooted = true
	second := s.request()
	second.Step = &nodepb.AuditRequest_Second_{Second: &nodepb.AuditRequest_Second{First: givenToPB(s.given[0])}}
	if err := s.nonces(ctx, 1, second); err != nil {
		return nil, err
	}
	if err := s.together(ctx, s.walk); err != nil {
		return nil, err
	}
	third := s.request()
	third.Step = &nodepb.AuditRequest_Third_{Third: &nodepb.AuditRequest_Third{}}
	if err := s.nonces(ctx, 2, third); err != nil {
		return nil, err
	}
	return s.show(ctx)
}

// begin requests first nonces from the committee, and from the peers below it in place of members that do not answer.
func (s *session) begin(ctx context.Context) error {
	b := &nodepb.AuditRequest_Begin{Slot: uint64(s.beacon.Slot), Beacon: s.beacon.Value[:], Appeal: s.appeal}
	for _, u := range s.units {
		shape, walk := u.Shape.Marshal(), u.Walk.Marshal()
		b.Units = append(b.Units, &nodepb.AuditRequest_Unit{
			Id: u.ID[:], Class: string(u.Class), Shape: shape[:], Walk: walk[:], VramMib: u.VRAMMiB, MemoryMib: u.MemoryMiB, MilliCpu: u.MilliCPU,
		})
	}
	req := s.request()
	req.Step = &nodepb.AuditRequest_Begin_{Begin: b}
	var mu sync.Mutex
	var why error
	ask := func(from, to int) {
		var wg sync.WaitGroup
		for _, m := range s.drawn[from:to] {
			wg.Go(func() {
				r, err := s.p.cfg.Call(ctx, m.Key, req)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					why = errors.Join(why, fmt.Errorf("%s: %w", m.Key.Short(), err))
				case len(r.Nonce) != audit.NonceSize:
					why = errors.Join(why, fmt.Errorf("%s: a nonce of %d bytes", m.Key.Short(), len(r.Nonce)))
				default:
					s.members = append(s.members, m.Key)
					s.given[0] = append(s.given[0], audit.Given{Member: m.Key, Nonce: audit.Nonce(r.Nonce)})
				}
			})
		}
		wg.Wait()
	}
	first := min(s.size, len(s.drawn))
	ask(0, first)
	if need := s.size - len(s.members); need > 0 {
		ask(first, min(first+need, len(s.drawn)))
	}
	if need := audit.Certify(s.size); len(s.members) < need {
		return fmt.Errorf("%w: %d of at least %d: %w", ErrCommittee, len(s.members), need, why)
	}
	return nil
}

// multiply computes a unit's products and hands their root to everybody.
func (s *session) multiply(ctx context.Context, u *running) error {
	u.answer = audit.Answer{
		Target: audit.Target{Provider: s.p.cfg.Key.Key(), Unit: u.ID, Window: s.window, Attempt: s.number},
		Shape:  u.Shape, DatasetSeed: u.dataset.Seed, Walk: u.Walk,
	}
	u.answer.ProductSeed = audit.ProductSeed(s.beacon.Beacon, u.answer.Target, s.given[0])
	var err error
	if u.commit, err = u.Device.Commit(ctx, u.answer.ProductSeed, u.Shape); err != nil {
		return err
	}
	u.answer.ProductRoot = u.commit.Root()
	req := s.request()
	req.Step = &nodepb.AuditRequest_Root_{Root: &nodepb.AuditRequest_Root{Unit: s.place(u), Root: u.answer.ProductRoot[:]}}
	return s.each(ctx, req, nil)
}

func (s *session) place(u *running) uint32 { return uint32(slices.Index(s.units, u)) }

// walk walks a unit's walkers and hands its signed answer to everybody.
func (s *session) walk(ctx context.Context, u *running) error {
	u.answer.WalkSeed = audit.WalkSeed(u.answer.ProductSeed, u.answer.ProductRoot, s.given[1])
	groups, err := u.Device.Walk(ctx, challenge.WalkKey(u.answer.WalkSeed), u.dataset, u.Walk)
	if err != nil {
		return err
	}
	if u.ends, err = challenge.NewArrivals(u.Walk, groups, device.Split); err != nil {
		return err
	}
	u.answer.WalkRoot = u.ends.Root()
	if u.sig, err = u.answer.Sign(s.p.cfg.Domain, s.p.cfg.Key); err != nil {
		return err
	}
	answer := u.answer.Marshal()
	req := s.request()
	req.Step = &nodepb.AuditRequest_Arrived_{Arrived: &nodepb.AuditRequest_Arrived{
		Unit: s.place(u), Answer: answer[:], Signature: u.sig[:], Second: givenToPB(s.given[1]),
	}}
	return s.each(ctx, req, nil)
}

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
			Unit: uint32(i), Shown: shown[:], Openings: append(u.opened.Marshal(), u.walked.Marshal()...), Signature: u.signed[:], Third: givenToPB(s.given[2]),
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

// verdict reads what member number k says of a unit. It must be of what the unit showed and of what that member gave: a
// record with a verdict of anything else is none, so that one member could void those of all others; here it has left
// instead.
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
			return fmt.Sprintf(" (a member says: %.256q)", f)
		}
	}
	return ""
}

// openUnit makes what a unit shows, and its signature. Opened tiles are computed again, and shown walkers walked again:
// when one is not what was committed, challenge.ErrFault, and nothing is shown, for whoever opens it would be taken for
// a liar.
func (s *session) openUnit(ctx context.Context, u *running) error {
	var err error
	key := challenge.WalkKey(u.answer.WalkSeed)
	u.walked, err = u.ends.Open(audit.Walkers(u.answer.WalkSeed, u.answer.WalkRoot, u.Walk, s.given[2]), func(group uint32) ([]uint64, error) {
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
		Beacon: s.beacon.Beacon, Committee: uint8(s.size), WindowSlots: s.p.cfg.WindowSlots, Answer: u.answer, AnswerSig: u.sig,
		Shown: u.shown, ShownSig: u.signed, Verdicts: verdicts, Opened: u.opened, Walked: u.walked,
	}
}
