package solana

import (
	"context"
	"fmt"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// lookPage is the number of tranches read at once: the limit of one getMultipleAccounts, less escrow and vault.
const lookPage = 98

var errProgram = fmt.Errorf("solana: %w: the network has no program", cluster.ErrConfig)

// Accounts reads the accounts of the network's program, and the token accounts of its parties.
type Accounts struct{ *base }

// commitment is the chain's word for a level.
func commitment(level escrow.Level) rpc.CommitmentType {
	if level == escrow.Finalized {
		return rpc.CommitmentFinalized
	}
	return rpc.CommitmentConfirmed
}

// Look implements escrow.Ledger. At one level, a Look's slot is never earlier than the slot of a Look that returned
// before it began. It returns chain.ErrMalformed if the account is not an escrow of this network. More than 98 tranches
// are read in parts, between which neither escrow nor vault changed. That suffices: moving money of a tranche changes
// its escrow, and its sums never return to earlier values.
func (l *Accounts) Look(ctx context.Context, at sign.Key, tranches []uint16, level escrow.Level) (escrow.View, error) {
	if l.cfg.Program.IsZero() {
		return escrow.View{}, errProgram
	}
	if level != escrow.Confirmed && level != escrow.Finalized {
		return escrow.View{}, fmt.Errorf("solana: %w: a look of level %d", cluster.ErrConfig, level)
	}
	s, err := l.whole(ctx, at, tranches, level)
	if err != nil {
		return escrow.View{}, fmt.Errorf("looking at escrow %s: %w", at, err)
	}
	v, err := l.view(at, s, tranches)
	if err != nil {
		return escrow.View{}, fmt.Errorf("looking at escrow %s: %w", at, err)
	}
	return v, nil
}

// whole reads escrow, vault and tranches, in as many parts as it takes.
func (l *Accounts) whole(
	ctx context.Context, at sign.Key, tranches []uint16, level escrow.Level,
) (cluster.Sight, error) {
	for range cluster.Rounds {
		s, still, err := l.parts(ctx, at, tranches, level)
		if err != nil || still {
			return s, err
		}
	}
	return cluster.Sight{}, fmt.Errorf("escrow: changed during the read of its %d tranches; try again: %w",
		len(tranches), chain.ErrDown)
}

// parts reads them once; still is false if escrow or vault changed during the read.
func (l *Accounts) parts(
	ctx context.Context, at sign.Key, tranches []uint16, level escrow.Level,
) (s cluster.Sight, still bool, err error) {
	for first := 0; first == 0 || first < len(tranches); first += lookPage {
		keys := []solanago.PublicKey{solanago.PublicKey(at),
			solanago.PublicKey(account.VaultAddress(l.cfg.Program, at))}
		for _, i := range tranches[first:min(first+lookPage, len(tranches))] {
			keys = append(keys, solanago.PublicKey(account.TrancheAddress(l.cfg.Program, at, i)))
		}
		part, err := l.cluster.Agreed(ctx, commitment(level), keys)
		if err != nil {
			return cluster.Sight{}, false, err
		}
		if first == 0 {
			s = part
			continue
		}
		if !(cluster.Sight{Accounts: s.Accounts[:2]}).Equal(cluster.Sight{Accounts: part.Accounts[:2]}) {
			return cluster.Sight{}, false, nil
		}
		s.Accounts = append(s.Accounts, part.Accounts[2:]...)
	}
	return s, true, nil
}

// view parses the agreed accounts: escrow, vault, tranches.
func (l *Accounts) view(at sign.Key, s cluster.Sight, tranches []uint16) (escrow.View, error) {
	v := escrow.View{Slot: s.Slot, Tranches: map[uint16]account.Tranche{}}
	if s.Accounts[0].Data == nil {
		return v, nil
	}
	e, err := l.escrowAt(at, s.Accounts[0])
	if err != nil {
		return escrow.View{}, err
	}
	vault, err := svm.UnmarshalToken(s.Accounts[1].Data)
	if err != nil || s.Accounts[1].Owner != svm.TokenProgram || vault.Mint != e.Mint || vault.Owner != at {
		return escrow.View{}, fmt.Errorf("vault of escrow %s: account of program %s, want its token account: %w",
			at, s.Accounts[1].Owner, chain.ErrMalformed)
	}
	v.Escrow, v.Vault = &e, market.Amount(vault.Amount)
	for i, index := range tranches {
		a := s.Accounts[2+i]
		if a.Data == nil {
			continue
		}
		t, err := account.UnmarshalTranche(a.Data)
		if err != nil || a.Owner != l.cfg.Program || t.Escrow != at || t.Index != index {
			return escrow.View{}, fmt.Errorf("tranche %d of escrow %s: not a tranche of that number: %w",
				index, at, chain.ErrMalformed)
		}
		v.Tranches[index] = t
	}
	return v, nil
}

// escrowAt parses an escrow of this network, and checks that its address follows from its content.
func (l *Accounts) escrowAt(at sign.Key, a cluster.Held) (account.Escrow, error) {
	e, err := account.UnmarshalEscrow(a.Data)
	if err != nil || a.Owner != l.cfg.Program || e.Vault != account.VaultAddress(l.cfg.Program, at) ||
		at != account.EscrowAddress(l.cfg.Program, e.Network, e.Buyer, sign.Hash(e.Order), e.Opened) {
		return account.Escrow{}, fmt.Errorf("account %s is no escrow of program %s: %w",
			at, l.cfg.Program, chain.ErrMalformed)
	}
	if e.Network != l.cfg.Network {
		return account.Escrow{}, fmt.Errorf("escrow %s is of another network (%s): %w",
			at, e.Network, chain.ErrMalformed)
	}
	return e, nil
}

// Network reads the network's account, confirmed. Its address is in the genesis and commits to its parameters. It
// returns chain.ErrNotFound if the account does not exist.
func (l *Accounts) Network(ctx context.Context) (account.Network, error) {
	if l.cfg.Program.IsZero() {
		return account.Network{}, errProgram
	}
	s, err := l.cluster.Agreed(ctx, rpc.CommitmentConfirmed, []solanago.PublicKey{solanago.PublicKey(l.cfg.Network)})
	if err != nil {
		return account.Network{}, fmt.Errorf("reading the network's account: %w", err)
	}
	a := s.Accounts[0]
	if a.Data == nil {
		return account.Network{}, fmt.Errorf("the network's account %s: %w", l.cfg.Network, chain.ErrNotFound)
	}
	n, err := account.UnmarshalNetwork(a.Data)
	if err != nil || a.Owner != l.cfg.Program || account.NetworkAddress(l.cfg.Program, n.Params) != l.cfg.Network ||
		n.Params.Chain != l.cfg.Genesis && !l.cfg.Genesis.IsZero() {
		return account.Network{}, fmt.Errorf("account %s is not this network's: %w", l.cfg.Network, chain.ErrMalformed)
	}
	return n, nil
}
