package chaintest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// runPoll is how often Run looks whether its transaction is in a block.
const runPoll = 50 * time.Millisecond

// Run is chain/solana's: it signs a transaction, sends it and waits until it is in a block. Where the program refuses a
// call, the error is its program.Code.
func (l *ProgramLedger) Run(ctx context.Context, in []svm.Instruction, others ...sign.Signer) (chain.TxID, error) {
	in, err := l.Bid(ctx, in, 0, 0)
	if err != nil {
		return "", err
	}
	tx, err := l.Sign(ctx, in, nil, others...)
	if err != nil {
		return "", err
	}
	if err := l.Send(ctx, tx); err != nil {
		return tx.ID, err
	}
	for {
		s, err := l.Status(ctx, tx)
		switch {
		case err != nil:
			return tx.ID, err
		case s.State == chain.Expired:
			return tx.ID, errors.New("chaintest: the transaction expired")
		case s.Err != "":
			return tx.ID, fmt.Errorf("chaintest: %w: %s", chain.ErrRejected, s.Err)
		case s.State == chain.Confirmed, s.State == chain.Finalized:
			return tx.ID, nil
		}
		select {
		case <-ctx.Done():
			return tx.ID, ctx.Err()
		case <-time.After(runPoll):
		}
	}
}

// Provider reads a registration, as of the newest block.
func (l *ProgramLedger) Provider(_ context.Context, first sign.Key) (account.Provider, market.Slot, error) {
	if l.p.chain.away() {
		return account.Provider{}, 0, chain.ErrDown
	}
	slot := market.Slot(l.p.chain.newest())
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	p, there := l.p.tip.Providers[account.ProviderAddress(l.p.net.Program, l.p.net.Address(), first)]
	if !there {
		return account.Provider{}, slot, chain.ErrNotFound
	}
	return p, slot, nil
}

// Providers lists all registrations, in the order of their addresses.
func (l *ProgramLedger) Providers(context.Context) ([]account.Provider, error) {
	if l.p.chain.away() {
		return nil, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	var at []sign.Key
	for k := range l.p.final.Providers {
		at = append(at, k)
	}
	slices.SortFunc(at, func(a, b sign.Key) int { return slices.Compare(a[:], b[:]) })
	var out []account.Provider
	for _, k := range at {
		out = append(out, l.p.final.Providers[k])
	}
	return out, nil
}

// Ballots are all of the network, by address.
func (l *ProgramLedger) Ballots(context.Context) (map[sign.Key]account.Ballot, error) {
	if l.p.chain.away() {
		return nil, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return maps.Clone(l.p.tip.Ballots), nil
}

// Voted returns a provider's vote on a topic.
func (l *ProgramLedger) Voted(_ context.Context, topic sign.Hash, provider sign.Key) (account.Vote, error) {
	if l.p.chain.away() {
		return account.Vote{}, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	v, there := l.p.tip.Votes[account.VoteAddress(l.p.net.Program, topic, provider)]
	if !there {
		return account.Vote{}, chain.ErrNotFound
	}
	return v, nil
}

// Register creates a provider with a stake, and mints the stake.
func (p *Programs) Register(at account.Provider) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at.Network = p.net.Address()
	address := account.ProviderAddress(p.net.Program, at.Network, at.Peer)
	vault := account.StakeAddress(p.net.Program, address)
	for _, s := range []*model.State{p.final, p.tip} {
		s.Providers[address] = at
		s.Tokens[vault] = svm.Token{Mint: p.net.Mint, Owner: address, Amount: at.Stake + at.Unbonding, Plain: true}
		m := s.Mints[p.net.Mint]
		m.Supply += at.Stake + at.Unbonding
		s.Mints[p.net.Mint] = m
		n := s.Networks[at.Network]
		n.Bonded += at.Bonded
		s.Networks[at.Network] = n
	}
	p.minted += at.Stake + at.Unbonding
}
