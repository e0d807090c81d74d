package node

import (
	"context"
	"time"

	"github.com/starling-network/starling/node/rewards"
)

const (
	// rewardsEvery is how often a peer looks whether there is anything to do about rewards, at most; on a network
	// with short windows it looks four times in each. One that sells nothing need not look so often.
	rewardsEvery = 30 * time.Second
	rewardsIdle  = 5 * time.Minute
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
