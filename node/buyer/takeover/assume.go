package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// assumeTime bounds the wait for a provider's answer to a change of supervisor; its lease is lost afterwards.
const assumeTime = 10 * time.Second

// assume sends the grant to the providers of all open leases, and adds the receipts that this peer does not have. It
// returns ErrSuperseded if a provider has a higher grant. A provider that does not answer is detected by the next
// request.
func (d *Takeover) assume(ctx context.Context, by Granted) error {
	lines := map[market.LeaseID][]*leases.Lease{}
	for _, l := range by.leases {
		lines[l.First] = append(lines[l.First], l)
	}
	g, ctx := errgroup.WithContext(ctx)
	for first, line := range lines {
		open := slices.ContainsFunc(line, func(l *leases.Lease) bool { return !l.Done() })
		// A line's results may still be of use to a rank.
		keeps := slices.ContainsFunc(by.state.Ranks, func(r jobs.Rank) bool { return r.Lease == first })
		if open || keeps {
			g.Go(func() error { return d.assumeLine(ctx, first, line, by.Grant) })
		}
	}
	return g.Wait()
}

func (d *Takeover) assumeLine(ctx context.Context, first market.LeaseID, line []*leases.Lease, grant []byte) error {
	log := d.cfg.Log.With("lease", first)
	ctx, cancel := context.WithTimeout(ctx, assumeTime)
	defer cancel()
	for {
		req := &marketpb.Supervise{Lease: first[:], Grant: grant}
		for _, l := range line {
			req.Seen = append(req.Seen, &marketpb.SeenReceipts{Lease: l.ID[:], Last: l.Payer().Last().Seq})
		}
		d.cfg.Host.Forgive(line[0].Peer)
		call, done := context.WithTimeout(ctx, leases.StepTimeout)
		reply, err := d.cfg.Leases.Call(call, line[0].Peer, &marketpb.LeaseRequest{
			Step: &marketpb.LeaseRequest_Supervise{Supervise: req},
		})
		done()
		var no *stream.Refused
		switch {
		case err == nil:
			more, err := takeIn(ctx, line, reply.GetSupervised())
			if err != nil {
				log.Warn("a receipt from a provider is not valid", "err", err)
				return nil
			}
			if !more {
				return nil
			}
			continue
		case errors.As(err, &no) && no.Code == string(market.ReasonSupervision):
			// Only the guardians can confirm this: a lying provider must not stop the job.
			if err := d.panel().Beat(ctx, nil); errors.Is(err, guardian.ErrSuperseded) {
				return fmt.Errorf("%w: %w", ErrSuperseded, err)
			}
			log.Warn("a provider obeys a supervisor without a grant of the guardians", "reason", no.Reason)
			return nil
		case errors.As(err, &no) && no.Code != stream.CodeBusy:
			log.Debug("a provider no longer has a lease", "err", err)
			return nil
		}
		if run.Pause(ctx, run.Redial) != nil {
			log.Warn("notifying a provider of the new supervisor failed", "err", err)
			return nil
		}
	}
}

// takeIn adds receipts that both parties have signed, and reports whether the provider has more.
func takeIn(ctx context.Context, line []*leases.Lease, r *marketpb.Supervised) (more bool, err error) {
	for _, raw := range r.GetReceipts() {
		receipt, err := verify.UnmarshalReceipt(raw)
		if err != nil {
			return false, err
		}
		for _, l := range line {
			if l.ID == receipt.Lease {
				if err := l.Accept(ctx, receipt); err != nil {
					return false, err
				}
			}
		}
	}
	return r.GetMore() && len(r.GetReceipts()) > 0, nil
}
