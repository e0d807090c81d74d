// Package localnet runs a Solana chain on this machine: a real runtime (Surfpool: the SVM with SPL programs, blocks by
// the clock, blockhash expiry) without consensus, for testnets and tests.
//
//	peers ──HTTP──▶ allow-listing proxy (Go) ──HTTP──▶ Surfpool native addon in a Node process
//
// The addon comes from npm, pinned by version and integrity, and is installed once into the user's cache. The Node
// process ends when its owner does. Ports are dynamic; any number of chains run side by side, and each has its own
// genesis hash.
package localnet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Config of a local chain. Zero fields take the defaults.
type Config struct {
	SlotMillis uint64 // 400; a blockhash is valid for 150 slots and a block is final after 31, at any length
	Symbol     string // of the test token: STAR
	Decimals   uint8  // of the test token: 6

	Terms func(*account.Params) // changes the terms of networks with Starling's program
}

func (c Config) withDefaults() Config {
	if c.SlotMillis == 0 {
		c.SlotMillis = 400
	}
	if c.Symbol == "" {
		c.Symbol = "STAR"
	}
	if c.Decimals == 0 {
		c.Decimals = 6
	}
	return c
}

// Chain is a local chain with a test token.
type Chain struct {
	cfg     Config
	genesis sign.Hash
	mint    sign.Key
	url     string
	payer   sign.Private // mints and funds
	host    *host        // nil if the chain is attached
	proxy   *proxy       // nil if the chain is attached
	admin   *solana.Admin
	stop    func() error

	mu      sync.Mutex
	program sign.Key // address of Starling's program, once deployed
}

// Start installs the runtime if necessary, starts a chain and makes its token. The caller must Close it; it also ends
// with the calling process. ctx bounds the start only.
func Start(ctx context.Context, cfg Config) (*Chain, error) {
	cfg = cfg.withDefaults()
	dir, err := Install(ctx)
	if err != nil {
		return nil, err
	}
	c := &Chain{cfg: cfg}
	if c.host, err = startHost(ctx, dir, cfg.SlotMillis); err != nil {
		return nil, err
	}
	if c.proxy, err = startProxy(c.host.rpc); err != nil {
		return nil, errors.Join(err, c.host.stop())
	}
	c.url, c.payer = c.proxy.url, c.host.payer
	c.stop = sync.OnceValue(func() error { return errors.Join(c.proxy.stop(), c.host.stop()) })
	if err := c.setUp(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up the local chain: %w", err), c.Close())
	}
	return c, nil
}

func (c *Chain) setUp(ctx context.Context) (err error) {
	if c.genesis, err = solana.Genesis(ctx, c.URL()); err != nil {
		return err
	}
	if c.admin, err = solana.NewAdmin(c.URL(), c.genesis, c.payer); err != nil {
		return err
	}
	return c.makeToken(ctx)
}

// makeToken makes the test token under a fresh address.
func (c *Chain) makeToken(ctx context.Context) error {
	mint, err := newKey()
	if err != nil {
		return err
	}
	c.mint = mint.Key()
	return c.admin.CreateMint(ctx, mint, c.cfg.Decimals)
}

func newKey() (sign.Private, error) {
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return sign.Private{}, fmt.Errorf("making a key: %w", err)
	}
	return sign.NewPrivate(seed), nil
}

// URL is the JSON-RPC endpoint that peers use.
func (c *Chain) URL() string { return c.url }

// Mint is the test token's address.
func (c *Chain) Mint() sign.Key { return c.mint }

// Genesis is the draft of a network with payments on this chain; EscrowGenesis completes it.
func (c *Chain) Genesis(network string, intervalSlots uint64) market.Genesis {
	return market.Genesis{Network: network, Chain: c.genesis, Mint: c.mint, Symbol: c.cfg.Symbol,
		Decimals: c.cfg.Decimals, SlotMillis: c.cfg.SlotMillis, IntervalSlots: intervalSlots}
}

// Wallet is an owner to fund, and the peer that may spend for it.
type Wallet struct {
	Owner     sign.Private
	Delegate  sign.Key      // peer key; no delegate if zero or the owner's own
	Tokens    market.Amount // minted for the owner
	Allowance market.Amount // of that, the delegate's allowance
	Lamports  uint64        // for the payer of fees: the delegate, else the owner
}

// Fund mints tokens for the owners, gives lamports to their peers and has each owner approve its peer.
func (c *Chain) Fund(ctx context.Context, wallets ...Wallet) error {
	var grants []solana.Grant
	for _, w := range wallets {
		delegated := !w.Delegate.IsZero() && w.Delegate != w.Owner.Key()
		if delegated {
			grants = append(grants, solana.Grant{To: w.Owner.Key(), Tokens: w.Tokens},
				solana.Grant{To: w.Delegate, Lamports: w.Lamports})
		} else {
			grants = append(grants, solana.Grant{To: w.Owner.Key(), Tokens: w.Tokens, Lamports: w.Lamports})
		}
	}
	if err := c.admin.Fund(ctx, c.mint, c.cfg.Decimals, grants...); err != nil {
		return err
	}
	for _, w := range wallets {
		if w.Delegate.IsZero() || w.Delegate == w.Owner.Key() || w.Allowance == 0 {
			continue
		}
		if err := c.admin.Approve(ctx, c.mint, c.cfg.Decimals, w.Owner, w.Delegate, w.Allowance); err != nil {
			return err
		}
	}
	return nil
}

// Faucet is the key that mints the test token and holds the lamports. On a local chain it protects nothing of value.
func (c *Chain) Faucet() sign.Private { return c.payer }

// FundKey gives tokens and lamports to a public key.
func (c *Chain) FundKey(ctx context.Context, to sign.Key, tokens market.Amount, lamports uint64) error {
	return c.admin.Fund(ctx, c.mint, c.cfg.Decimals, solana.Grant{To: to, Tokens: tokens, Lamports: lamports})
}

// Supply is the supply of the test token.
func (c *Chain) Supply(ctx context.Context) (market.Amount, error) {
	return c.admin.Supply(ctx, c.mint)
}

// PID is the Node process of the runtime; 0 if the chain is attached.
func (c *Chain) PID() int {
	if c.host == nil {
		return 0
	}
	return c.host.cmd.Process.Pid
}

// Done is closed when the runtime has ended; never if the chain is attached.
func (c *Chain) Done() <-chan struct{} {
	if c.host == nil {
		return nil
	}
	return c.host.done
}

// Err returns the reason of the runtime's end, nil before it.
func (c *Chain) Err() error {
	if c.host == nil {
		return nil
	}
	select {
	case <-c.host.done:
		return fmt.Errorf("%w: %v %s", ErrStopped, c.host.err, c.host.stderr.text())
	default:
		return nil
	}
}

// Close ends the chain and waits for its process. The chain's data is lost.
func (c *Chain) Close() error { return c.stop() }
