package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
)

// revealTries is how often a peer is asked to reveal: all who committed must, or the provider has no beacon in the window.
const revealTries = 3

// revealing is what a member gave of a provider's beacon.
type revealing struct {
	nonce audit.Nonce
	list  sign.Hash // that it revealed for; zero: none yet
	sig   sign.Signature
}

type revealKey struct {
	provider sign.Key
	window   audit.Window
}

// mayReveal refuses, with the reason, whoever asks for a part of a beacon that this peer has none in, and gives who may have.
func (m *Member) mayReveal(ctx context.Context, key attemptKey) (drawn audit.Roster, err error) {
	if m.cfg.Sight.Source() != audit.ByReveal {
		return nil, refuse(CodeWindow, "this network's beacons are by %s", m.cfg.Sight.Source())
	}
	window, _, err := m.cfg.Sight.Window()
	if err != nil {
		return nil, refuse(CodeWindow, "%v", err)
	}
	if key.window != window {
		return nil, refuse(CodeWindow, "window %d, it is %d now", key.window, window)
	}
	roster, err := m.cfg.Sight.Roster(ctx, window)
	if err != nil {
		return nil, refuse(CodeDrawn, "%v", err)
	}
	drawn, _ = roster.DrawRevealers(window, key.provider)
	if !slices.ContainsFunc(drawn, func(x audit.Member) bool { return x.Key == m.cfg.Key.Key() }) {
		return nil, refuse(CodeDrawn, "this peer makes no beacon for %s in window %d", key.provider.Short(), window)
	}
	return drawn, nil
}

// commit gives the commitment to this peer's nonce, the same however often it is asked.
func (m *Member) commit(ctx context.Context, key attemptKey) (*nodepb.AuditReply, error) {
	if _, err := m.mayReveal(ctx, key); err != nil {
		return nil, err
	}
	var nonce audit.Nonce
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(key.window)
	at := revealKey{key.provider, key.window}
	r := m.reveals[at]
	if r == nil {
		if len(m.reveals) >= maxAttempts {
			return nil, refuse(CodeAttempt, "this peer judges as many as it can")
		}
		r = &revealing{nonce: nonce}
		m.reveals[at] = r
	}
	c := audit.Commit(m.cfg.Key.Key(), key.provider, key.window, r.nonce)
	return &nodepb.AuditReply{Commitment: c.Hash[:]}, nil
}

// reveal gives this peer's nonce to a list of commitments that it is in, and to no other list in the window.
func (m *Member) reveal(ctx context.Context, key attemptKey, in *nodepb.AuditRequest_Reveal) (*nodepb.AuditReply, error) {
	drawn, err := m.mayReveal(ctx, key)
	if err != nil {
		return nil, err
	}
	// Of all that may be on a list and not of the size alone, or two lists would have less than a third of them in common.
	if need := audit.Certify(len(drawn)); len(in.List) < need || len(in.List) > len(drawn) {
		return nil, refuse(CodeMembers, "%d commitments, %d of %d are needed", len(in.List), need, len(drawn))
	}
	var list []audit.Commitment
	for i, c := range in.List {
		if len(c.Member) != sign.KeySize || len(c.Hash) != sign.HashSize {
			return nil, malformed("member of %d bytes, commitment of %d", len(c.Member), len(c.Hash))
		}
		x := audit.Commitment{Member: sign.Key(c.Member), Hash: sign.Hash(c.Hash)}
		if i > 0 && slices.Compare(list[i-1].Member[:], x.Member[:]) >= 0 {
			return nil, malformed("commitments are not in order")
		}
		list = append(list, x)
	}
	members := make([]sign.Key, len(list))
	for i, c := range list {
		members[i] = c.Member
	}
	roster, err := m.cfg.Sight.Roster(ctx, key.window)
	if err == nil {
		err = audit.CheckRevealers(roster, key.window, key.provider, members)
	}
	if err != nil {
		return nil, refuse(CodeMembers, "%v", err)
	}
	hash := audit.ListHash(key.provider, key.window, list)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.reveals[revealKey{key.provider, key.window}]
	switch {
	case r == nil:
		return nil, refuse(CodeUnknown, "this peer committed to nothing for %s in window %d", key.provider.Short(), key.window)
	case !slices.Contains(list, audit.Commit(m.cfg.Key.Key(), key.provider, key.window, r.nonce)):
		return nil, refuse(CodeMembers, "not what this peer committed to")
	case !r.list.IsZero() && r.list != hash:
		return nil, refuse(CodeMembers, "this peer revealed for another list in window %d", key.window)
	}
	if r.list.IsZero() {
		s := audit.Reveal{Member: m.cfg.Key.Key(), Provider: key.provider, Window: key.window, List: hash, Nonce: r.nonce}
		if r.sig, err = s.Sign(m.cfg.Domain, m.cfg.Key); err != nil {
			return nil, err
		}
		r.list = hash
	}
	return &nodepb.AuditReply{Nonce: r.nonce[:], Signature: r.sig[:]}, nil
}

// draw gives the window's beacon: the network's, or where there is none the one that peers make for this provider.
func (p *Prover) draw(ctx context.Context, w audit.Window) (Drawn, error) {
	if p.cfg.Sight.Source() != audit.ByReveal {
		d, err := p.cfg.Sight.Beacon(ctx, w)
		if err != nil {
			return d, fmt.Errorf("reading the window's beacon: %w", err)
		}
		return d, nil
	}
	roster, err := p.cfg.Sight.Roster(ctx, w)
	if err != nil {
		return Drawn{}, fmt.Errorf("reading the bonded set: %w", err)
	}
	self := p.cfg.Key.Key()
	drawn, size := roster.DrawRevealers(w, self)
	list, err := p.commitments(ctx, w, drawn[:size], audit.Certify(len(drawn)))
	if err != nil {
		return Drawn{}, err
	}
	revealed, err := p.revealed(ctx, w, list)
	if err != nil {
		return Drawn{}, err
	}
	var d Drawn
	d.Beacon, d.Proof = audit.FromReveals(self, w, revealed)
	if d.Era, err = p.cfg.Sight.Check(ctx, w, self, d.Beacon, d.Proof); err != nil {
		return Drawn{}, fmt.Errorf("the beacon that peers made is none: %w", err)
	}
	return d, nil
}

func firstStep(w audit.Window) *nodepb.AuditRequest {
	return &nodepb.AuditRequest{Window: uint64(w), Attempt: 1}
}

// commitments are those of enough of the peers drawn, members ascending.
func (p *Prover) commitments(ctx context.Context, w audit.Window, drawn audit.Roster, need int) ([]audit.Commitment, error) {
	req := firstStep(w)
	req.Step = &nodepb.AuditRequest_Commit_{Commit: &nodepb.AuditRequest_Commit{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var list []audit.Commitment
	var why error
	for _, m := range drawn {
		wg.Go(func() {
			r, err := p.cfg.Call(ctx, m.Key, req)
			if err == nil && len(r.Commitment) != sign.HashSize {
				err = fmt.Errorf("a commitment of %d bytes", len(r.Commitment))
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				why = errors.Join(why, fmt.Errorf("%s: %w", m.Key.Short(), err))
				return
			}
			list = append(list, audit.Commitment{Member: m.Key, Hash: sign.Hash(r.Commitment)})
		})
	}
	wg.Wait()
	if len(drawn) < 1 || len(list) < need {
		return nil, fmt.Errorf("%w: %d of at least %d make the beacon: %w", ErrCommittee, len(list), need, why)
	}
	slices.SortFunc(list, func(a, b audit.Commitment) int { return slices.Compare(a.Member[:], b.Member[:]) })
	return list, nil
}

// revealed is what everybody in a list reveals. Whoever does not voids the window for this provider: a list cannot be changed.
func (p *Prover) revealed(ctx context.Context, w audit.Window, list []audit.Commitment) ([]audit.Revealed, error) {
	step := &nodepb.AuditRequest_Reveal{}
	for _, c := range list {
		step.List = append(step.List, &nodepb.AuditRequest_Commitment{Member: c.Member[:], Hash: c.Hash[:]})
	}
	req := firstStep(w)
	req.Step = &nodepb.AuditRequest_Reveal_{Reveal: step}
	hash := audit.ListHash(p.cfg.Key.Key(), w, list)
	out, errs := make([]audit.Revealed, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	for i, c := range list {
		wg.Go(func() {
			for range revealTries {
				if out[i], errs[i] = p.revealOf(ctx, w, c, hash, req); errs[i] == nil || ctx.Err() != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMember, err)
	}
	return out, nil
}

func (p *Prover) revealOf(ctx context.Context, w audit.Window, c audit.Commitment, list sign.Hash, req *nodepb.AuditRequest) (audit.Revealed, error) {
	r, err := p.cfg.Call(ctx, c.Member, req)
	if err != nil {
		return audit.Revealed{}, fmt.Errorf("%s does not reveal: %w", c.Member.Short(), err)
	}
	if len(r.Nonce) != audit.NonceSize || len(r.Signature) != sign.SignatureSize {
		return audit.Revealed{}, fmt.Errorf("%s reveals %d bytes, signed by %d", c.Member.Short(), len(r.Nonce), len(r.Signature))
	}
	x := audit.Revealed{Member: c.Member, Nonce: audit.Nonce(r.Nonce), Signature: sign.Signature(r.Signature)}
	if audit.Commit(c.Member, p.cfg.Key.Key(), w, x.Nonce) != c {
		return x, fmt.Errorf("%s reveals what it did not commit to", c.Member.Short())
	}
	s := audit.Reveal{Member: c.Member, Provider: p.cfg.Key.Key(), Window: w, List: list, Nonce: x.Nonce}
	return x, s.Verify(p.cfg.Domain, x.Signature)
}
