package server

import (
	"context"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/evidence"
	"github.com/starling-network/starling/node/rewards"
)

// Evidence keeps proofs of double sale, of different results and of lies in audits.
type Evidence interface {
	Kept(ctx context.Context) ([]evidence.Kept, error)
	Dissents(ctx context.Context) ([]evidence.Dissent, error)
	Lies(ctx context.Context) ([]evidence.KeptLie, error)
	Watching() []evidence.Watched
	Watch(ctx context.Context, w evidence.Watched) error
	Unwatch(ctx context.Context, w evidence.Watched) error
}

// BindEvidence binds the routes of proofs.
func BindEvidence(of Evidence) []route.Bound {
	return []route.Bound{
		api.ListEvidence.Bind(noRequest(of.Kept)),
		api.ListDissents.Bind(noRequest(of.Dissents)),
		api.ListLies.Bind(noRequest(of.Lies)),
		api.ListWatched.Bind(func(context.Context, api.None) ([]evidence.Watched, error) { return of.Watching(), nil }),
		api.WatchUnit.Bind(func(ctx context.Context, w evidence.Watched) ([]evidence.Watched, error) {
			if err := of.Watch(ctx, w); err != nil {
				return nil, err
			}
			return of.Watching(), nil
		}),
		api.UnwatchUnit.Bind(func(ctx context.Context, w evidence.Watched) ([]evidence.Watched, error) {
			if err := of.Unwatch(ctx, w); err != nil {
				return nil, err
			}
			return of.Watching(), nil
		}),
	}
}

// Audits is the audits of the peer's units.
type Audits interface {
	// Audits returns the audits of the peer's units, the newest of each first.
	Audits() ([]audit.Past, error)
	// Audit audits them now.
	Audit(ctx context.Context) ([]audit.Past, error)
	// AuditRecord returns a record of a peer, or of this one if the key is zero, and where it is anchored.
	AuditRecord(ctx context.Context, of sign.Key, hash sign.Hash) (audit.Kept, error)
}

// BindAudits binds the routes of audits.
func BindAudits(of Audits) []route.Bound {
	return []route.Bound{
		api.ListAudits.Bind(func(context.Context, api.None) ([]audit.Past, error) { return of.Audits() }),
		api.RunAudit.Bind(noRequest(of.Audit)),
		api.GetAudit.Bind(func(ctx context.Context, q api.Audited) (audit.Kept, error) {
			return of.AuditRecord(ctx, q.Peer, q.Hash)
		}),
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
