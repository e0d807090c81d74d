package settle

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
)

// Chain is a chain with Starling's program, as a peer needs it. chain/solana is one.
type Chain interface {
	escrow.Ledger
	Wallet
	// Network reads the network's account of the program.
	Network(ctx context.Context) (account.Network, error)
	// Deployed reads the program's code and its upgrade authority, confirmed.
	Deployed(ctx context.Context) (svm.Deployed, error)
	// Anchored reads the root that a key wrote down, confirmed. It returns chain.ErrNotFound if it does not exist, or
	// no longer.
	Anchored(ctx context.Context, authority sign.Key, root sign.Hash) (account.Anchored, error)
	// Provider reads the registration of a provider by the key that it first had. chain.ErrNotFound: it never
	// registered.
	Provider(ctx context.Context, first sign.Key) (account.Provider, market.Slot, error)
}

// Wallet is the money that the ledger's key can spend.
type Wallet interface {
	// Funds is the amount that the ledger's key can spend.
	Funds(ctx context.Context) (chain.Funds, error)
	// Purses reads accounts that orders name, at most escrow.MaxPurses, confirmed and in their order. It is one
	// request.
	Purses(ctx context.Context, accounts []sign.Key) ([]escrow.Purse, error)
	// Provide ensures that the ledger's key holds need base units in a token account of its own. If it spends for
	// another owner, the missing amount comes from the owner's account. It returns chain.ErrAllowance or chain.ErrFees.
	Provide(ctx context.Context, need market.Amount) error
}

// Network is the program's account of the network. Its parameters never change: they are read from the chain once and
// then stored in the journal. Its rules change by vote: Update reads them.
type Network struct {
	genesis market.Genesis
	chain   Chain
	store   journal.Store

	net    atomic.Pointer[escrow.Net]
	asking chan struct{} // holds one token while the chain is read
}

// NewNetwork returns a Network. It sends no request.
func NewNetwork(g market.Genesis, c Chain, s journal.Store) *Network {
	return &Network{genesis: g, chain: c, store: s, asking: make(chan struct{}, 1)}
}

// networkRecord is the network's account in the journal, as the chain has it.
type networkRecord struct {
	Account []byte `json:"account"`
}

// networks has the account by its address.
var networks = journal.Define[sign.Key, networkRecord]("network")

// Get returns the network from the journal, or else from the chain. One caller at a time reads the chain; others wait
// for it until ctx ends.
func (n *Network) Get(ctx context.Context) (escrow.Net, error) {
	if net := n.net.Load(); net != nil {
		return *net, nil
	}
	select {
	case n.asking <- struct{}{}:
		defer func() { <-n.asking }()
	case <-ctx.Done():
		return escrow.Net{}, fmt.Errorf("reading the network's account %s: %w", n.genesis.Escrow, ctx.Err())
	}
	if net := n.net.Load(); net != nil {
		return *net, nil
	}
	var found account.Network
	rec, err := networks.Get(ctx, n.store, n.genesis.Escrow)
	kept := err == nil
	switch {
	case kept:
		found, err = account.UnmarshalNetwork(rec.Account)
	case errors.Is(err, store.ErrNotFound):
		found, err = n.chain.Network(ctx)
	}
	if err != nil {
		return escrow.Net{}, fmt.Errorf("reading the network's account %s: %w", n.genesis.Escrow, err)
	}
	return n.keep(ctx, found, !kept)
}

// keep takes an account for the network's.
func (n *Network) keep(ctx context.Context, found account.Network, write bool) (escrow.Net, error) {
	net, err := escrow.NewNet(n.genesis.Program, found, n.genesis.Mint)
	if err != nil {
		return escrow.Net{}, err
	}
	if net.Address() != n.genesis.Escrow {
		return escrow.Net{}, fmt.Errorf("%w: the network's account is %s, not %s",
			chain.ErrMalformed, net.Address(), n.genesis.Escrow)
	}
	if write {
		if err := networks.Write(ctx, n.store, n.genesis.Escrow, networkRecord{found.Marshal()}); err != nil {
			return escrow.Net{}, err
		}
	}
	n.net.Store(&net)
	return net, nil
}

// Update reads the network's account from the chain, so that new work follows the current rules. It returns the account
// and whether its rules are newer than those known before.
func (n *Network) Update(ctx context.Context) (found account.Network, changed bool, err error) {
	before, err := n.Get(ctx)
	if err != nil {
		return found, false, err
	}
	if found, err = n.chain.Network(ctx); err != nil {
		return found, false, fmt.Errorf("reading the network's account %s: %w", n.genesis.Escrow, err)
	}
	if found.Sequence <= before.Account.Sequence { // an endpoint that lags shows older ones
		return found, false, nil
	}
	_, err = n.keep(ctx, found, true)
	return found, err == nil, err
}
