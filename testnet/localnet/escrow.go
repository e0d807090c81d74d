package localnet

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// The windows of a local network, in slots: short, because local peers are not offline for days.
const (
	marginSlots    = 50
	responseSlots  = 100
	unbondingSlots = 4000
	evidenceSlots  = 3000
	minStake       = 10_000_000 // base units: 10 tokens
	votingSlots    = 400
	lockSlots      = 100
	leastBonded    = 3 * minStake
	emission       = 300_000_000_000_000 // base units: 300 million tokens
	epochSlots     = 1500
	epochsOfMonth  = 144
)

// EscrowGenesis describes a network that settles through Starling's program on this chain. The first call deploys the
// program. It creates the network's account, which has votes on rules and rewards, and fills the emission's account.
// Treasury and authority are the faucet's key. The changes of Config.Terms apply last; audit windows are those of the
// network if it sets any.
func (c *Chain) EscrowGenesis(
	ctx context.Context, network string, intervalSlots uint64, terms ...func(*account.Params),
) (market.Genesis, error) {
	id, err := c.deployed(ctx)
	if err != nil {
		return market.Genesis{}, err
	}
	p := account.Params{Network: network, Chain: c.genesis, Treasury: c.payer.Key(), Authority: c.payer.Key(),
		StakeMint: c.mint, MarginSlots: marginSlots, ResponseSlots: responseSlots, UnbondingSlots: unbondingSlots,
		EvidenceSlots: evidenceSlots, MinStake: minStake,
		Votes: account.Votes{VotingSlots: votingSlots, LockSlots: lockSlots, LeastBonded: leastBonded,
			LeastBond: minStake, Emission: emission, EpochSlots: epochSlots, EpochsOfMonth: epochsOfMonth},
		Mints: []account.MintTerms{account.DefaultTerms(c.mint, c.cfg.Decimals)}}
	if c.cfg.Terms != nil {
		c.cfg.Terms(&p)
	}
	for _, set := range terms {
		set(&p)
	}
	g := c.Genesis(network, intervalSlots)
	if g.AuditSlots = uint64(p.AuditSlots); g.AuditSlots > 0 {
		g.AuditOneIn = 1
	}
	g.Program, g.Code, g.Escrow = id, svm.CodeHash(program.ELF), account.NetworkAddress(id, p)
	l, err := solana.New(solana.ConfigOf([]string{c.url}, g, c.payer))
	if err != nil {
		return market.Genesis{}, err
	}
	_, err = l.Network(ctx)
	switch {
	case err == nil: // created by an earlier call
		return g, nil
	case !errors.Is(err, chain.ErrNotFound):
		return g, err
	}
	if err := l.CreateNetwork(ctx, p); err != nil || p.Votes.Emission == 0 {
		return g, err
	}
	return g, c.admin.Mint(ctx, c.mint, c.cfg.Decimals, account.EmissionAddress(id, g.Escrow),
		market.Amount(p.Votes.Emission))
}

// deployed deploys the program at the first call.
func (c *Chain) deployed(ctx context.Context) (sign.Key, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.program.IsZero() {
		return c.program, nil
	}
	key, err := newKey()
	if err != nil {
		return sign.Key{}, err
	}
	if err := c.Deploy(ctx, key, program.ELF); err != nil {
		return sign.Key{}, fmt.Errorf("deploying the program to the local chain: %w", err)
	}
	c.program = key.Key()
	return c.program, nil
}

// Deploy puts a program on the chain under the address of key, by the upgradeable loader, which verifies it as on any
// chain. Only its buffer is filled directly. Surfpool keeps the changes of the last 200 transactions, before and after,
// and copies all of them for each transaction: a program in many small writes would slow each later transaction to tens
// of milliseconds.
func (c *Chain) Deploy(ctx context.Context, key sign.Private, elf []byte) error {
	if c.host == nil {
		return c.admin.Deploy(ctx, key, elf)
	}
	buffer, err := c.buffer(ctx, elf)
	if err != nil {
		return err
	}
	return c.admin.DeployBuffer(ctx, key, buffer, len(elf))
}

// Upgrade replaces the code of a program from Deploy, on a chain hosted by this process. The faucet's key must be its
// upgrade authority.
func (c *Chain) Upgrade(ctx context.Context, id sign.Key, elf []byte) error {
	buffer, err := c.buffer(ctx, elf)
	if err != nil {
		return err
	}
	return c.admin.UpgradeBuffer(ctx, id, buffer)
}

// buffer makes a filled buffer of the upgradeable loader.
func (c *Chain) buffer(ctx context.Context, elf []byte) (sign.Key, error) {
	key, err := newKey()
	if err != nil {
		return sign.Key{}, err
	}
	loader, data := solana.LoaderBuffer(c.payer.Key(), elf)
	if err := c.proxy.setAccount(ctx, key.Key(), loader, data); err != nil {
		return sign.Key{}, fmt.Errorf("filling a buffer: %w", err)
	}
	return key.Key(), nil
}

// MintInto mints tokens into a token account, such as a network's pool.
func (c *Chain) MintInto(ctx context.Context, at sign.Key, amount market.Amount) error {
	return c.admin.Mint(ctx, c.mint, c.cfg.Decimals, at, amount)
}
