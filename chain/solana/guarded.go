package solana

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Guarded reads a final claim of this network under a voucher of several keys, if an endpoint still has its
// transaction; escrow and tranche may be closed since. It returns chain.ErrNotFound if no endpoint has it,
// and chain.ErrMalformed if the transaction is not such a claim.
func (l *History) Guarded(ctx context.Context, id sign.Signature) (rewards.Guarded, error) {
	if l.cfg.Program.IsZero() {
		return rewards.Guarded{}, errProgram
	}
	tx, out, err := l.final(ctx, chain.TxID(id.String()))
	if err != nil {
		return rewards.Guarded{}, err
	}
	g, err := guardedIn(tx, out.Meta, l.cfg.Program, l.cfg.Network)
	if err != nil {
		return rewards.Guarded{}, fmt.Errorf("transaction %s: %w", id, err)
	}
	g.ID, g.Slot = id, market.Slot(out.Slot)
	return g, nil
}

// Naming returns the final, successful transactions that name an account, from slot from, newest first, at most the
// given number. Endpoints keep them after the account is closed.
func (l *History) Naming(ctx context.Context, account sign.Key, from market.Slot, most int) ([]sign.Signature, error) {
	const page = 1000
	limit := page
	var out []sign.Signature
	var before solanago.Signature
	for {
		found, err := cluster.Ask(ctx, l.cluster, func(
			ctx context.Context, c *rpc.Client,
		) ([]*rpc.TransactionSignature, error) {
			return c.GetSignaturesForAddressWithOpts(ctx, solanago.PublicKey(account),
				&rpc.GetSignaturesForAddressOpts{Limit: &limit, Before: before, Commitment: rpc.CommitmentFinalized})
		})
		if err != nil {
			return nil, fmt.Errorf("transactions that name %s: %w", account, err)
		}
		for _, x := range found {
			if x == nil || x.Signature == before || x.Slot < uint64(from) {
				return out, nil
			}
			if before = x.Signature; x.Err != nil {
				continue
			}
			if out = append(out, sign.Signature(x.Signature)); len(out) == most {
				return out, nil
			}
		}
		if len(found) < page {
			return out, nil
		}
	}
}

// harmless are the programs that may be called beside the claim. None of them calls Starling's, so the claim received
// all tokens that left the escrow's vault.
var harmless = []solanago.PublicKey{
	solanago.SystemProgramID, solanago.ComputeBudget, solanago.SPLAssociatedTokenAccountProgramID,
	solanago.MemoProgramID, solanago.PublicKey(svm.Ed25519Program),
}

// guardedIn returns the claim of a successful transaction. Its only call of the program is a claim for this network,
// and it calls no program that could call it.
func guardedIn(tx *solanago.Transaction, meta *rpc.TransactionMeta, at, network sign.Key) (rewards.Guarded, error) {
	no := func(why string) (rewards.Guarded, error) {
		return rewards.Guarded{}, fmt.Errorf("%w: no guarded claim: %s", chain.ErrMalformed, why)
	}
	keys := slices.Concat(tx.Message.AccountKeys, meta.LoadedAddresses.Writable, meta.LoadedAddresses.ReadOnly)
	calls := make([]svm.Instruction, len(tx.Message.Instructions))
	claims := -1
	for i, in := range tx.Message.Instructions {
		if int(in.ProgramIDIndex) >= len(keys) {
			return no("accounts are missing")
		}
		by := keys[in.ProgramIDIndex]
		calls[i] = svm.Instruction{Program: sign.Key(by), Data: in.Data}
		for _, a := range in.Accounts {
			if int(a) >= len(keys) {
				return no("accounts are missing")
			}
			calls[i].Accounts = append(calls[i].Accounts,
				svm.Meta{Key: sign.Key(keys[a]), Signer: true, Writable: true})
		}
		switch {
		case sign.Key(by) == at && claims < 0:
			claims = i
		case sign.Key(by) == at || !slices.Contains(harmless, by):
			return no("more calls than one claim")
		}
	}
	if claims < 0 {
		return no("no call of the program")
	}
	call, ed, err := program.ParseCall(at, calls[claims])
	c, ok := call.(program.Claim)
	if err != nil || !ok || c.Network != network || ed < 0 || ed >= len(calls) {
		return no("not a claim of this network")
	}
	signed, ok := svm.ParseSigned(calls[ed])
	if !ok || len(signed.Message) < verify.VoucherSize {
		return no("no voucher")
	}
	v, err := verify.UnmarshalVoucher(signed.Message[len(signed.Message)-verify.VoucherSize:])
	if err != nil || v.Escrow != c.Escrow {
		return no("no voucher of its escrow")
	}
	vault := slices.Index(keys, solanago.PublicKey(c.Vault))
	before, ok1 := holding(meta.PreTokenBalances, vault, c.Mint)
	after, ok2 := holding(meta.PostTokenBalances, vault, c.Mint)
	if !ok1 || !ok2 || after >= before || before-after > uint64(v.Cumulative) {
		return no("no payment from its vault")
	}
	g := rewards.Guarded{Mint: c.Mint, Net: before - after, Keys: signed.Keys}
	if !g.Counts() {
		return no("voucher with one key")
	}
	return g, nil
}

// holding is the balance of an account of a transaction in a mint.
func holding(bs []rpc.TokenBalance, account int, mint sign.Key) (uint64, bool) {
	i := slices.IndexFunc(bs, func(b rpc.TokenBalance) bool {
		return int(b.AccountIndex) == account && sign.Key(b.Mint) == mint
	})
	if i < 0 || bs[i].UiTokenAmount == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(bs[i].UiTokenAmount.Amount, 10, 64)
	return n, err == nil
}
