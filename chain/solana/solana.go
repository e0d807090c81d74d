// Package solana is the Ledger on a Solana cluster. It calls Starling's program (chain/program), reads the program's
// accounts, and writes memos.
//
// The peer's key signs and pays the fees. The tokens are its own, or those of an owner (a cold wallet) that delegated a
// stated amount to it with the token program's approve.
//
// Of several RPC endpoints two must agree before a transaction is held to be final or expired; one that serves another
// cluster is never asked. Endpoints appear in errors and logs by host only, since their paths often hold secrets.
package solana

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/solana/calls"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Config of a Ledger.
type Config struct {
	RPC      []string    // URLs, at least one; asked in this order
	Genesis  sign.Hash   // of the cluster; an endpoint with another is refused. Zero: not checked
	Key      sign.Signer // signs, pays fees, and is the owner or its delegate
	Owner    sign.Key    // owner of the tokens to spend; zero: Key's
	Mint     sign.Key    // SPL token (the classic token program)
	Decimals uint8       // of the mint, checked against the chain
	Program  sign.Key    // Starling's program; zero: none is called
	Network  sign.Key    // the program's account of the network; zero when Program is
	Fees     chain.Fees  // bids for a place in a block; zero: chain.DefaultFees

	// Transport carries the calls; nil means HTTP. With another one the URLs only name the endpoints to it.
	Transport http.RoundTripper
}

// ConfigOf is the configuration of a key on a network's chain.
func ConfigOf(rpc []string, g market.Genesis, key sign.Signer) Config {
	return Config{RPC: rpc, Genesis: g.Chain, Key: key, Mint: g.Mint, Decimals: g.Decimals, Program: g.Program,
		Network: g.Escrow}
}

// NewReader is a Ledger that looks at a network's chain without a wallet: it signs with a key that owns nothing.
func NewReader(rpc []string, g market.Genesis) (*Ledger, error) {
	return New(ConfigOf(rpc, g, sign.NewPrivate([32]byte{1})))
}

// Ledger implements chain.Ledger, chain.MemoLedger and escrow.Ledger. Safe for concurrent use; it holds no connection
// open that needs closing.
type Ledger struct {
	*calls.Meter // of its calls
	cfg          Config
	pool         *pool
	mint         solanago.PublicKey
	payer        solanago.PublicKey
	owner        solanago.PublicKey
	source       solanago.PublicKey // the owner's token account

	mu     sync.Mutex
	mintOK bool
	seen   [escrow.Finalized + 1]market.Slot // newest slot that was believed, by level
}

var (
	_ chain.Ledger     = (*Ledger)(nil)
	_ chain.MemoLedger = (*Ledger)(nil)
	_ chain.Blocks     = (*Ledger)(nil)
	_ escrow.Ledger    = (*Ledger)(nil)
)

// New checks the configuration. It connects to nothing; see Check.
func New(cfg Config) (*Ledger, error) {
	if cfg.Key == nil || cfg.Mint.IsZero() {
		return nil, fmt.Errorf("solana: %w: a key and a mint are needed", errConfig)
	}
	if cfg.Program.IsZero() != cfg.Network.IsZero() {
		return nil, fmt.Errorf("solana: %w: program and network account are both set, or neither is", errConfig)
	}
	if cfg.Owner.IsZero() {
		cfg.Owner = cfg.Key.Key()
	}
	if cfg.Fees == (chain.Fees{}) {
		cfg.Fees = chain.DefaultFees()
	}
	pool, err := newPool(cfg.RPC, cfg.Genesis, cfg.Transport)
	if err != nil {
		return nil, err
	}
	l := &Ledger{Meter: pool.meter, cfg: cfg, pool: pool, mint: solanago.PublicKey(cfg.Mint),
		payer: solanago.PublicKey(cfg.Key.Key()), owner: solanago.PublicKey(cfg.Owner)}
	l.source = tokenAccountOf(l.owner, l.mint)
	return l, nil
}

// Genesis reads the genesis hash of the first endpoint that answers.
func Genesis(ctx context.Context, rpcURL string) (sign.Hash, error) {
	p, err := newPool([]string{rpcURL}, sign.Hash{}, nil)
	if err != nil {
		return sign.Hash{}, err
	}
	return ask(ctx, p, func(ctx context.Context, c *rpc.Client) (sign.Hash, error) {
		h, err := c.GetGenesisHash(ctx)
		return sign.Hash(h), err
	})
}

// Slot returns the confirmed slot of Tip.
func (l *Ledger) Slot(ctx context.Context) (market.Slot, error) {
	tip, err := l.Tip(ctx)
	return tip.Confirmed, err
}

// Balance is the balance of the wallet's associated token account, confirmed; 0 when it has none.
func (l *Ledger) Balance(ctx context.Context, owner sign.Key) (market.Amount, error) {
	accounts, err := l.accounts(ctx, tokenAccountOf(solanago.PublicKey(owner), l.mint))
	if err != nil || accounts[0] == nil {
		return 0, err
	}
	held, err := decodeTokenAccount(accounts[0].Data.GetBinary())
	return held.amount, err
}

// Funds returns the key's spendable funds, confirmed.
func (l *Ledger) Funds(ctx context.Context) (chain.Funds, error) {
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

func (l *Ledger) funds(source, payer *rpc.Account) (chain.Funds, error) {
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

// Check asks the chain whether this ledger can work at all: an endpoint answers and serves the right cluster
// (chain.ErrDown), the mint is there with these decimals (chain.ErrMint). It says nothing of funds; see Funds.
func (l *Ledger) Check(ctx context.Context) error {
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
		return fmt.Errorf("mint %s has %d decimals, the network says %d: %w",
			l.mint, decimals, l.cfg.Decimals, chain.ErrMint)
	}
	l.mu.Lock()
	l.mintOK = true
	l.mu.Unlock()
	return nil
}

// accounts reads them in order, confirmed; nil for one that does not exist.
func (l *Ledger) accounts(ctx context.Context, keys ...solanago.PublicKey) ([]*rpc.Account, error) {
	return ask(ctx, l.pool, func(ctx context.Context, c *rpc.Client) ([]*rpc.Account, error) {
		_, accounts, err := readAccounts(ctx, c, rpc.CommitmentConfirmed, keys)
		return accounts, err
	})
}

// readAccounts reads them at one slot, in order.
func readAccounts(
	ctx context.Context, c *rpc.Client, at rpc.CommitmentType, keys []solanago.PublicKey,
) (market.Slot, []*rpc.Account, error) {
	out, err := c.GetMultipleAccountsWithOpts(ctx, keys,
		&rpc.GetMultipleAccountsOpts{Encoding: solanago.EncodingBase64, Commitment: at})
	if err != nil {
		return 0, nil, err
	}
	if len(out.Value) != len(keys) {
		return 0, nil, fmt.Errorf("%d accounts for %d keys: %w", len(out.Value), len(keys), chain.ErrMalformed)
	}
	for _, a := range out.Value {
		if a != nil && (a.Data == nil || a.Data.GetRawJSON() != nil) {
			return 0, nil, fmt.Errorf("account without data: %w", chain.ErrMalformed)
		}
	}
	return market.Slot(out.Context.Slot), out.Value, nil
}
