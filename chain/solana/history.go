package solana

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// History reads final transactions, while an endpoint keeps them.
type History struct{ *base }

// Memo reads the first memo of a final transaction that did not fail, from the first endpoint that answers.
func (l *History) Memo(ctx context.Context, id chain.TxID) ([]byte, market.Slot, error) {
	tx, slot, err := l.landed(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	text, ok := memoIn(tx)
	if !ok {
		return nil, 0, fmt.Errorf("transaction %s: memo: %w", id, chain.ErrNotFound)
	}
	return text, slot, nil
}

// AnchorIn reads the first root that a final, successful transaction anchored, while an endpoint keeps the transaction;
// the account may be closed since. It returns chain.ErrNotFound if there is no such transaction or root.
func (l *History) AnchorIn(ctx context.Context, id chain.TxID) (account.Anchored, error) {
	if l.cfg.Program.IsZero() {
		return account.Anchored{}, errProgram
	}
	tx, slot, err := l.landed(ctx, id)
	if err != nil {
		return account.Anchored{}, err
	}
	a, ok := anchorIn(tx, l.cfg.Program)
	if !ok {
		return account.Anchored{}, fmt.Errorf("transaction %s: anchor: %w", id, chain.ErrNotFound)
	}
	return account.Anchored{Authority: a.Authority, Root: a.Root, Count: a.Count, Slot: uint64(slot)}, nil
}

func memoIn(tx *solanago.Transaction) ([]byte, bool) {
	for _, in := range tx.Message.Instructions {
		if by, err := tx.Message.Program(in.ProgramIDIndex); err == nil && by == solanago.MemoProgramID &&
			len(in.Data) > 0 && len(in.Data) <= chain.MaxMemo {
			return bytes.Clone(in.Data), true
		}
	}
	return nil, false
}

func anchorIn(tx *solanago.Transaction, at sign.Key) (program.Anchor, bool) {
	signed := tx.Message.AccountKeys[:len(tx.Signatures)]
	for _, in := range tx.Message.Instructions {
		if a, ok := program.ParseAnchor(at, static(tx.Message, in)); ok &&
			slices.Contains(signed, solanago.PublicKey(a.Authority)) {
			return a, true
		}
	}
	return program.Anchor{}, false
}

// static returns an instruction whose accounts are all in the message itself; the zero value if some are in lookup
// tables.
func static(m solanago.Message, in solanago.CompiledInstruction) (out svm.Instruction) {
	if int(in.ProgramIDIndex) >= len(m.AccountKeys) {
		return svm.Instruction{}
	}
	out = svm.Instruction{Program: sign.Key(m.AccountKeys[in.ProgramIDIndex]), Data: in.Data}
	for _, i := range in.Accounts {
		if int(i) >= len(m.AccountKeys) {
			return svm.Instruction{}
		}
		out.Accounts = append(out.Accounts, svm.Meta{Key: sign.Key(m.AccountKeys[i])})
	}
	return out
}

// landed reads a final transaction that did not fail, and its slot.
func (l *History) landed(ctx context.Context, id chain.TxID) (*solanago.Transaction, market.Slot, error) {
	tx, out, err := l.final(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	return tx, market.Slot(out.Slot), nil
}

// final reads a final transaction that did not fail, from the first endpoint that answers. The endpoint is trusted only
// for the landing and for account states: the signatures must hold, and the first be the requested one.
func (l *History) final(ctx context.Context, id chain.TxID) (*solanago.Transaction, *rpc.GetTransactionResult, error) {
	signature, err := solanago.SignatureFromBase58(string(id))
	if err != nil {
		return nil, nil, fmt.Errorf("transaction id %q: %w", id, chain.ErrNotFound)
	}
	version := uint64(0)
	out, err := cluster.Ask(ctx, l.cluster, func(
		ctx context.Context, c *rpc.Client,
	) (*rpc.GetTransactionResult, error) {
		return c.GetTransaction(ctx, signature, &rpc.GetTransactionOpts{Encoding: solanago.EncodingBase64,
			Commitment: rpc.CommitmentFinalized, MaxSupportedTransactionVersion: &version})
	})
	if errors.Is(err, rpc.ErrNotFound) {
		return nil, nil, fmt.Errorf("transaction %s: %w", id, chain.ErrNotFound)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading transaction %s: %w", id, err)
	}
	if out.Meta == nil || out.Meta.Err != nil || out.Transaction == nil {
		return nil, nil, fmt.Errorf("transaction %s had no effect: %w", id, chain.ErrNotFound)
	}
	tx, err := transaction.ParseSigned(out.Transaction.GetBinary(), signature)
	if err != nil {
		return nil, nil, fmt.Errorf("transaction %s: %w", id, err)
	}
	return tx, out, nil
}
