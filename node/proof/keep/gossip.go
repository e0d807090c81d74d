package keep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/gossip"
)

// Proofs that every auditing peer needs are published on one topic. A proof convicts by itself, so its author does not
// matter, and an author's key is free. So limits are on neighbours, by standing: a neighbour that this peer dialled or
// trades with has its own limit, and all strangers share one.
const (
	topicName = "proofs"
	queue     = 1024
	// Again is how often a peer publishes its own proofs again, since peers come and go.
	Again = 10 * time.Minute
)

var (
	ofNeighbour = admit.Rate{PerSecond: 64, Burst: 2048} // a window's refusals come together
	ofNetwork   = admit.Rate{PerSecond: 64, Burst: 2048}
	ofStrangers = admit.Rate{PerSecond: 128, Burst: 4096}
)

// Handler is the part of a kind of proof that is published.
type Handler interface {
	// Wanted returns the reason why this peer has no use for a proof. It is cheap, and checks no signature.
	Wanted(c proof.Content) error
	// Check checks a wanted proof. An error that wraps proof.ErrUnsure depends on this peer's state; any other error
	// shows that the proof was not published in good faith.
	Check(ctx context.Context, c proof.Content) error
	// Take keeps a checked proof of others.
	Take(ctx context.Context, c proof.Content) error
	// Publish lists the proofs that this peer found and publishes.
	Publish(ctx context.Context) []proof.Content
}

// GossipConfig is the configuration of a Gossip. All of it is required.
type GossipConfig struct {
	Host     *p2p.Host
	Handlers map[proof.Kind]Handler
	// Hints returns peers that may be on the topic.
	Hints func(ctx context.Context, most int) ([]peer.AddrInfo, error)
	Log   *slog.Logger
}

// Gossip is a peer's part in the topic of proofs.
type Gossip struct {
	cfg   GossipConfig
	rates *admit.Rates
	topic *gossip.Topic[proof.Content]
	poke  chan struct{} // holds one token when this peer has something new to publish
}

// checkTime bounds the check of one proof.
const checkTime = 2 * time.Second

// Join joins the topic. It starts nothing; Run does.
func Join(g *gossip.Gossip, cfg GossipConfig) (*Gossip, error) {
	x := newGossip(cfg)
	var err error
	x.topic, err = gossip.JoinVia(g, topicName, x.decode, queue)
	return x, err
}

func newGossip(cfg GossipConfig) *Gossip {
	return &Gossip{cfg: cfg, rates: admit.NewRates(ofNeighbour, ofNetwork, ofStrangers), poke: make(chan struct{}, 1)}
}

// decode is the topic's validator: a proof is passed on if it is new here, wanted, within the limits of its neighbour,
// and holds. A proof that is invalid for every peer is rejected. A proof that is useless for this peer is ignored,
// since it may be useful for the neighbour.
func (g *Gossip) decode(from, via peer.ID, data []byte) (proof.Content, error) {
	c, err := proof.Unmarshal(data, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	h, ok := g.cfg.Handlers[c.Kind()]
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: %s proofs are not published", gossip.ErrReject, c.Kind())
	case from == g.cfg.Host.ID():
		return c, nil
	}
	if err := h.Wanted(c); err != nil {
		return nil, fmt.Errorf("%w: %w", gossip.ErrIgnore, err)
	}
	standing, at := g.cfg.Host.Seen(via)
	if _, ok := g.rates.Wait(via, standing, at, 1, time.Now(), 0); !ok {
		return nil, fmt.Errorf("%w: too many proofs through %s", gossip.ErrIgnore, via)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	switch err := h.Check(ctx, c); {
	case errors.Is(err, proof.ErrUnsure):
		return nil, fmt.Errorf("%w: %w", gossip.ErrIgnore, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	return c, nil
}

// Found has this peer's proofs published soon.
func (g *Gossip) Found() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// Run stores proofs of others, and repeatedly publishes this peer's own, until ctx ends. again is the delay before a
// new proof is published a second time: by then others may have read the stakes in question.
func (g *Gossip) Run(ctx context.Context, again time.Duration) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	meeting := g.topic.Meet(g.cfg.Hints)
	wg.Go(func() { _ = meeting.Run(ctx) }) // has no error
	wg.Go(func() { g.listen(ctx) })
	for wait := Again; ; {
		g.publish(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return g.topic.Close()
		case <-timer.C:
			wait = Again
		case <-g.poke:
			wait = again
		}
		timer.Stop()
	}
}

func (g *Gossip) listen(ctx context.Context) {
	for {
		m, err := g.topic.Next(ctx)
		if err != nil {
			return
		}
		err = g.cfg.Handlers[m.Data.Kind()].Take(ctx, m.Data)
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, proof.ErrFull):
			g.cfg.Log.Debug("a proof of others is not kept", "proves", m.Data.Summary(), "err", err)
		default:
			g.cfg.Log.Error("a proof of others is not kept", "proves", m.Data.Summary(), "err", err)
		}
	}
}

// publish publishes this peer's own proofs.
func (g *Gossip) publish(ctx context.Context) {
	for _, h := range g.cfg.Handlers {
		for _, c := range h.Publish(ctx) {
			b, err := proof.Marshal(c)
			if err == nil {
				err = g.topic.Publish(ctx, b)
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, gossip.ErrClosed) {
				g.cfg.Log.Warn("a proof was not published; it will be again", "proves", c.Summary(), "err", err)
			}
		}
	}
}
