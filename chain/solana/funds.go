package solana

import (
	"context"
	"fmt"
	"sync"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Wallet is the configured key on the chain: its funds, and the transactions that it signs and sends.
type Wallet struct {
	*base
	mint   solanago.PublicKey
	payer  solanago.PublicKey
	owner  solanago.PublicKey
	source solanago.PublicKey // the owner's token account

	mu     sync.Mutex
	mintOK bool
}

// Balance is the balance of the wallet's associated token account, confirmed; 0 if it has none.
func (l *Wallet) Balance(ctx context.Context, owner sign.Key) (market.Amount, error) {
	accounts, err := l.accounts(ctx, tokenAccountOf(solanago.PublicKey(owner), l.mint))
	if err != nil || accounts[0] == nil {
		return 0, err
	}
	held, err := decodeTokenAccount(accounts[0].Data.GetBinary())
	return held.amount, err
}

// Funds returns the key's spendable funds, confirmed.
func (l *Wallet) Funds(ctx context.Context) (chain.Funds, error) {
	if !l.delegated() {
		accounts, err := l.accounts(ctx, l.source, l.payer)
		if err != nil {
			return chain.Funds{}, err
		}
		return l.funds(accounts[0], accounts[1])
	}
	accounts, err := l.accounts(ctx, l.source, l.payer, tokenAccountOf(l.payer, l.mint))
	if err != nil {
		return chain.Funds{}, err
	}
	f, err := l.funds(accounts[0], accounts[1])
	if err != nil || accounts[2] == nil {
		return f, err
	}
	own, err := decodeTokenAccount(accounts[2].Data.GetBinary())
	if err != nil || own.owner != l.cfg.Key.Key() || own.mint != l.cfg.Mint || own.frozen {
		return f, err
	}
	f.Own = own.amount
	f.Spendable += own.amount
	return f, nil
}

func (l *Wallet) funds(source, payer *rpc.Account) (chain.Funds, error) {
	var f chain.Funds
	if payer != nil {
		f.Lamports = payer.Lamports
	}
	if source == nil {
		return f, nil
	}
	held, err := decodeTokenAccount(source.Data.GetBinary())
	switch {
	case err != nil:
		return f, err
	case held.mint != l.cfg.Mint:
		return f, fmt.Errorf("account %s holds mint %s, not %s: %w", l.source, held.mint, l.mint, chain.ErrMint)
	case held.frozen:
		return f, fmt.Errorf("account %s is frozen by the mint's authority: %w", l.source, chain.ErrAllowance)
	}
	f.Balance = held.amount
	if held.owner == l.cfg.Key.Key() {
		f.Spendable = held.amount
	} else if held.delegate == l.cfg.Key.Key() {
		f.Spendable = min(held.amount, held.delegated)
	}
	return f, nil
}

// Check tests the ledger's configuration. It returns chain.ErrDown unless an endpoint answers and serves the right
// cluster, and chain.ErrMint unless the mint exists with these decimals. It does not check funds; see Funds.
func (l *Wallet) Check(ctx context.Context) error {
	l.mu.Lock()
	ok := l.mintOK
	l.mu.Unlock()
	if ok {
		return nil
	}
	accounts, err := l.accounts(ctx, l.mint)
	if err != nil {
		return err
	}
	if accounts[0] == nil {
		return fmt.Errorf("no account %s on this chain: %w", l.mint, chain.ErrMint)
	}
	if accounts[0].Owner != solanago.TokenProgramID {
		return fmt.Errorf("account %s belongs to program %s, not to the token program: %w",
			l.mint, accounts[0].Owner, chain.ErrMint)
	}
	decimals, err := decodeMint(accounts[0].Data.GetBinary())
	if err != nil {
		return fmt.Errorf("mint %s: %w", l.mint, err)
	}
	if decimals != l.cfg.Decimals {
		return fmt.Errorf("mint %s: %d decimals, the network has %d: %w",
			l.mint, decimals, l.cfg.Decimals, chain.ErrMint)
	}
	l.mu.Lock()
	l.mintOK = true
	l.mu.Unlock()
	return nil
}

// A key that spends its owner's tokens sets money aside from its own token account, which also receives refunds.
// Transfers from the owner's account into its own use up the owner's allowance: so only spent money counts, not money
// set aside.

// delegated reports whether the key spends the tokens of another one.
func (l *Wallet) delegated() bool { return l.owner != l.payer }

// Provide ensures that the key's own token account holds need base units: the missing part comes from the owner's
// account. It returns when that is confirmed. It returns chain.ErrAllowance if the owner has or allows too little, and
// chain.ErrFees.
func (l *Wallet) Provide(ctx context.Context, need market.Amount) error {
	if !l.delegated() {
		return nil
	}
	f, err := l.Funds(ctx)
	if err != nil {
		return err
	}
	if f.Own >= need {
		return nil
	}
	missing := need - f.Own
	if allowed := f.Spendable - f.Own; allowed < missing {
		return fmt.Errorf("owner %s holds %s and lets %s spend %s of it, %s more are needed: %w",
			l.owner, l.text(f.Balance), l.payer, l.text(allowed), l.text(missing), chain.ErrAllowance)
	}
	key := l.cfg.Key.Key()
	_, err = l.Run(ctx, []svm.Instruction{
		svm.OpenTokenAccount(key, key, l.cfg.Mint),
		svm.TransferTokens(sign.Key(l.source), svm.TokenAccount(key, l.cfg.Mint), l.cfg.Mint, key,
			uint64(missing), l.cfg.Decimals),
	})
	if err != nil {
		return fmt.Errorf("taking %s from the owner's account: %w", l.text(missing), err)
	}
	return nil
}

// text writes an amount in whole tokens.
func (l *Wallet) text(a market.Amount) string { return market.Decimal(uint64(a), l.cfg.Decimals) }
