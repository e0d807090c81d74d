package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// session is one attempt of this peer's units. It has no durable state, on purpose: a process never answers in the
// window in which it started, so an attempt that a crash ends is not continued, and the next instant decides. The
// results are durable: package shelf. mu guards left alone, and no call runs under it.
type session struct {
	p       *Prover
	number  uint8
	window  audit.Window
	beacon  sight.Drawn
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

// open draws the committee and makes the datasets resident, which is not timed. In a later attempt it uses the members
// in stayed.
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

// leaves notes that a member stopped answering.
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

// each sends every remaining member the same request at once. A member that does not answer has left. If fewer members
// remain than a record needs, the attempt ends.
func (s *session) each(
	ctx context.Context, req *nodepb.AuditRequest, take func(i int, r *nodepb.AuditReply) error,
) error {
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

// nonces requests the second or third nonce from every member.
func (s *session) nonces(ctx context.Context, round int, req *nodepb.AuditRequest) error {
	given := make([]audit.Given, len(s.members))
	err := s.each(ctx, req, func(i int, r *nodepb.AuditReply) error {
		if len(r.Nonce) != audit.NonceSize {
			return fmt.Errorf("a nonce of %d bytes", len(r.Nonce))
		}
		given[i] = audit.Given{Member: s.members[i], Nonce: audit.Nonce(r.Nonce)}
		before := audit.Given{Member: s.members[i], Nonce: given[i].Nonce.Before()}
		if !slices.Contains(s.given[round-1], before) {
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
			Id: u.ID[:], Class: string(u.Class), Shape: shape[:], Walk: walk[:],
			VramMib: u.VRAMMiB, MemoryMib: u.MemoryMiB, MilliCpu: u.MilliCPU,
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

// multiply computes a unit's products and sends their root to all members.
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
	root := &nodepb.AuditRequest_Root{Unit: s.place(u), Root: u.answer.ProductRoot[:]}
	req.Step = &nodepb.AuditRequest_Root_{Root: root}
	return s.each(ctx, req, nil)
}

func (s *session) place(u *running) uint32 { return uint32(slices.Index(s.units, u)) }

// walk walks a unit's walkers and sends its signed answer to all members.
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
