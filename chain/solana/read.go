package solana

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Provider reads the registration of a provider by its peer key, and the slot of that state, confirmed. It returns
// chain.ErrNotFound if it never registered on this network.
func (l *Accounts) Provider(ctx context.Context, peer sign.Key) (account.Provider, market.Slot, error) {
	if l.cfg.Program.IsZero() {
		return account.Provider{}, 0, errProgram
	}
	at := account.ProviderAddress(l.cfg.Program, l.cfg.Network, peer)
	s, err := l.cluster.Agreed(ctx, rpc.CommitmentConfirmed, []solanago.PublicKey{solanago.PublicKey(at)})
	if err != nil {
		return account.Provider{}, 0, fmt.Errorf("reading the registration of %s: %w", peer, err)
	}
	a := s.Accounts[0]
	if a.Data == nil {
		return account.Provider{}, s.Slot, fmt.Errorf("the registration of %s: %w", peer, chain.ErrNotFound)
	}
	p, err := account.UnmarshalProvider(a.Data)
	if err != nil || a.Owner != l.cfg.Program || p.Network != l.cfg.Network || p.Peer != peer {
		return account.Provider{}, 0, fmt.Errorf("the registration of %s: %w", peer, chain.ErrMalformed)
	}
	return p, s.Slot, nil
}

// Found is an escrow and its address.
type Found struct {
	Address sign.Key
	account.Escrow
}

// Where accounts name their network, and an escrow's its buyer: PROTOCOL.md of chain/program.
const (
	networkAt     = 8
	escrowBuyerAt = 40
)

// Escrows returns all escrows of a buyer on this network, in the order of opening, from one endpoint. The endpoint may
// omit some; a false one would be refused by Look. Many public endpoints do not answer this.
func (l *Accounts) Escrows(ctx context.Context, buyer sign.Key) ([]Found, error) {
	if l.cfg.Program.IsZero() {
		return nil, errProgram
	}
	accounts, err := l.list(ctx, rpc.CommitmentConfirmed,
		rpc.RPCFilter{Memcmp: &rpc.RPCFilterMemcmp{Offset: escrowBuyerAt, Bytes: buyer[:]}})
	if err != nil {
		return nil, fmt.Errorf("listing escrows of %s: %w", buyer, err)
	}
	var found []Found
	for _, a := range accounts {
		e, err := l.escrowAt(a.at, a.Held)
		if err == nil && e.Buyer == buyer { // another kind of account may have these bytes there
			found = append(found, Found{a.at, e})
		}
	}
	slices.SortFunc(found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Opened, b.Opened), slices.Compare(a.Order[:], b.Order[:]))
	})
	return found, nil
}

// Anchored reads the anchor of a batch root of receipts by an authority, confirmed. It returns chain.ErrNotFound if
// the root is not anchored.
func (l *Accounts) Anchored(ctx context.Context, authority sign.Key, root sign.Hash) (account.Anchored, error) {
	if l.cfg.Program.IsZero() {
		return account.Anchored{}, errProgram
	}
	at := account.AnchorAddress(l.cfg.Program, authority, root)
	s, err := l.cluster.Agreed(ctx, rpc.CommitmentConfirmed, []solanago.PublicKey{solanago.PublicKey(at)})
	if err != nil {
		return account.Anchored{}, fmt.Errorf("reading the anchor of %s by %s: %w", root.Short(), authority, err)
	}
	a := s.Accounts[0]
	if a.Data == nil {
		return account.Anchored{}, fmt.Errorf("an anchor of %s by %s: %w", root.Short(), authority, chain.ErrNotFound)
	}
	anchored, err := account.UnmarshalAnchored(a.Data)
	if err != nil || a.Owner != l.cfg.Program || anchored.Authority != authority || anchored.Root != root {
		return account.Anchored{}, fmt.Errorf("the anchor of %s by %s: %w", root.Short(), authority, chain.ErrMalformed)
	}
	return anchored, nil
}

// Providers returns all final registrations on this network, in the order of their addresses, from one endpoint. The
// endpoint may omit some, and cannot invent one at a wrong address. Committees and rewards are drawn from them, so
// peers must not count a bond that a fork takes back. Many public endpoints do not answer this.
func (l *Accounts) Providers(ctx context.Context) ([]account.Provider, error) {
	if l.cfg.Program.IsZero() {
		return nil, errProgram
	}
	accounts, err := l.list(ctx, rpc.CommitmentFinalized, rpc.RPCFilter{DataSize: account.ProviderSize})
	if err != nil {
		return nil, fmt.Errorf("listing registrations: %w", err)
	}
	var out []account.Provider
	for _, a := range accounts {
		p, err := account.UnmarshalProvider(a.Data)
		at := account.ProviderAddress(l.cfg.Program, l.cfg.Network, p.Peer)
		if err == nil && a.at == at && a.Owner == l.cfg.Program && p.Network == l.cfg.Network {
			out = append(out, p)
		}
	}
	return out, nil
}

// listed is an account that an endpoint listed.
type listed struct {
	at sign.Key
	cluster.Held
}

// list returns those accounts of the program that name this network and pass a filter, in the order of their addresses,
// as one endpoint lists them. The caller checks content and owner.
func (l *Accounts) list(ctx context.Context, level rpc.CommitmentType, filter rpc.RPCFilter) ([]listed, error) {
	all, err := cluster.Ask(ctx, l.cluster, func(
		ctx context.Context, c *rpc.Client,
	) (rpc.GetProgramAccountsResult, error) {
		return c.GetProgramAccountsWithOpts(ctx, solanago.PublicKey(l.cfg.Program), &rpc.GetProgramAccountsOpts{
			Encoding: solanago.EncodingBase64, Commitment: level, Filters: []rpc.RPCFilter{
				{Memcmp: &rpc.RPCFilterMemcmp{Offset: networkAt, Bytes: l.cfg.Network[:]}}, filter,
			}})
	})
	if err != nil && !errors.Is(err, rpc.ErrNotFound) {
		return nil, err
	}
	out := make([]listed, len(all))
	for i, a := range all {
		if a == nil || a.Account == nil || a.Account.Data == nil {
			return nil, chain.ErrMalformed
		}
		out[i] = listed{sign.Key(a.Pubkey),
			cluster.Held{Owner: sign.Key(a.Account.Owner), Data: a.Account.Data.GetBinary()}}
	}
	slices.SortFunc(out, func(a, b listed) int { return slices.Compare(a.at[:], b.at[:]) })
	return out, nil
}
