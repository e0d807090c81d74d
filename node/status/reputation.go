package status

import (
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/reach"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/p2p"
	rules "github.com/starling-network/starling/verify/reputation"
)

// maxLines is how many lines of a kind an explanation has; the others share one. maxFacts is how many facts are
// listed with it.
const maxLines, maxFacts = 64, 256

// rate adds their reputation to peers.
func (s *Status) rate(peers []api.PeerInfo) {
	keys := make([]sign.Key, len(peers))
	for i := range peers {
		keys[i] = peers[i].Key
	}
	sells, buys := s.cfg.Book.Scores(rules.Provider, keys...), s.cfg.Book.Scores(rules.Buyer, keys...)
	for i := range peers {
		peers[i].Reputation = api.Reputation{Provider: ratingOf(sells[i]), Buyer: ratingOf(buys[i])}
	}
}

// ratingOf returns a score in short.
func ratingOf(s rules.Score) api.Rating {
	return api.Rating{Score: s.Millionths, Newcomer: s.Newcomer(), Shunned: s.Shunned()}
}

// KeyOf returns the key of a peer, given by id or key. It returns an *api.Error for other text.
func KeyOf(name string) (sign.Key, error) {
	id, err := reach.ParsePeer(name)
	if err != nil {
		return sign.Key{}, &api.Error{
			Status: 400, Code: "bad_peer", Message: err.Error(),
			Hint: "starling peer ls lists the connected peers",
		}
	}
	k, err := p2p.KeyFromPeerID(id)
	if err != nil {
		return sign.Key{}, &api.Error{Status: 400, Code: "bad_peer", Message: err.Error()}
	}
	return sign.Key(k), nil
}

// Reputation explains the reputation of a peer, given by id or key, term by term.
func (s *Status) Reputation(name string) (api.PeerReputation, error) {
	key, err := KeyOf(name)
	if err != nil {
		return api.PeerReputation{}, err
	}
	v, err := s.cfg.Book.View()
	if err != nil {
		return api.PeerReputation{}, err
	}
	id, err := p2p.PeerIDFromKey(key)
	if err != nil {
		return api.PeerReputation{}, err
	}
	out := api.PeerReputation{Peer: id.String(), Key: key, Opinion: reputation.Opinion{
		Provider: v.Explain(key, rules.Provider, maxLines), Buyer: v.Explain(key, rules.Buyer, maxLines),
	}}
	out.Facts, out.More = s.cfg.Book.Recent(key, maxFacts)
	return out, nil
}
