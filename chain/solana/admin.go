package solana

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Admin sets up tokens and wallets: for local networks, and for an owner that delegates to a peer.
type Admin struct {
	cluster *cluster.Cluster
	payer   sign.Signer // pays every fee and rent
	ledger  *Ledger     // of the payer, for no mint
}

// NewAdmin returns an Admin that pays with the key. It opens no connection.
func NewAdmin(rpcURL string, genesis sign.Hash, payer sign.Signer) (*Admin, error) {
	c, err := cluster.New([]string{rpcURL}, genesis, nil)
	if err != nil {
		return nil, err
	}
	l := newLedgerOf(Config{Key: payer, Fees: chain.DefaultFees()}, c)
	l.mintOK = true // no mint to check
	return &Admin{cluster: c, payer: payer, ledger: l}, nil
}

// CreateMint creates a token at the address of mint's key, which has no use afterwards. The payer's key is the mint
// authority. There is no freeze authority.
func (a *Admin) CreateMint(ctx context.Context, mint sign.Signer, decimals uint8) error {
	payer, address := solanago.PublicKey(a.payer.Key()), solanago.PublicKey(mint.Key())
	create, err := a.createAccount(ctx, address, mintSize, solanago.TokenProgramID)
	if err != nil {
		return fmt.Errorf("creating mint: %w", err)
	}
	initialize := append([]byte{tokenInitializeMint2, decimals}, payer[:]...)
	initialize = append(initialize, 0) // no freeze authority
	err = a.run(ctx, []solanago.Instruction{create,
		solanago.NewInstruction(solanago.TokenProgramID, solanago.AccountMetaSlice{solanago.Meta(address).WRITE()},
			initialize),
	}, mint)
	if err != nil {
		return fmt.Errorf("creating mint: %w", err)
	}
	return nil
}

// Grant is a wallet's initial balance.
type Grant struct {
	To       sign.Key
	Tokens   market.Amount // minted into its token account, which is opened; 0: no account
	Lamports uint64
}

// grantsPerTransaction is a number that fits in any case.
const grantsPerTransaction = 6

// Fund mints tokens and moves lamports to wallets, several to a transaction; not atomic as a whole.
func (a *Admin) Fund(ctx context.Context, mint sign.Key, decimals uint8, grants ...Grant) error {
	payer, token := solanago.PublicKey(a.payer.Key()), solanago.PublicKey(mint)
	for len(grants) > 0 {
		n := min(len(grants), grantsPerTransaction)
		var instructions []solanago.Instruction
		for _, g := range grants[:n] {
			to := solanago.PublicKey(g.To)
			if g.Lamports > 0 {
				data := binary.LittleEndian.AppendUint32(nil, 2) // system program: transfer
				instructions = append(instructions,
					solanago.NewInstruction(solanago.SystemProgramID, solanago.AccountMetaSlice{
						solanago.Meta(payer).WRITE().SIGNER(), solanago.Meta(to).WRITE()},
						binary.LittleEndian.AppendUint64(data, g.Lamports)))
			}
			if g.Tokens > 0 {
				instructions = append(instructions, openTokenAccount(payer, to, token),
					solanago.NewInstruction(solanago.TokenProgramID, solanago.AccountMetaSlice{
						solanago.Meta(token).WRITE(), solanago.Meta(tokenAccountOf(to, token)).WRITE(),
						solanago.Meta(payer).SIGNER(),
					}, amountData(tokenMintToChecked, g.Tokens, decimals)))
			}
		}
		if len(instructions) > 0 {
			if err := a.run(ctx, instructions); err != nil {
				return fmt.Errorf("funding wallets: %w", err)
			}
		}
		grants = grants[n:]
	}
	return nil
}

// Mint makes tokens of which the payer is the mint's authority, into any token account.
func (a *Admin) Mint(ctx context.Context, mint sign.Key, decimals uint8, to sign.Key, amount market.Amount) error {
	err := a.run(ctx, []solanago.Instruction{solanago.NewInstruction(solanago.TokenProgramID, solanago.AccountMetaSlice{
		solanago.Meta(solanago.PublicKey(mint)).WRITE(), solanago.Meta(solanago.PublicKey(to)).WRITE(),
		solanago.Meta(solanago.PublicKey(a.payer.Key())).SIGNER(),
	}, amountData(tokenMintToChecked, amount, decimals))})
	if err != nil {
		return fmt.Errorf("minting into %s: %w", to, err)
	}
	return nil
}

// Approve lets delegate spend an amount of the owner's tokens. It replaces any earlier approval: a token account has
// one delegate.
func (a *Admin) Approve(
	ctx context.Context, mint sign.Key, decimals uint8, owner sign.Signer, delegate sign.Key, amount market.Amount,
) error {
	account := tokenAccountOf(solanago.PublicKey(owner.Key()), solanago.PublicKey(mint))
	err := a.run(ctx, []solanago.Instruction{solanago.NewInstruction(solanago.TokenProgramID, solanago.AccountMetaSlice{
		solanago.Meta(account).WRITE(), solanago.Meta(solanago.PublicKey(mint)),
		solanago.Meta(solanago.PublicKey(delegate)), solanago.Meta(solanago.PublicKey(owner.Key())).SIGNER(),
	}, amountData(tokenApproveChecked, amount, decimals))}, owner)
	if err != nil {
		return fmt.Errorf("approving %s: %w", delegate, err)
	}
	return nil
}

// Supply is how much of a token there is, in base units, confirmed.
func (a *Admin) Supply(ctx context.Context, mint sign.Key) (market.Amount, error) {
	return cluster.Ask(ctx, a.cluster, func(ctx context.Context, c *rpc.Client) (market.Amount, error) {
		_, accounts, err := cluster.ReadAccounts(ctx, c, rpc.CommitmentConfirmed,
			[]solanago.PublicKey{solanago.PublicKey(mint)})
		if err != nil {
			return 0, err
		}
		if accounts[0] == nil || len(accounts[0].Data.GetBinary()) != mintSize {
			return 0, fmt.Errorf("mint %s: %w", mint, chain.ErrMalformed)
		}
		return market.Amount(binary.LittleEndian.Uint64(accounts[0].Data.GetBinary()[36:])), nil
	})
}

// run sends one transaction and waits until it is confirmed.
func (a *Admin) run(ctx context.Context, instructions []solanago.Instruction, signers ...sign.Signer) error {
	_, err := a.ledger.run(ctx, func(retries uint8) (chain.Prepared, error) {
		instructions, err := a.budget(ctx, instructions, retries)
		if err != nil {
			return chain.Prepared{}, err
		}
		now, err := cluster.Ask(ctx, a.cluster, latest)
		if err != nil {
			return chain.Prepared{}, err
		}
		return a.ledger.sign(now, instructions, nil, signers)
	})
	return err
}

// budget adds a transaction's budget. The recent price is requested only when the first transaction was lost: a
// deployment takes hundreds.
func (a *Admin) budget(
	ctx context.Context, instructions []solanago.Instruction, retries uint8,
) ([]solanago.Instruction, error) {
	ours := make([]svm.Instruction, len(instructions))
	for i, in := range instructions {
		data, err := in.Data()
		if err != nil {
			return nil, fmt.Errorf("building transaction: %w", err)
		}
		ours[i] = svm.Instruction{Program: sign.Key(in.ProgramID()), Data: data}
		for _, m := range in.Accounts() {
			ours[i].Accounts = append(ours[i].Accounts,
				svm.Meta{Key: sign.Key(m.PublicKey), Signer: m.IsSigner, Writable: m.IsWritable})
		}
	}
	if retries == 0 {
		units := program.Units(a.ledger.Wallet.cfg.Program, ours)
		return slices.Concat(instructions, transaction.Library(svm.Budget(units,
			a.ledger.Wallet.cfg.Fees.Price(0, 0, units, a.ledger.Wallet.cfg.Fees.Most)))), nil
	}
	bid, err := a.ledger.bid(ctx, ours, a.ledger.Wallet.cfg.Fees.Most, retries)
	if err != nil {
		return nil, err
	}
	return slices.Concat(instructions, transaction.Library(bid[len(ours):])), nil
}

// rawTransaction is the wire form in the text that RPC servers take.
func rawTransaction(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }
