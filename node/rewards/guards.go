package rewards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// warded is an escrow that this peer guarded.
type warded struct {
	Epoch uint64 `json:"epoch"` // the newest in which it did
}

var errNotListed = errors.New("the claims of that epoch are not together yet")

// maxNamed is the number of an escrow's transactions that are searched for claims.
const maxNamed = 4 * rewards.MaxGuardedBy

// noteWards records the leases with vouchers that this peer signs and, when an epoch has ended, the claims in it. The
// chain keeps the claims after the escrow is closed.
func (s *Service) noteWards(ctx context.Context, l *look) error {
	if s.cfg.Wards == nil {
		return nil
	}
	now := uint64(0)
	if l.any {
		now = l.last + 1
	}
	for _, escrow := range s.cfg.Wards() {
		w, err := wardTable.Get(ctx, s.cfg.Store, escrow)
		if err == nil && w.Epoch == now {
			continue
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err := wardTable.Write(ctx, s.cfg.Store, escrow, warded{now}); err != nil {
			return err
		}
	}
	if !l.any || s.listed > l.last || uint64(l.now) < l.network.Params.Votes.EpochEnd(l.last)+s.settled() {
		return nil
	}
	var escrows []sign.Key
	if err := wardTable.List(ctx, s.cfg.Store, "", func(k sign.Key, _ warded) error {
		escrows = append(escrows, k)
		return nil
	}); err != nil {
		return err
	}
	v := l.network.Params.Votes
	from := market.Slot(v.EpochEnd(max(l.from, s.listed)) - v.EpochSlots)
	for _, escrow := range escrows {
		ids, err := s.cfg.Chain.Naming(ctx, escrow, from, maxNamed)
		if err != nil {
			return err
		}
		for _, id := range ids {
			_, err := s.claimed(ctx, id)
			if err != nil && !errors.Is(err, chain.ErrMalformed) && !errors.Is(err, chain.ErrNotFound) {
				return err
			}
		}
	}
	s.archive.mu.Lock()
	defer s.archive.mu.Unlock()
	s.listed = l.last + 1
	return nil
}

// settled is the number of slots after an epoch until its last claims are final and published: a third of the time in
// which it is counted.
func (s *Service) settled() uint64 { return s.grace() / 3 }

// claimed is a claim that was paid under the word of several, from the journal or the chain, and is kept.
func (r *archive) claimed(ctx context.Context, id sign.Signature) (rewards.Guarded, error) {
	g, err := guardedTable.Get(ctx, r.cfg.Store, id)
	if !errors.Is(err, store.ErrNotFound) {
		return g, err
	}
	if g, err = r.cfg.Chain.Guarded(ctx, id); err != nil {
		return rewards.Guarded{}, err
	}
	return g, guardedTable.Write(ctx, r.cfg.Store, id, g)
}

// guarded are the claims that are kept.
func (r *archive) guarded(ctx context.Context) ([]rewards.Guarded, error) {
	var out []rewards.Guarded
	return out, guardedTable.List(ctx, r.cfg.Store, "", func(_ sign.Signature, g rewards.Guarded) error {
		out = append(out, g)
		return nil
	})
}

// names are those of the claims under this peer's word, the largest.
func (r *archive) names(ctx context.Context, d Document) ([]byte, error) {
	r.mu.Lock()
	listed := r.listed
	r.mu.Unlock()
	if r.cfg.Wards != nil && d.Epoch >= listed {
		return nil, errNotListed
	}
	n, err := r.cfg.Chain.Network(ctx)
	if err != nil {
		return nil, err
	}
	gs, err := r.guarded(ctx)
	gs = slices.DeleteFunc(gs, func(g rewards.Guarded) bool {
		return !g.In(n.Params.Votes, d.Epoch) || !slices.Contains(g.Keys, d.Provider)
	})
	var out []byte
	for _, g := range rewards.Largest(gs, rewards.MaxGuardedBy) {
		out = append(out, g.ID[:]...)
	}
	return out, err
}

// gatherGuarded requests the claims that were paid with a peer's signature in an epoch, and keeps those that the chain
// confirms. After a wrong one, the rest is ignored.
func (r *gatherer) gatherGuarded(ctx context.Context, l *look, p sign.Key, epoch uint64) error {
	b, err := r.read(ctx, p, Document{Kind: Guarded, Epoch: epoch, Provider: p}, maxGuarded)
	if errors.Is(err, ErrNoDocument) {
		return nil // most peers guard nothing
	}
	if err != nil {
		return err
	}
	for ; len(b) >= sign.SignatureSize; b = b[sign.SignatureSize:] {
		g, err := r.claimed(ctx, sign.Signature(b[:sign.SignatureSize]))
		if err != nil {
			return err
		}
		if !g.In(l.network.Params.Votes, epoch) || !slices.Contains(g.Keys, p) {
			return fmt.Errorf("%w: claim %s is of another epoch, or under another's word", market.ErrMalformed, g.ID)
		}
	}
	return nil
}

// guards are those of an epoch and a pool that are kept.
func (r *archive) guards(ctx context.Context, l *look, of subject) (rewards.Guards, error) {
	all, err := r.guarded(ctx)
	return l.guards(all, of), err
}

// guards returns the claims of an epoch in the mint of a pool that a registered peer is paid for; the emission has
// none.
func (l *look) guards(all []rewards.Guarded, of subject) rewards.Guards {
	if of.source == 0 {
		return rewards.Guards{}
	}
	out := rewards.Guards{Terms: l.network.Params.Mints[of.source-1]}
	registered := func(k sign.Key) bool { _, ok := l.payout(k); return ok }
	for _, g := range all {
		if g.In(l.network.Params.Votes, of.epoch) && g.Mint == out.Terms.Mint &&
			slices.ContainsFunc(g.Keys, registered) {
			out.Claims = append(out.Claims, g)
		}
	}
	out.Claims = rewards.Largest(out.Claims, rewards.MaxGuarded)
	return out
}

// checkGuarded compares the claims of a table with this peer's data, and unknown ones with the chain.
func (r *gatherer) checkGuarded(ctx context.Context, l *look, t rewards.Table, source uint8) (rewards.Guards, error) {
	mine, err := r.guards(ctx, l, subject{t.Epoch, source})
	if err != nil {
		return rewards.Guards{}, err
	}
	unseen, err := t.CompareGuarded(mine.Claims)
	if err != nil {
		return rewards.Guards{}, err
	}
	if source == 0 && len(t.Claims) > 0 {
		return rewards.Guards{}, fmt.Errorf("%w: of the emission no guardian is paid", rewards.ErrTable)
	}
	mine.Claims = slices.DeleteFunc(mine.Claims, func(g rewards.Guarded) bool {
		_, here := slices.BinarySearchFunc(t.Claims, g.ID, func(c rewards.Claim, id sign.Signature) int {
			return bytes.Compare(c.ID[:], id[:])
		})
		return !here
	})
	for _, c := range unseen {
		g, err := r.claimed(ctx, c.ID)
		switch {
		case errors.Is(err, chain.ErrMalformed):
			return rewards.Guards{}, fmt.Errorf("%w: %w: %w", rewards.ErrTable, rewards.ErrProof, err)
		case err != nil: // another endpoint may remember it
			return rewards.Guards{}, err
		case g.Net != c.Net || g.Mint != mine.Terms.Mint || !g.In(l.network.Params.Votes, t.Epoch):
			return rewards.Guards{}, fmt.Errorf("%w: %w: claim %s paid %d in slot %d",
				rewards.ErrTable, rewards.ErrProof, g.ID, g.Net, g.Slot)
		}
		mine.Claims = append(mine.Claims, g)
	}
	return mine, nil
}
