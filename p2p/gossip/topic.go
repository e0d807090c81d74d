package gossip

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
)

// peersEvery is how often waitFor looks.
const peersEvery = 10 * time.Millisecond

var topicName = regexp.MustCompile(`^[a-z0-9/-]{1,96}$`)

// Message is one accepted message.
type Message[T any] struct {
	From peer.ID // the author and signer
	Via  peer.ID // the neighbour that passed it on first
	Data T       // the decoder's result
}

// Topic is a joined topic with messages that decode to T.
type Topic[T any] struct {
	g     *Gossip
	name  string // in full
	topic *pubsub.Topic
	sub   *pubsub.Subscription

	closing sync.Once
	err     error
}

// Join joins the topic name, [a-z0-9/-]{1,96}, of this network. decode receives every message of other peers once,
// before it is forwarded, on the goroutines of the validation queue: it must be fast and must not block. queue is the
// number of accepted messages that wait for Next; 0 means DefaultQueue. If it is full, the newest are dropped and
// counted. A topic can be joined once at a time.
func Join[T any](
	g *Gossip, name string, decode func(from peer.ID, data []byte) (T, error), queue int,
) (*Topic[T], error) {
	return JoinVia(g, name, func(from, _ peer.ID, data []byte) (T, error) { return decode(from, data) }, queue)
}

// JoinVia is Join with a decoder that also gets the neighbour that passed the message on first: this host for its own
// messages.
func JoinVia[T any](
	g *Gossip, name string, decode func(from, via peer.ID, data []byte) (T, error), queue int,
) (*Topic[T], error) {
	if !topicName.MatchString(name) {
		return nil, fmt.Errorf("joining topic %q: %w", name, ErrName)
	}
	if queue <= 0 {
		queue = DefaultQueue
	}
	t := &Topic[T]{g: g, name: prefix(g.network) + name}
	fail := func(err error) (*Topic[T], error) { return nil, fmt.Errorf("joining topic %q: %w", name, err) }
	if err := g.ps.RegisterTopicValidator(t.name, validate(g, decode), pubsub.WithValidatorInline(true)); err != nil {
		return fail(err)
	}
	var err error
	if t.topic, err = g.ps.Join(t.name); err != nil {
		_ = g.ps.UnregisterTopicValidator(t.name)
		return fail(err)
	}
	if err = t.topic.SetScoreParams(topicScore()); err == nil {
		t.sub, err = t.topic.Subscribe(pubsub.WithBufferSize(queue))
	}
	if err != nil {
		_ = t.topic.Close()
		_ = g.ps.UnregisterTopicValidator(t.name)
		return fail(err)
	}
	return t, nil
}

// validate makes the validator of a topic: size, author, replay, then the decoder.
func validate[T any](g *Gossip, decode func(from, via peer.ID, data []byte) (T, error)) pubsub.ValidatorEx {
	return func(_ context.Context, _ peer.ID, m *pubsub.Message) (result pubsub.ValidationResult) {
		defer func() {
			if r := recover(); r != nil { // peer input never panics the process
				g.log.Error("topic decoder panicked", "topic", m.GetTopic(), "author", m.GetFrom(), "panic", r, "stack",
					string(debug.Stack()))
				result = pubsub.ValidationIgnore
			}
		}()
		from := m.GetFrom()
		if len(m.Data) > MaxMessage {
			return pubsub.ValidationReject
		}
		if _, err := p2p.KeyFromPeerID(from); err != nil {
			return pubsub.ValidationReject
		}
		if from != g.self && !g.replays.fresh(from, m.GetSeqno()) {
			return pubsub.ValidationIgnore
		}
		value, err := decode(from, m.ReceivedFrom, m.Data)
		switch {
		case err == nil:
			m.ValidatorData = value
			return pubsub.ValidationAccept
		case errors.Is(err, ErrReject):
			g.log.Debug("message rejected", "topic", m.GetTopic(), "author", from, "via", m.ReceivedFrom, "err", err)
			return pubsub.ValidationReject
		}
		g.log.Debug("message ignored", "topic", m.GetTopic(), "author", from, "err", err)
		return pubsub.ValidationIgnore
	}
}

// Publish signs data and sends it to the topic. The data must pass the topic's own decoder. Success does not imply
// delivery; see [Topic.Peers].
func (t *Topic[T]) Publish(ctx context.Context, data []byte) error {
	if len(data) > MaxMessage {
		return fmt.Errorf("publishing: %w: %d bytes, at most %d", ErrTooLarge, len(data), MaxMessage)
	}
	err := t.topic.Publish(ctx, data)
	if errors.Is(err, pubsub.ErrTopicClosed) {
		err = ErrClosed
	}
	if err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	return nil
}

// Next waits for the next message of another peer. Its errors are ErrClosed and the context's.
func (t *Topic[T]) Next(ctx context.Context) (Message[T], error) {
	for {
		m, err := t.sub.Next(ctx)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return Message[T]{}, fmt.Errorf("reading topic: %w", ctx.Err())
		default:
			return Message[T]{}, fmt.Errorf("reading topic: %w", ErrClosed)
		}
		// T may be an interface, of which nil is a value and not a type.
		if value, ok := m.ValidatorData.(T); ok && m.GetFrom() != t.g.self {
			return Message[T]{From: m.GetFrom(), Via: m.ReceivedFrom, Data: value}, nil
		}
	}
}

// Peers are the connected peers that joined the topic.
func (t *Topic[T]) Peers() []peer.ID { return t.topic.ListPeers() }

// WaitPeers waits until at least n connected peers joined the topic.
func (t *Topic[T]) WaitPeers(ctx context.Context, n int) error {
	if err := waitFor(ctx, func() bool { return len(t.Peers()) >= n }); err != nil {
		return fmt.Errorf("waiting for %d peers of topic: %w", n, err)
	}
	return nil
}

// waitFor waits until ok. Not by pubsub's events: a peer that leaves and comes back between two of them makes none.
func waitFor(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(peersEvery)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Dropped counts the accepted messages that were dropped because Next was not called in time.
func (t *Topic[T]) Dropped() uint64 { return t.g.counts.slowOf(t.name) }

// Close leaves the topic; waiting calls of Next return ErrClosed.
func (t *Topic[T]) Close() error {
	t.closing.Do(func() {
		t.sub.Cancel()
		// The subscription's end is noticed in pubsub's own time, and the topic cannot be left before.
		for {
			if _, err := t.sub.Next(t.g.ctx); err != nil {
				break
			}
		}
		err := errors.Join(t.g.ps.UnregisterTopicValidator(t.name), t.topic.Close())
		if err != nil && t.g.ctx.Err() == nil {
			t.err = fmt.Errorf("leaving topic: %w", err)
		}
	})
	return t.err
}
