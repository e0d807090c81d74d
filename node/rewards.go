package node

import (
	"context"
	"time"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/registry"
	"github.com/starling-network/starling/node/rewards"
	"github.com/starling-network/starling/verify/audit"
)

const (
	// rewardsEvery is how often a peer looks whether there is anything to do about rewards, at most; on a network with short windows it
	// looks four times in each. One that sells nothing need not look so often.
	rewardsEvery = 30 * time.Second
	rewardsIdle  = 5 * time.Minute
	rewardsLeast = 500 * time.Millisecond
)

// newRewards makes this peer's part in rewards; nil where there are none: for a light peer, and on a free network
// or does not audit.
func (n *Node) newRewards() *rewards.Service {
	c, ok := n.p.Program.(rewards.Chain)
	if n.audits == nil || !ok || n.registered == nil {
		return nil
	}
	window := time.Duration(n.p.Genesis.AuditOneIn*n.p.Genesis.AuditSlots*n.p.Genesis.SlotMillis) * time.Millisecond
	cfg := rewards.Config{
		Genesis: n.p.Genesis, Key: n.p.Key.Key(), Chain: rewarding{c, n.registered}, Sight: n.sight, Peers: rewards.Streams{Host: n.p.Host, Tag: n.tag}, Store: n.p.Store,
		Every: min(max(window/4, rewardsLeast), rewardsEvery), Log: n.p.Log.With("role", "rewards"),
	}
	if n.provider != nil {
		cfg.Records = n.newestRecords
	} else {
		cfg.Every = min(max(window/4, rewardsLeast), rewardsIdle)
	}
	if n.guardian != nil {
		cfg.Wards = n.guardian.Escrows
		cfg.Every = min(max(window/4, rewardsLeast), rewardsEvery)
	}
	return rewards.New(cfg)
}

// rewarding is the chain with the list of registrations that this peer has.
type rewarding struct {
	rewards.Chain
	registered *registry.Registry
}

// Providers implements rewards.Chain.
func (c rewarding) Providers(ctx context.Context) ([]program.Provider, error) {
	return c.registered.Providers(ctx)
}

// newestRecords are those of this peer's units.
func (n *Node) newestRecords() (out []audit.Record) {
	shelf := n.audits.Shelf()
	for _, p := range shelf.All() {
		if p.Record.IsZero() {
			continue
		}
		b, err := shelf.Record(p.Record)
		if err != nil {
			continue // only the newest of each unit is there
		}
		if r, err := audit.UnmarshalRecord(b); err == nil {
			out = append(out, r)
		}
	}
	return out
}

// Rewards is how rewards stand, as this peer sees it.
func (n *Node) Rewards() (rewards.Status, error) {
	if n.rewards == nil {
		return rewards.Status{}, n.noRewards()
	}
	return n.rewards.Status(), nil
}

// ClaimRewards looks at once at what is to be done about rewards, and does it.
func (n *Node) ClaimRewards(ctx context.Context) (rewards.Status, error) {
	if n.rewards == nil {
		return rewards.Status{}, n.noRewards()
	}
	err := n.rewards.Look(ctx)
	return n.rewards.Status(), err
}

// noRewards says why there are none.
func (n *Node) noRewards() error {
	why := "this is a free network: it has neither stake nor rewards"
	switch {
	case n.p.Light != nil:
		why = "a light client earns no rewards: it takes no part in the network"
	case n.p.Program != nil:
		why = "nothing is audited on this network, so there is nothing to pay rewards for: its genesis has no audit_slots"
	}
	return &api.Error{Status: 409, Code: "no_rewards", Message: why}
}
