package node

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/sealed"
)

// Guard is what a peer does for other people's jobs while they are away. Jobs need guardians only where an escrow pays.
type Guard struct {
	// Accept says that the peer guards jobs.
	Accept bool `yaml:"accept"`
	// MaxJobs is how many at a time.
	MaxJobs int `yaml:"maxJobs"`
	// Share is which part of what a job's leases can cost the peer wants for it, such as 0.005.
	Share float64 `yaml:"share"`
	// MaxMiB bounds the files of one job, which the peer keeps for those that run it.
	MaxMiB int `yaml:"maxMiB"`
	// Longest is how long a job may last.
	Longest time.Duration `yaml:"longest"`
}

// maxShare is the most that one guardian may want: so that five together get no more than a tenth.
const maxShare = 0.02

func (g Guard) check() error {
	switch {
	case g.MaxJobs < 0 || g.MaxJobs > 10_000:
		return fmt.Errorf("%w: guard.maxJobs: %d is not between 0 and 10000", ErrConfig, g.MaxJobs)
	case !(g.Share >= 0 && g.Share <= maxShare):
		return fmt.Errorf("%w: guard.share: %g is not between 0 and %g", ErrConfig, g.Share, maxShare)
	case g.MaxMiB < 0 || g.MaxMiB > 1<<24:
		return fmt.Errorf("%w: guard.maxMiB: %d is not between 0 and %d", ErrConfig, g.MaxMiB, 1<<24)
	case g.Longest < 0 || g.Longest > 365*24*time.Hour:
		return fmt.Errorf("%w: guard.longest: %v is not between 0 and a year", ErrConfig, g.Longest)
	}
	return nil
}

func (g Guard) policy() guardian.Policy {
	return guardian.Policy{Accept: g.Accept, MaxJobs: g.MaxJobs, ShareMillionths: uint32(g.Share * 1e6), MaxBytes: int64(g.MaxMiB) << 20, Longest: g.Longest}
}

// newGuardian makes the part that guards other people's jobs; nil where nobody can be paid by guardians' words.
func (n *Node) newGuardian(ctx context.Context) (*guardian.Service, error) {
	if n.network == nil || n.p.Light != nil {
		return nil, nil
	}
	return guardian.New(ctx, guardian.Config{
		Host: n.p.Host, Genesis: n.p.Genesis, Key: n.p.Key, Payout: n.p.Owner, Policy: n.p.Config.Guard.policy(),
		Store: n.p.Store, Slots: n.slots, Log: n.p.Log.With("role", "guardian"),
		Unseal: func(p sealed.Purpose, box []byte) ([]byte, error) { return sealed.Open(n.p.Key, p, box) },
		Backed: func(ctx context.Context, w guardian.Ward, state []byte) error { return n.buyer.Backed(ctx, w, state) },
		Fetch:  n.fetch, Grant: n.share, Drop: n.drop,
		TakeUp: func(ctx context.Context, t guardian.Taken) error { return n.buyer.TakeUp(ctx, t) },
		Yield:  func(job sign.Hash, epoch uint64) { n.buyer.Yield(job, epoch) },
	})
}

// stake is what a peer has at stake on the network.
func (n *Node) stake(ctx context.Context, peer sign.Key) (market.Amount, error) {
	p, _, err := n.p.Program.Provider(ctx, peer)
	return market.Amount(p.Stake), err
}

// bond is the wallet behind a provider, and what it has at stake in the money that jobs are paid in.
func (n *Node) bond(ctx context.Context, provider sign.Key) (sign.Key, market.Amount, error) {
	net, err := n.network.Get(ctx)
	if err != nil {
		return sign.Key{}, 0, err
	}
	p, _, err := n.p.Program.Provider(ctx, provider)
	if err != nil {
		return sign.Key{}, 0, err
	}
	stake := market.Amount(p.Stake)
	if net.Account.Params.StakeMint != n.p.Genesis.Mint { // what one is worth in the other nobody here knows
		stake = 0
	}
	return p.Owner, stake, nil
}

// Guarded lists the jobs of others that this peer guards, by their id.
func (n *Node) Guarded() []api.GuardedJob {
	out := []api.GuardedJob{}
	if n.guardian == nil {
		return out
	}
	for _, c := range n.guardian.Jobs() {
		w, panel, ok := n.guardian.Guarded(c.Job)
		if !ok {
			continue
		}
		panel.Close()
		by := w.Supervisor(w.Epoch)
		out = append(out, api.GuardedJob{
			Job: w.Job, Owner: w.Owner, Guardians: w.Keys.Keys, Epoch: w.Epoch, Supervisor: by, Mine: by == n.p.Key.Key() && !w.Over, Over: w.Over, Until: w.Until,
		})
	}
	slices.SortFunc(out, func(x, y api.GuardedJob) int { return bytes.Compare(x.Job[:], y.Job[:]) })
	return out
}
