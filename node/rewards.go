package node

import (
	"context"
	"time"

	"github.com/starling-network/starling/node/rewards"
)

const (
	// rewardsEvery is the maximum interval of checks for due rewards, and rewardsLeast the minimum; on a network with
	// short windows there are four checks in each.
	rewardsEvery = 30 * time.Second
	rewardsLeast = 500 * time.Millisecond
)

// rewarded is a peer's rewards for the local API.
type rewarded struct{ *rewards.Service }

// Rewards returns the state of rewards, as this peer sees it.
func (r rewarded) Rewards() (rewards.Status, error) { return r.Status(), nil }

// ClaimRewards does at once everything that is due about rewards.
func (r rewarded) ClaimRewards(ctx context.Context) (rewards.Status, error) {
	err := r.Look(ctx)
	return r.Status(), err
}
