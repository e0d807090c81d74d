package model

import (
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// networks are the calls about a network, and its pools.
type networks struct{ *tx }

// initNetwork: any key creates a network of valid parameters, at the address derived from them.
func (t networks) initNetwork(c program.InitNetwork) error {
	p := c.Params
	t.no(p.Validate() != nil, program.ErrParams)
	t.create(c.Network, account.NetworkAddress(t.Program, p))
	t.mint(p.StakeMint)
	for _, m := range p.Mints {
		t.no(t.mint(m.Mint).Decimals != m.Decimals, program.ErrMint)
	}
	if err := t.refused(); err != nil {
		return err
	}
	_, bump := svm.FindAddress(t.Program, account.NetworkSeeds(p)...)
	n := account.NewNetwork(p)
	n.Bump = bump
	t.Networks[c.Network] = n
	t.pay(c.Payer, account.NetworkSize(len(p.Mints)))
	return nil
}

// mint reads a mint.
func (t *tx) mint(at sign.Key) Mint {
	m, ok := t.Mints[at]
	switch {
	case !ok && has(t.Tokens, at):
		t.no(true, program.ErrKind)
	case !ok:
		t.no(true, program.ErrOwner)
	}
	return m
}

// setAuthority: only the authority transfers the authority. Its removal is permanent.
func (t networks) setAuthority(c program.SetAuthority) error {
	n, _ := find(t.tx, t.Networks, c.Network)
	t.no(c.Authority != n.Authority || n.Authority.IsZero(), program.ErrAuthority)
	if err := t.refused(); err != nil {
		return err
	}
	n.Authority = c.New
	t.Networks[c.Network] = n
	return nil
}

// initPool: any key opens the pool of one of the network's mints.
func (t networks) initPool(c program.InitPool) error {
	n, ok := find(t.tx, t.Networks, c.Network)
	t.no(ok && (int(c.Index) >= len(n.Params.Mints) || n.Params.Mints[c.Index].Mint != c.Mint), program.ErrMint)
	t.create(c.Pool, account.PoolAddress(t.Program, c.Network, c.Mint))
	if err := t.refused(); err != nil {
		return err
	}
	t.open(c.Payer, c.Pool, c.Mint, c.Network)
	return nil
}

// open makes a token account.
func (t *tx) open(payer, at, mint, owner sign.Key) {
	t.Tokens[at] = svm.Token{Mint: mint, Owner: owner, Plain: true}
	t.pay(payer, svm.TokenSize)
}

// drawPool: the authority pays a provider that has the least stake, and only its payout wallet.
func (t networks) drawPool(c program.DrawPool) error {
	n, ok := find(t.tx, t.Networks, c.Network)
	t.no(c.Amount == 0, program.ErrAmount)
	t.no(ok && (c.Authority != n.Authority || n.Authority.IsZero()), program.ErrAuthority)
	t.no(c.Pool != account.PoolAddress(t.Program, c.Network, c.Mint), program.ErrAddress)
	p, ok := find(t.tx, t.Providers, c.Provider)
	if ok {
		t.no(p.Network != c.Network, program.ErrAddress)
		t.no(p.Stake < n.Rules.MinStake, program.ErrMinStake)
		to, there := t.holding(c.Destination)
		t.no(there && to.Owner != p.Payout, program.ErrTokenOwner)
		t.known(c.Destination, c.Mint, p.Payout, sign.Key{})
	}
	t.mint(c.Mint)
	t.move(c.Pool, c.Destination, c.Mint, c.Network, c.Amount)
	if err := t.refused(); err != nil {
		return err
	}
	t.moved(c.Pool, c.Destination, c.Amount)
	return nil
}
