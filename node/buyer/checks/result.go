package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/nodepb"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/deterministic"
	"github.com/starling-network/starling/verify/replica"
)

const (
	// bondTimeout bounds finding the stakes of the providers that could run a replica.
	bondTimeout = 5 * time.Second
	// bondsAtOnce bounds the concurrent requests for bonds.
	bondsAtOnce = 8
)

// result is a rank's result and its provider's signature under it.
type result struct {
	replica.Committed
	work    deterministic.Work
	value   deterministic.Result
	outputs []record.Output
	receipt verify.Receipt // the final one; of another output, or zero, where Signed is false
}

// result waits for the last receipt of the lease of rank i of a job, and compares the output that its provider signed
// there with the output that it delivered.
func (c *Checker) result(ctx context.Context, of Job, i int) (result, error) {
	j := of.Snapshot()
	w, err := record.Workload(j, i)
	if err != nil {
		return result{}, err
	}
	r := result{outputs: j.Ranks[i].Outputs}
	if r.work, err = work.Work(w); err != nil {
		return r, err
	}
	var outs []*nodepb.Output
	for _, o := range r.outputs {
		id, err := cid.Parse(o.CID)
		if err != nil {
			return r, fmt.Errorf("output %s: %w", o.Path, err)
		}
		blob := &nodepb.Blob{Cid: id.Bytes(), Size: uint64(o.Size), Tree: o.Tree}
		outs = append(outs, &nodepb.Output{Path: o.Path, Blob: blob})
	}
	all := of.Leases()
	at := slices.IndexFunc(all, func(l market.LeaseCore) bool { return l.ID() == j.Ranks[i].Lease })
	if at < 0 {
		return r, fmt.Errorf("rank %d has no lease", i)
	}
	if r.receipt, err = of.Settled(ctx, j.Ranks[i].Lease); err != nil {
		return r, err
	}
	r.Provider, r.Lease = all[at].Provider, all[at].ID()
	if !r.receipt.Lease.IsZero() {
		r.Lease = r.receipt.Lease
	}
	r.Owner, _ = c.owner(ctx, all[at].Provider, all[at].Payout)
	if r.value, err = work.Result(w, int32(j.Ranks[i].Exit), outs); err != nil {
		// It left other outputs than the requested ones: no honest provider does.
		r.value = deterministic.Result{Exit: int32(j.Ranks[i].Exit), Trees: make([]sign.Hash, len(w.Outputs))}
	}
	r.Output = r.work.Output(r.value)
	r.Signed = r.receipt.Output == r.Output
	return r, nil
}

// given returns the results of a verdict with their signatures. An unavailable result is nil.
func (r *rank) given(ctx context.Context, v replica.Verdict) []*result {
	out := make([]*result, len(v.Results))
	take := func(of Job, i int) {
		got, err := r.result(ctx, of, i)
		if err != nil {
			r.cfg.Log.Info("a checked result is no longer available", "job", of.Snapshot().ID, "err", err)
			return
		}
		if at := slices.IndexFunc(v.Results, func(c replica.Committed) bool { return c.Lease == got.Lease }); at >= 0 {
			out[at] = &got
		}
	}
	take(r.job, r.i)
	for _, id := range r.verified().Replicas {
		if of, err := r.cfg.Jobs.Get(id); err == nil && len(of.Snapshot().Ranks[0].Outputs) > 0 {
			take(of, 0)
		}
	}
	return out
}

// dissent keeps the proof that results which were signed differ, and returns its id; "" where none do.
func (r *rank) dissent(ctx context.Context, gave []*result) (string, error) {
	var d replica.Dissent
	for _, g := range gave {
		if g != nil && g.Signed {
			d.Work = g.work
			d.Results = append(d.Results, replica.Signed{Receipt: g.receipt, Result: g.value})
		}
	}
	slices.SortFunc(d.Results, func(x, y replica.Signed) int {
		return slices.Compare(x.Receipt.Lease[:], y.Receipt.Lease[:])
	})
	other := func(s replica.Signed) bool { return !s.Result.Equal(d.Results[0].Result) }
	if len(d.Results) < 2 || !slices.ContainsFunc(d.Results, other) {
		return "", nil
	}
	if err := replica.CheckDissent(r.cfg.Genesis.Domain(), d); err != nil {
		return "", fmt.Errorf("proving that results differ: %w", err)
	}
	return r.cfg.Disputes.KeepDispute(ctx, d)
}

// owner returns the wallet liable for a provider, and its stake: the wallet behind the stake, or else the provider's
// payout wallet.
func (c *Checker) owner(ctx context.Context, p, payout sign.Key) (owner sign.Key, stake market.Amount) {
	if c.cfg.Stakes == nil {
		return payout, 0
	}
	owner, stake, err := c.cfg.Stakes.Bond(ctx, p)
	switch {
	case err == nil && !owner.IsZero():
		return owner, stake
	case err != nil && !errors.Is(err, chain.ErrNotFound):
		c.cfg.Log.Info("the stake of a provider is not known; it counts as nothing", "provider", p, "err", err)
	}
	return payout, 0
}

// Draw puts the providers that could run a replica into the order of the draw, in place of the best first.
func (c *Checker) Draw(ctx context.Context, r record.Replica, res match.Result) match.Result {
	ctx, cancel := context.WithTimeout(ctx, bondTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []replica.Candidate
	by := map[sign.Key]match.Scored{}
	var g errgroup.Group
	g.SetLimit(bondsAtOnce)
	for _, s := range res.Ranked {
		p, payout := s.Candidate.Offer.Provider, s.Candidate.Offer.Payout
		if s.Candidate.Quote != nil {
			payout = s.Candidate.Quote.Payout
		}
		if _, twice := by[p]; twice {
			continue
		}
		by[p] = s
		g.Go(func() error {
			owner, stake := c.owner(ctx, p, payout)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, replica.Candidate{Provider: p, Owner: owner, Staked: stake > 0})
			return nil
		})
	}
	_ = g.Wait() // never fails
	res.Ranked, res.Newcomers = nil, nil
	for _, p := range replica.Pick(r.Seed, r.Attempt, all, r.Not) {
		res.Ranked = append(res.Ranked, by[p])
	}
	return res
}
