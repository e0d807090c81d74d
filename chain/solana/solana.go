// Package solana is the Ledger on a Solana cluster. It calls Starling's program (chain/program), reads the program's
// accounts, and writes memos.
//
// The peer's key signs and pays the fees. The tokens are its own, or those of an owner (a cold wallet) that delegated a
// stated amount to it with the token program's approve.
//
// If several RPC endpoints are configured, two must agree before a transaction counts as final or expired. An endpoint
// of another cluster is not used. Endpoints appear in errors and logs by host only, since their paths often hold
// secrets.
package solana

import (
	"context"
	"fmt"
	"net/http"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/solana/calls"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Config of a Ledger.
type Config struct {
	RPC      []string    // URLs, at least one; tried in this order
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

// NewReader returns a Ledger that reads a network's chain without a wallet: its key owns nothing.
func NewReader(rpc []string, g market.Genesis) (*Ledger, error) {
	return New(ConfigOf(rpc, g, sign.NewPrivate([32]byte{1})))
}

// Ledger implements chain.Ledger, chain.MemoLedger and escrow.Ledger. It is safe for concurrent use and needs no Close.
// Its methods are its parts' methods.
type Ledger struct {
	*calls.Meter // of its calls
	Clock
	Accounts
	History
	*Wallet
}

// base is common to the parts of a Ledger.
type base struct {
	cfg     Config
	cluster *cluster.Cluster
}

// newLedgerOf returns the ledger of a configuration that was checked.
func newLedgerOf(cfg Config, c *cluster.Cluster) *Ledger {
	b := &base{cfg: cfg, cluster: c}
	w := &Wallet{base: b, mint: solanago.PublicKey(cfg.Mint), payer: solanago.PublicKey(cfg.Key.Key()),
		owner: solanago.PublicKey(cfg.Owner)}
	w.source = tokenAccountOf(w.owner, w.mint)
	return &Ledger{Meter: c.Meter(), Clock: Clock{b}, Accounts: Accounts{b}, History: History{b}, Wallet: w}
}

var (
	_ chain.Ledger     = (*Ledger)(nil)
	_ chain.MemoLedger = (*Ledger)(nil)
	_ chain.Blocks     = (*Ledger)(nil)
	_ escrow.Ledger    = (*Ledger)(nil)
)

// New checks the configuration. It opens no connection; see Check.
func New(cfg Config) (*Ledger, error) {
	if cfg.Key == nil || cfg.Mint.IsZero() {
		return nil, fmt.Errorf("solana: %w: a key and a mint are needed", cluster.ErrConfig)
	}
	if cfg.Program.IsZero() != cfg.Network.IsZero() {
		return nil, fmt.Errorf("solana: %w: program and network account are both set, or neither is", cluster.ErrConfig)
	}
	if cfg.Owner.IsZero() {
		cfg.Owner = cfg.Key.Key()
	}
	if cfg.Fees == (chain.Fees{}) {
		cfg.Fees = chain.DefaultFees()
	}
	c, err := cluster.New(cfg.RPC, cfg.Genesis, cfg.Transport)
	if err != nil {
		return nil, err
	}
	return newLedgerOf(cfg, c), nil
}

// Genesis reads the genesis hash of the first endpoint that answers.
func Genesis(ctx context.Context, rpcURL string) (sign.Hash, error) {
	p, err := cluster.New([]string{rpcURL}, sign.Hash{}, nil)
	if err != nil {
		return sign.Hash{}, err
	}
	return cluster.Ask(ctx, p, func(ctx context.Context, c *rpc.Client) (sign.Hash, error) {
		h, err := c.GetGenesisHash(ctx)
		return sign.Hash(h), err
	})
}

// accounts reads accounts in order, confirmed. A missing account is nil.
func (b *base) accounts(ctx context.Context, keys ...solanago.PublicKey) ([]*rpc.Account, error) {
	return cluster.Ask(ctx, b.cluster, func(ctx context.Context, c *rpc.Client) ([]*rpc.Account, error) {
		_, accounts, err := cluster.ReadAccounts(ctx, c, rpc.CommitmentConfirmed, keys)
		return accounts, err
	})
}
