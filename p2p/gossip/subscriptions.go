package gossip

import (
	"strings"
	"sync"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"
)

// subscriptions bounds the subscriptions of remote peers: topics of this network, a few hundred each, and fewer when
// all peers together have many. pubsub keeps a table of them, which strangers could otherwise fill. A peer's own table
// lasts as long as it is connected.
type subscriptions struct {
	prefix    string
	connected func(peer.ID) bool

	mu    sync.Mutex
	peers map[peer.ID]map[string]bool
	total int // topics of all peers
}

func newSubscriptions(network string, connected func(peer.ID) bool) *subscriptions {
	return &subscriptions{prefix: prefix(network), connected: connected, peers: make(map[peer.ID]map[string]bool)}
}

// CanSubscribe reports whether the topic can be one of ours.
func (s *subscriptions) CanSubscribe(topic string) bool {
	name, ok := strings.CutPrefix(topic, s.prefix)
	return ok && topicName.MatchString(name)
}

// FilterIncomingSubscriptions returns the subscriptions of a peer that are accepted.
func (s *subscriptions) FilterIncomingSubscriptions(from peer.ID, subs []*pb.RPC_SubOpts) ([]*pb.RPC_SubOpts, error) {
	if len(subs) > 2*maxTopics {
		return nil, pubsub.ErrTooManySubscriptions
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// messages from before it left are read after; checked under the lock, so that left comes later
	if !s.connected(from) {
		return nil, nil
	}
	has := s.peers[from]
	if has == nil {
		has = make(map[string]bool)
		s.peers[from] = has
	}
	return pubsub.FilterSubscriptions(subs, func(topic string) bool {
		switch {
		case !s.CanSubscribe(topic):
			return false
		case has[topic]:
			return true
		case len(has) >= maxTopics, len(has) >= fewTopics && s.total >= maxSubscriptions:
			return false
		}
		has[topic] = true // an unsubscribed topic keeps its place: the bound is for the connection
		s.total++
		return true
	}), nil
}

// left frees the table of a disconnected peer.
func (s *subscriptions) left(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.connected(p) {
		s.total -= len(s.peers[p])
		delete(s.peers, p)
	}
}
