package proof

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Chain reads anchors; chain/solana has one.
type Chain interface {
	// Memos reads memos of final transactions, in which audit records are anchored.
	chain.Memos
	// Anchored reads an anchor's account of the network's program. It returns chain.ErrNotFound if it does not exist,
	// or no longer.
	Anchored(ctx context.Context, authority sign.Key, root sign.Hash) (account.Anchored, error)
	// AnchorIn returns chain.ErrNotFound.
	ProgramAnchors
}

// Anchored is an account of the network's program that commits to exactly the receipts of a Verdict.
type Anchored struct {
	By   sign.Key    `json:"by"`
	Slot market.Slot `json:"slot"`
}

// CheckAnchors checks on the chain that every transaction of the proof commits to exactly the receipts of the Verdict,
// by the network's program. On a free network a proof with transactions is refused. The errors are *BrokenRule and
// ErrChain.
func (v *Verdict) CheckAnchors(ctx context.Context, c Chain) error {
	if v.Genesis.Free {
		if len(v.Transactions) > 0 {
			return broken(RuleAnchor, "transaction "+string(v.Transactions[0].ID),
				errors.New("a free network has no transactions"))
		}
		v.Chain = "none: the network is free, its receipts are not anchored"
		return nil
	}
	if err := v.accounts(ctx, c); err != nil {
		return err
	}
	for i := range v.Transactions {
		tx := &v.Transactions[i]
		if err := v.call(ctx, c, tx, "transaction "+string(tx.ID)); err != nil {
			return err
		}
	}
	switch {
	case len(v.Anchors) > 0:
		v.Chain = "checked: the program has these receipts' root"
	case len(v.Transactions) > 0:
		v.Chain = "checked: the program wrote down these receipts' root"
	default:
		v.Chain = "checked: neither the buyer nor a provider has anchored these receipts"
	}
	return nil
}

// call checks a transaction that called the program, and completes it. Where an endpoint does not have the transaction,
// the account that the buyer still has will do.
func (v *Verdict) call(ctx context.Context, c Chain, tx *TxVerdict, where string) error {
	a, err := c.AnchorIn(ctx, tx.ID)
	i := slices.IndexFunc(v.Anchors, func(a Anchored) bool { return a.By == v.author() })
	switch {
	case errors.Is(err, chain.ErrNotFound) && i >= 0:
		tx.Slot, tx.Anchor = v.Anchors[i].Slot, "not found, but the buyer's account matches"
		return nil
	case err != nil:
		return unread(where, err)
	case a.Authority != v.author():
		return broken(RuleAnchor, where, fmt.Errorf("authority %s, want the buyer %s", a.Authority, v.author()))
	}
	tx.Slot, tx.Anchor = market.Slot(a.Slot), "matches"
	return v.commits(where, a.Root, a.Count)
}

// AnchorIn reads the receipts that a final transaction had the network's program anchor. It returns chain.ErrNotFound,
// chain.ErrMalformed, and the ledger's errors.
func AnchorIn(ctx context.Context, c ProgramAnchors, tx chain.TxID) (chain.Commitment, error) {
	a, err := c.AnchorIn(ctx, tx)
	of := chain.Anchor{Of: chain.OfReceipts, Root: a.Root, Count: a.Count}
	return chain.Commitment{Anchor: of, Slot: market.Slot(a.Slot), By: a.Authority}, err
}

// ProgramAnchors reads the anchor that a final transaction made, which outlives its account.
type ProgramAnchors interface {
	AnchorIn(ctx context.Context, id chain.TxID) (account.Anchored, error)
}

// unread distinguishes a chain without the transaction from an unreachable one.
func unread(where string, err error) error {
	if errors.Is(err, chain.ErrNotFound) {
		return broken(RuleLanded, where, err)
	}
	return fmt.Errorf("%w: %w", ErrChain, err)
}

func (v *Verdict) commits(where string, root sign.Hash, count uint64) error {
	if root == v.Root && count == uint64(v.Receipts) {
		return nil
	}
	return broken(RuleAnchor, where, fmt.Errorf("commits to %d receipts under root %s, these are %d under %s", count,
		root.Short(), v.Receipts, v.Root.Short()))
}

// accounts finds the accounts in which the buyer or one of the providers has the root of the Verdict's receipts. An
// account has their root and their number. Anchoring is optional: the program pays vouchers.
func (v *Verdict) accounts(ctx context.Context, c Chain) error {
	if v.Receipts == 0 {
		return nil
	}
	by := []sign.Key{v.author()}
	for _, lease := range v.Leases {
		if !slices.Contains(by, lease.Provider) {
			by = append(by, lease.Provider)
		}
	}
	for _, k := range by {
		a, err := c.Anchored(ctx, k, v.Root)
		if errors.Is(err, chain.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrChain, err)
		}
		if err := v.commits("anchor of "+k.String(), a.Root, a.Count); err != nil {
			return err
		}
		v.Anchors = append(v.Anchors, Anchored{k, market.Slot(a.Slot)})
	}
	return nil
}

// author is the peer that anchors for the buyer.
func (v *Verdict) author() sign.Key {
	if v.Owner.IsZero() {
		return v.Buyer
	}
	return v.Owner
}
