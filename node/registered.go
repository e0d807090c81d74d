package node

import (
	"context"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/registry"
	"github.com/starling-network/starling/p2p"
)

const (
	// registryFresh is how old the list of registrations may be, and registryLeast on a network with short windows, which has a quarter
	// of one.
	registryFresh = 30 * time.Second
	registryLeast = 500 * time.Millisecond
)

// newRegistry makes the list of registrations that all parts share; nil where nobody registers, and for a light peer, whose entry peers
// list nothing.
func (n *Node) newRegistry() *registry.Registry {
	c, ok := n.p.Program.(registry.Chain)
	if !ok {
		return nil
	}
	fresh := registryFresh
	if window := time.Duration(n.p.Genesis.AuditOneIn*n.p.Genesis.AuditSlots*n.p.Genesis.SlotMillis) * time.Millisecond; window > 0 {
		fresh = min(max(window/4, registryLeast), registryFresh)
	}
	return registry.New(registry.Config{Chain: c, Fresh: fresh, Now: time.Now, Log: n.p.Log.With("role", "registry")})
}

// staked returns what lists the peers that have something at stake, a second source of providers beside the DHT; nil where nothing lists them.
func (n *Node) staked() func(context.Context) ([]peer.ID, error) {
	if n.registered == nil {
		return nil
	}
	var (
		mu   sync.Mutex
		of   *program.Provider // the first one of the list that ids was made of
		size int
		ids  []peer.ID
	)
	return func(ctx context.Context) ([]peer.ID, error) {
		all, err := n.registered.Providers(ctx)
		if err != nil || len(all) == 0 {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if of == &all[0] && size == len(all) { // a list is not changed
			return ids, nil
		}
		of, size, ids = &all[0], len(all), nil
		for k := range stakedOf(all) {
			if id, err := p2p.PeerIDFromKey(k); err == nil {
				ids = append(ids, id)
			}
		}
		return ids, nil
	}
}

// stakes is what peers have at stake: of all that are asked for, or where nothing lists registrations, of the first.
func (n *Node) stakes(ctx context.Context, of []sign.Key) (map[sign.Key]market.Amount, error) {
	if n.registered != nil {
		if all, err := n.registered.Stakes(ctx, of); err == nil {
			return all, nil
		}
	}
	one, err := n.stake(ctx, of[0])
	return map[sign.Key]market.Amount{of[0]: one}, err
}
