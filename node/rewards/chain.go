package rewards

import (
	"context"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Chain is the chain as the loop needs it; chain/solana is one.
type Chain interface {
	Votes
	Guards
	chain.Blocks
	// Network reads the network's account.
	Network(ctx context.Context) (account.Network, error)
	// Slot returns the newest slot.
	Slot(ctx context.Context) (market.Slot, error)
	// Run runs calls of the program in one transaction.
	Run(ctx context.Context, calls []svm.Instruction, others ...sign.Signer) (chain.TxID, error)
}

// Votes is the votes on rewards, with their voters, and the payments that were voted for.
type Votes interface {
	Registrations
	// Ballots returns the ballots by their address.
	Ballots(ctx context.Context) (map[sign.Key]account.Ballot, error)
	// Voted reads a provider's vote on a topic.
	Voted(ctx context.Context, topic sign.Hash, provider sign.Key) (account.Vote, error)
	// Payouts reads the payments of a source in some epochs.
	Payouts(ctx context.Context, source uint8, from, to uint64) (map[uint64]account.Payout, error)
	// Holds returns the tokens of a source's account.
	Holds(ctx context.Context, at sign.Key) (uint64, error)
}

// Guards is the claims of several voucher keys, which guarded escrows pay.
type Guards interface {
	// Guarded reads a guarded claim from its transaction.
	Guarded(ctx context.Context, id sign.Signature) (rewards.Guarded, error)
	// Naming returns the newest final transactions since a slot that name an account, at most most. It also works after
	// escrow and account are closed.
	Naming(ctx context.Context, named sign.Key, from market.Slot, most int) ([]sign.Signature, error)
}

// Registrations lists the network's registrations; a *registry.Registry.
type Registrations interface {
	// Providers returns all registrations.
	Providers(ctx context.Context) ([]account.Provider, error)
}

// listed is a chain with the list of registrations that this peer has.
type listed struct {
	Chain
	Registrations
}

// Providers implements Chain.
func (l listed) Providers(ctx context.Context) ([]account.Provider, error) {
	return l.Registrations.Providers(ctx)
}

// Listed returns a chain with registrations that are read from a list.
func Listed(c Chain, r Registrations) Chain { return listed{c, r} }
