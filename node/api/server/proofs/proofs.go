// Package proofs binds the routes of the local API about proofs, audits and rewards to the rooms that have them.
package proofs

import (
	"context"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/jobproof"
	"github.com/starling-network/starling/node/proof/notices"
	"github.com/starling-network/starling/node/rewards"
)

// Proofs keeps proofs, and watches units for double sale.
type Proofs interface {
	// Proofs lists the proofs of a kind, or all for the empty one.
	Proofs(k proof.Kind) []proof.Entry
	// Proof returns a proof of a peer, or of this one if the key is zero.
	Proof(ctx context.Context, of sign.Key, hash sign.Hash) (proof.Proof, error)
	// KeepProof checks and keeps a proof from a file.
	KeepProof(ctx context.Context, f proof.File) (proof.Entry, error)
	// History returns the receipts of others that count for or against a peer, given by id or key.
	History(ctx context.Context, peer string) (proof.Proof, error)
	Watcher
}

// Watcher watches units for double sale.
type Watcher interface {
	Watching() []notices.Watched
	Watch(ctx context.Context, w notices.Watched) error
	Unwatch(ctx context.Context, w notices.Watched) error
}

// Bind binds the routes of kept proofs and watched units.
func Bind(of Proofs) []route.Bound {
	return []route.Bound{
		api.ListProofs.Bind(func(_ context.Context, q api.ByKind) ([]proof.Entry, error) {
			return of.Proofs(q.Kind), nil
		}),
		api.GetProof.Bind(func(ctx context.Context, q api.ByHash) (proof.Proof, error) {
			return of.Proof(ctx, q.Peer, q.Hash)
		}),
		api.KeepProof.Bind(of.KeepProof),
		api.GetHistory.Bind(func(ctx context.Context, q api.ByPeer) (proof.Proof, error) {
			return of.History(ctx, q.Peer)
		}),
		api.ListWatched.Bind(func(context.Context, api.None) ([]api.Watched, error) { return watched(of), nil }),
		api.WatchUnit.Bind(func(ctx context.Context, w api.Watched) ([]api.Watched, error) {
			if err := of.Watch(ctx, notices.Watched(w)); err != nil {
				return nil, err
			}
			return watched(of), nil
		}),
		api.UnwatchUnit.Bind(func(ctx context.Context, w api.Watched) ([]api.Watched, error) {
			if err := of.Unwatch(ctx, notices.Watched(w)); err != nil {
				return nil, err
			}
			return watched(of), nil
		}),
	}
}

// watched lists the watched units.
func watched(of Proofs) []api.Watched {
	out := []api.Watched{}
	for _, w := range of.Watching() {
		out = append(out, api.Watched(w))
	}
	return out
}

// Jobs is the jobs of a buyer, with the records that prove their cost and their probes.
type Jobs interface{ jobproof.Jobs }

// BindJobs binds the route of a job's proofs.
func BindJobs(of Jobs) []route.Bound {
	return []route.Bound{
		api.JobProof.Bind(func(ctx context.Context, q api.OfJob) (proof.Proof, error) {
			return jobproof.Of(ctx, of, q.ID, q.Kind)
		}),
	}
}

// Audits is the audits of the peer's units.
type Audits interface {
	// Audits returns the audits of the peer's units, the newest of each first.
	Audits() ([]proof.PastAudit, error)
	// Audit audits them now.
	Audit(ctx context.Context) ([]proof.PastAudit, error)
}

// BindAudits binds the routes of audits.
func BindAudits(of Audits) []route.Bound {
	return []route.Bound{
		api.ListAudits.Bind(func(context.Context, api.None) ([]proof.PastAudit, error) { return of.Audits() }),
		api.RunAudit.Bind(noRequest(of.Audit)),
	}
}

// Rewards counts and claims rewards.
type Rewards interface {
	Rewards() (rewards.Status, error)
	// ClaimRewards claims all rewards that can be claimed now.
	ClaimRewards(ctx context.Context) (rewards.Status, error)
}

// BindRewards binds the routes of rewards.
func BindRewards(of Rewards) []route.Bound {
	return []route.Bound{
		api.GetRewards.Bind(func(context.Context, api.None) (rewards.Status, error) { return of.Rewards() }),
		api.ClaimRewards.Bind(noRequest(of.ClaimRewards)),
	}
}

// noRequest adapts a function without a request.
func noRequest[Resp any](do func(context.Context) (Resp, error)) func(context.Context, api.None) (Resp, error) {
	return func(ctx context.Context, _ api.None) (Resp, error) { return do(ctx) }
}
