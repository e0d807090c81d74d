package buyer

import (
	"context"
	"fmt"
	"slices"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/nodepb"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/replica"
)

// signedResult is a rank's result and its provider's signature under it.
type signedResult struct {
	replica.Committed
	work    replica.Work
	result  replica.Result
	outputs []Output
	receipt verify.Receipt // the final one; of another output, or zero, where Signed is false
}

// signed waits for the last receipt of rank i's lease, and holds what its provider signed there against what it gave.
func (s *supervisor) signed(ctx context.Context, i int) (signedResult, error) {
	j := s.snapshot()
	w, err := workload(j, i)
	if err != nil {
		return signedResult{}, err
	}
	r := signedResult{outputs: j.Ranks[i].Outputs}
	if r.work, err = work.Work(w); err != nil {
		return r, err
	}
	var outs []*nodepb.Output
	for _, o := range r.outputs {
		c, err := cid.Parse(o.CID)
		if err != nil {
			return r, fmt.Errorf("output %s: %w", o.Path, err)
		}
		outs = append(outs, &nodepb.Output{Path: o.Path, Blob: &nodepb.Blob{Cid: c.Bytes(), Size: uint64(o.Size), Tree: o.Tree}})
	}
	all := s.bought()
	at := slices.IndexFunc(all, func(l *leases.Lease) bool { return l.ID == j.Ranks[i].Lease })
	if at < 0 {
		return r, fmt.Errorf("rank %d has no lease", i)
	}
	for _, l := range all[at].Chain() {
		select {
		case <-l.Settled:
		case <-ctx.Done():
			return r, ctx.Err()
		}
		a, err := l.Account(ctx)
		if err != nil {
			return r, err
		}
		if n := len(a.Receipts); n > 0 && a.Receipts[n-1].Final() && (r.receipt.Lease.IsZero() || !a.Receipts[n-1].Output.IsZero()) {
			r.receipt = a.Receipts[n-1]
		}
	}
	core := all[at].Core
	r.Provider, r.Lease = core.Provider, core.ID()
	if !r.receipt.Lease.IsZero() {
		r.Lease = r.receipt.Lease
	}
	r.Owner, _ = s.b.bond(ctx, core.Provider, core.Payout)
	if r.result, err = work.Result(w, int32(j.Ranks[i].Exit), outs); err != nil {
		// It left other outputs than the requested ones: no honest provider does.
		r.result = replica.Result{Exit: int32(j.Ranks[i].Exit), Trees: make([]sign.Hash, len(w.Outputs))}
	}
	r.Output = replica.Output(r.work.Hash(), r.result)
	r.Signed = r.receipt.Output == r.Output
	return r, nil
}
