package solana

import (
	"context"
	"fmt"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Ballots are all of this network, by address, as one endpoint shows them: it may hide some, and none can be
// made up but as Ballot would refuse it too. Many public endpoints do not answer this.
func (l *Accounts) Ballots(ctx context.Context) (map[sign.Key]account.Ballot, error) {
	if l.cfg.Program.IsZero() {
		return nil, errProgram
	}
	accounts, err := l.list(ctx, rpc.CommitmentConfirmed, rpc.RPCFilter{DataSize: account.BallotSize})
	if err != nil {
		return nil, fmt.Errorf("listing ballots: %w", err)
	}
	out := map[sign.Key]account.Ballot{}
	for _, a := range accounts {
		if b, err := l.ballotAt(a.at, a.Held); err == nil {
			out[a.at] = b
		}
	}
	return out, nil
}

// Ballot reads a ballot of this network and the slot in which it stood so, confirmed. It returns chain.ErrNotFound if
// it does not exist, or no longer.
func (l *Accounts) Ballot(ctx context.Context, at sign.Key) (account.Ballot, market.Slot, error) {
	a, slot, err := l.account(ctx, at)
	if err != nil {
		return account.Ballot{}, slot, fmt.Errorf("reading ballot %s: %w", at, err)
	}
	b, err := l.ballotAt(at, a)
	if err != nil {
		return account.Ballot{}, slot, fmt.Errorf("reading ballot %s: %w", at, err)
	}
	return b, slot, nil
}

// ballotAt parses a ballot of this network, and checks that its address follows from its content.
func (l *Accounts) ballotAt(at sign.Key, a cluster.Held) (account.Ballot, error) {
	b, err := account.UnmarshalBallot(a.Data)
	if err != nil || a.Owner != l.cfg.Program || b.Network != l.cfg.Network ||
		account.BallotAddress(l.cfg.Program, b.Network, b.Proposer, b.Opened) != at {
		return account.Ballot{}, chain.ErrMalformed
	}
	return b, nil
}

// Voted reads the vote of a provider, by its registration's address, on a topic, confirmed. It returns
// chain.ErrNotFound if the provider has not voted, or the vote account is closed.
func (l *Accounts) Voted(ctx context.Context, topic sign.Hash, provider sign.Key) (account.Vote, error) {
	at := account.VoteAddress(l.cfg.Program, topic, provider)
	a, _, err := l.account(ctx, at)
	if err != nil {
		return account.Vote{}, fmt.Errorf("reading the vote of %s: %w", provider, err)
	}
	v, err := account.UnmarshalVote(a.Data)
	if err != nil || a.Owner != l.cfg.Program || v.Provider != provider {
		return account.Vote{}, fmt.Errorf("reading the vote of %s: %w", provider, chain.ErrMalformed)
	}
	return v, nil
}

// Payout reads the accepted payout of a source for an epoch, and the slot of that state, confirmed. It returns
// chain.ErrNotFound if no payout was accepted, or it has ended.
func (l *Accounts) Payout(ctx context.Context, source uint8, epoch uint64) (account.Payout, market.Slot, error) {
	a, slot, err := l.account(ctx, account.PayoutAddress(l.cfg.Program, l.cfg.Network, source, epoch))
	if err != nil {
		return account.Payout{}, slot, fmt.Errorf("reading the rewards of epoch %d: %w", epoch, err)
	}
	p, err := l.payoutAt(a, source, epoch)
	if err != nil {
		return account.Payout{}, slot, fmt.Errorf("reading the rewards of epoch %d: %w", epoch, err)
	}
	return p, slot, nil
}

// Payouts reads the accepted payouts of a source for the epochs from one to another, confirmed; epochs without one are
// left out.
func (l *Accounts) Payouts(ctx context.Context, source uint8, from, to uint64) (map[uint64]account.Payout, error) {
	if l.cfg.Program.IsZero() {
		return nil, errProgram
	}
	out := map[uint64]account.Payout{}
	for ; from <= to; from += lookPage {
		var keys []solanago.PublicKey
		for epoch := from; epoch <= to && len(keys) < lookPage; epoch++ {
			keys = append(keys, solanago.PublicKey(account.PayoutAddress(l.cfg.Program, l.cfg.Network, source, epoch)))
		}
		s, err := l.cluster.Agreed(ctx, rpc.CommitmentConfirmed, keys)
		if err != nil {
			return nil, fmt.Errorf("reading the rewards of epochs from %d: %w", from, err)
		}
		for i, a := range s.Accounts {
			if a.Data == nil {
				continue
			}
			epoch := from + uint64(i)
			p, err := l.payoutAt(a, source, epoch)
			if err != nil {
				return nil, fmt.Errorf("reading the rewards of epoch %d: %w", epoch, err)
			}
			out[epoch] = p
		}
	}
	return out, nil
}

// payoutAt parses the accepted payout of a source for an epoch.
func (l *Accounts) payoutAt(a cluster.Held, source uint8, epoch uint64) (account.Payout, error) {
	p, err := account.UnmarshalPayout(a.Data)
	if err != nil || a.Owner != l.cfg.Program || p.Network != l.cfg.Network || p.Source != source || p.Epoch != epoch {
		return account.Payout{}, chain.ErrMalformed
	}
	return p, nil
}

// Holds is the balance of the token account at an address, confirmed; 0 if it is no token account.
func (l *Accounts) Holds(ctx context.Context, at sign.Key) (uint64, error) {
	accounts, err := l.accounts(ctx, solanago.PublicKey(at))
	if err != nil || accounts[0] == nil || accounts[0].Owner != solanago.TokenProgramID {
		return 0, err
	}
	a, err := decodeTokenAccount(accounts[0].Data.GetBinary())
	return uint64(a.amount), err
}

// account reads an account that the endpoints agree on, confirmed. It returns chain.ErrNotFound if no account is
// at the address.
func (l *Accounts) account(ctx context.Context, at sign.Key) (cluster.Held, market.Slot, error) {
	if l.cfg.Program.IsZero() {
		return cluster.Held{}, 0, errProgram
	}
	s, err := l.cluster.Agreed(ctx, rpc.CommitmentConfirmed, []solanago.PublicKey{solanago.PublicKey(at)})
	if err != nil {
		return cluster.Held{}, 0, err
	}
	if s.Accounts[0].Data == nil {
		return cluster.Held{}, s.Slot, chain.ErrNotFound
	}
	return s.Accounts[0], s.Slot, nil
}
