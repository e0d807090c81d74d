package node

import (
	"context"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify"
	rules "github.com/starling-network/starling/verify/reputation"
)

// newReputation makes the part that remembers what is known of others.
func (n *Node) newReputation(ctx context.Context) (*reputation.Book, error) {
	cfg := reputation.Config{
		Genesis: n.p.Genesis, Self: n.p.Key.Key(), Store: n.p.Store, Log: n.p.Log.With("role", "reputation"),
		Slot: func() (market.Slot, error) { return n.slots.Now(time.Now()) },
	}
	if n.network != nil {
		cfg.Stakes = n.stakes
	}
	return reputation.Open(ctx, cfg)
}

// maxLines is how many lines of a kind an explanation has; the others share one. maxFacts is how many facts are listed with it.
const maxLines, maxFacts = 64, 256

// rate adds to peers what is known of them.
func (n *Node) rate(peers []api.PeerInfo) {
	keys := make([]sign.Key, len(peers))
	for i := range peers {
		keys[i] = peers[i].Key
	}
	sells, buys := n.reputation.Scores(rules.Provider, keys...), n.reputation.Scores(rules.Buyer, keys...)
	for i := range peers {
		peers[i].Reputation = api.Reputation{Provider: api.RatingOf(sells[i]), Buyer: api.RatingOf(buys[i])}
	}
}

// keyOf is the key of a peer, given by id or key.
func keyOf(name string) (sign.Key, error) {
	id, err := ParsePeer(name)
	if err != nil {
		return sign.Key{}, &api.Error{Status: 400, Code: "bad_peer", Message: err.Error(), Hint: "starling peer ls lists those that are connected"}
	}
	k, err := p2p.KeyFromPeerID(id)
	if err != nil {
		return sign.Key{}, &api.Error{Status: 400, Code: "bad_peer", Message: err.Error()}
	}
	return sign.Key(k), nil
}

// Reputation says what this peer makes of another one, given by id or key, term by term.
func (n *Node) Reputation(name string) (api.PeerReputation, error) {
	key, err := keyOf(name)
	if err != nil {
		return api.PeerReputation{}, err
	}
	v, err := n.reputation.View()
	if err != nil {
		return api.PeerReputation{}, err
	}
	id, err := p2p.PeerIDFromKey(key)
	if err != nil {
		return api.PeerReputation{}, err
	}
	out := api.PeerReputation{Peer: id.String(), Key: key, Provider: v.Explain(key, rules.Provider, maxLines), Buyer: v.Explain(key, rules.Buyer, maxLines)}
	out.Facts, out.More = n.reputation.Told(key, maxFacts)
	return out, nil
}

// AnchoredFacts are the receipts of others that count for or against a peer, given by id or key.
func (n *Node) AnchoredFacts(ctx context.Context, name string) (reputation.File, error) {
	key, err := keyOf(name)
	if err != nil {
		return reputation.File{}, err
	}
	return n.reputation.Export(ctx, key)
}

// filed is told of each receipt of this peer's leases. A light peer publishes nothing: its providers do.
func (n *Node) filed(l market.Lease, units []market.UnitID, r verify.Receipt) {
	n.reputation.File(l, r)
	if n.shown != nil && l.Core.Buyer == n.p.Key.Key() {
		n.shown.Worked(l.Core.Provider, units, l.Core.Start, r.To)
	}
	if n.p.Light == nil {
		n.evidence.File(l, units, r)
	}
}

// weights are by what the buyer chooses.
func (n *Node) weights() match.Weights {
	w := match.DefaultWeights(n.p.Genesis)
	w.MinReputation = uint32(1e6 * n.p.Config.Buy.MinReputation)
	return w
}

// seen is the Book as the buyer tells it of lost providers.
type seen struct {
	*reputation.Book
	n *Node
}

// Failed blames a provider only while this peer is connected to another one: else it is most likely this peer that is cut off.
func (s seen) Failed(c market.LeaseCore, lost market.Amount) {
	for _, id := range s.n.p.Host.Network().Peers() {
		if k, err := p2p.KeyFromPeerID(id); err == nil && sign.Key(k) != c.Provider {
			s.Book.Failed(c, lost)
			return
		}
	}
}
