package gossip

import (
	"sync"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// counter counts messages by their outcome.
type counter struct {
	mu   sync.Mutex
	all  Stats
	slow map[string]uint64 // by topic
}

func newCounter() *counter { return &counter{slow: make(map[string]uint64)} }

func (c *counter) stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

func (c *counter) slowOf(topic string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slow[topic]
}

// tracer receives pubsub's events; most are of no interest.
type tracer struct{ *counter }

var _ pubsub.RawTracer = tracer{}

// DeliverMessage counts an accepted message.
func (t tracer) DeliverMessage(*pubsub.Message) {
	t.mu.Lock()
	t.all.Accepted++
	t.mu.Unlock()
}

// RejectMessage counts a message that went no further.
func (t tracer) RejectMessage(_ *pubsub.Message, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch reason {
	case pubsub.RejectValidationIgnored, pubsub.RejectSelfOrigin:
		t.all.Ignored++
	case pubsub.RejectValidationQueueFull, pubsub.RejectValidationThrottled:
		t.all.Overloaded++
	default:
		t.all.Rejected++
	}
}

// UndeliverableMessage counts a message that a slow reader lost.
func (t tracer) UndeliverableMessage(m *pubsub.Message) {
	t.mu.Lock()
	t.all.Slow++
	t.slow[m.GetTopic()]++
	t.mu.Unlock()
}

func (tracer) OnClosedOutboundStream(peer.ID)           {}
func (tracer) OnNewOutboundStream(peer.ID, protocol.ID) {}
func (tracer) Join(string)                              {}
func (tracer) Leave(string)                             {}
func (tracer) Graft(peer.ID, string)                    {}
func (tracer) Prune(peer.ID, string)                    {}
func (tracer) ValidateMessage(*pubsub.Message)          {}
func (tracer) DuplicateMessage(*pubsub.Message)         {}
func (tracer) ThrottlePeer(peer.ID)                     {}
func (tracer) RecvRPC(*pubsub.RPC)                      {}
func (tracer) SendRPC(*pubsub.RPC, peer.ID)             {}
func (tracer) DropRPC(*pubsub.RPC, peer.ID)             {}
