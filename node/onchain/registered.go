package onchain

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/registry"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify/audit"
)

const (
	// registryFresh is how old the list of registrations may be, and registryLeast on a network with short windows,
	// which has a quarter of one.
	registryFresh = 30 * time.Second
	registryLeast = 500 * time.Millisecond
)

// newRegistry makes the list of registrations that all rooms share, or nil if the chain does not list them.
func newRegistry(cfg Config) *registry.Registry {
	c, ok := cfg.Program.(registry.Chain)
	if !ok {
		return nil
	}
	fresh := registryFresh
	g := cfg.Genesis
	if window := time.Duration(g.AuditOneIn*g.AuditSlots*g.SlotMillis) * time.Millisecond; window > 0 {
		fresh = min(max(window/4, registryLeast), registryFresh)
	}
	return registry.New(registry.Config{Chain: c, Fresh: fresh, Now: time.Now, Log: cfg.Log.With("role", "registry")})
}

// Staked returns a function that lists the peers with something at stake, a second source of providers beside the
// DHT. It is nil if the chain does not list registrations.
func (w *Watch) Staked() func(context.Context) ([]peer.ID, error) {
	if w.registry == nil {
		return nil
	}
	var (
		mu   sync.Mutex
		of   *account.Provider // the first one of the list that ids was made of
		size int
		ids  []peer.ID
	)
	return func(ctx context.Context) ([]peer.ID, error) {
		all, err := w.registry.Providers(ctx)
		if err != nil || len(all) == 0 {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if of == &all[0] && size == len(all) { // a list is not changed
			return ids, nil
		}
		of, size, ids = &all[0], len(all), nil
		for _, p := range all {
			if id, err := p2p.PeerIDFromKey(p.Peer); err == nil && HasStake(p) {
				ids = append(ids, id)
			}
		}
		return ids, nil
	}
}

// Stakes returns the stakes of peers: of all in of, or of the first ones if the chain does not list registrations. On a
// free network it returns none.
func (w *Watch) Stakes(ctx context.Context, of []sign.Key) (map[sign.Key]market.Amount, error) {
	if w.cfg.Program == nil {
		return nil, nil
	}
	if w.registry != nil {
		if all, err := w.registry.Stakes(ctx, of); err == nil {
			return all, nil
		}
	}
	one, err := w.Stake(ctx, of[0])
	return map[sign.Key]market.Amount{of[0]: one}, err
}

// Stake returns the stake of a peer. It returns chain.ErrNotFound if the peer never registered.
func (w *Watch) Stake(ctx context.Context, peer sign.Key) (market.Amount, error) {
	if w.cfg.Program == nil {
		return 0, chain.ErrNotFound
	}
	p, _, err := w.cfg.Program.Provider(ctx, peer)
	return market.Amount(p.Stake), err
}

// Bond returns the wallet behind a provider and its stake in the money that jobs are paid in. It returns
// chain.ErrNotFound if the provider never registered.
func (w *Watch) Bond(ctx context.Context, provider sign.Key) (sign.Key, market.Amount, error) {
	if w.cfg.Program == nil {
		return sign.Key{}, 0, chain.ErrNotFound
	}
	net, err := w.cfg.Network.Get(ctx)
	if err != nil {
		return sign.Key{}, 0, err
	}
	p, _, err := w.cfg.Program.Provider(ctx, provider)
	if err != nil {
		return sign.Key{}, 0, err
	}
	stake := market.Amount(p.Stake)
	if net.Account.Params.StakeMint != w.cfg.Genesis.Mint { // the rate between the two is unknown
		stake = 0
	}
	return p.Owner, stake, nil
}

// ErrNoBonds is returned on a network without bonded stakes, which cannot have committees.
var ErrNoBonds = errors.New("no stake is bonded on this network, so no committee can be drawn: " +
	"audits need a program whose terms have votes")

// Roster returns the set that committees of a window are drawn from, by the registrations on the chain.
func (w *Watch) Roster(ctx context.Context, window audit.Window) (audit.Roster, error) {
	if w.registry == nil {
		return nil, ErrNoBonds
	}
	all, err := w.registry.Providers(ctx)
	if err != nil {
		return nil, err
	}
	return audit.Mature(registrations(all), window, audit.NewInstants(w.cfg.Genesis))
}

// registrations returns the part of registrations that committees are drawn by.
func registrations(all []account.Provider) []audit.Registration {
	out := make([]audit.Registration, len(all))
	for i, p := range all {
		out[i] = audit.Registration{
			Peer: p.Peer, Owner: p.Owner, Bonded: p.Bonded, Since: market.Slot(max(p.Registered, p.Raised)),
			Slashed: p.WasSlashed,
		}
	}
	return out
}

// HasStake reports whether a registration has something at stake.
func HasStake(p account.Provider) bool { return p.Stake+p.Unbonding > 0 }
