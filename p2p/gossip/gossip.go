// Package gossip spreads small author-signed messages to all peers of a topic, over gossipsub. A topic is typed: its
// decoder checks every message before it is forwarded, and readers receive its result. The class of the decoder's error
// decides about a message and its sender:
//
//	nil            accepted: delivered here and forwarded
//	ErrIgnore      dropped without penalty (expired, not for us, a duplicate in content)
//	ErrReject      dropped, and the forwarding peer loses score: it should have rejected it too
//	other errors   as ErrIgnore
//
// Gossip carries adverts and orders only, since delivery is not guaranteed.
package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// Limits and shape of the mesh. Measured at 1,000 peers, degree 4 costs 2.2 copies of a message per peer
// and libp2p's degree 6 to 12 costs 5.7; the band here is between the two.
const (
	// MaxMessage bounds the data of one message: every peer of the topic pays for it.
	MaxMessage = 4 << 10
	// maxRPC bounds one frame between two peers, several messages or control entries together.
	maxRPC = 256 << 10
	// maxControl bounds the subscriptions and control messages in one frame: those of maxTopics with long names have
	// room.
	maxControl = 64 << 10
	// validateQueue holds messages that wait for validation; pubsub drops and counts beyond it. Its
	// default of 32 loses messages in bursts.
	validateQueue = 1024
	// outboundQueue holds frames to one slow peer; pubsub drops beyond it.
	outboundQueue = 256
	// DefaultQueue holds accepted messages that the reader has not taken; the newest is dropped beyond it.
	DefaultQueue = 256
	// maxTopics bounds the topics that one remote peer may be subscribed to.
	maxTopics = 256
	// maxSubscriptions bounds the topics of all remote peers together. Beyond it a peer may be subscribed to fewTopics.
	maxSubscriptions = 64 << 10
	// fewTopics is more than the topics of a peer that sells some classes of units: two for each, and for each family.
	fewTopics = 32
	// maxName bounds a topic's name.
	maxName = 96

	degree, degreeLow, degreeHigh, degreeOut = 6, 4, 8, 2

	// decayEvery is how often scores fade; the fade is by time, so a longer interval only costs less.
	decayEvery = 10 * time.Second
	// forgetInvalid is the time after which an invalid message is forgiven.
	forgetInvalid = 30 * time.Minute
	// retainScore is how long the score of a disconnected peer is kept, so that reconnecting does not help.
	retainScore = 30 * time.Minute
	// invalidWeight times the square of the number of rejected messages is taken from a score.
	invalidWeight = -100
	// Below these scores a peer gets no gossip, gets none of our own messages, and is ignored. Two, three and six
	// rejected messages in short time reach them.
	gossipThreshold, publishThreshold, graylistThreshold = -200, -500, -2500
	// sameIP is how many peers may share an address before each loses score: sybils, but also farms behind
	// one router, for which Config.TrustedNets is.
	sameIP = 32
)

// Config is the configuration of a Gossip. Only Network is required.
type Config struct {
	Network     string       // part of every protocol ID and topic
	TrustedNets []*net.IPNet // addresses that many peers may share, besides loopback
	Logger      *slog.Logger // nil means slog.Default()
}

// Gossip takes part in gossip until the context of New ends.
type Gossip struct {
	ctx     context.Context // of New: pubsub lives no longer
	ps      *pubsub.PubSub
	h       host.Host
	self    peer.ID
	network string
	log     *slog.Logger
	replays *replays
	counts  *counter
	flood   *flood
	held    atomic.Int32 // peers protected by the meetings of all topics
	sending sync.Mutex   // of Send
}

// Stats counts messages over all topics since the start.
type Stats struct {
	Accepted   uint64 // passed on, and delivered unless dropped
	Ignored    uint64 // by the decoder, or replays
	Rejected   uint64 // by the decoder, oversized, or badly signed
	Overloaded uint64 // dropped before validation, because too many waited
	Slow       uint64 // accepted, and dropped because the reader's queue was full
	Flood      uint64 // dropped unseen: over the limit of a neighbour, or a network
}

// New joins the gossip of a network. Its handlers must be registered before connecting, so call it first.
// It ends, with all its goroutines, when ctx ends.
func New(ctx context.Context, h host.Host, cfg Config) (*Gossip, error) {
	return newGossip(ctx, h, cfg, newSubscriptions(cfg.Network, func(p peer.ID) bool {
		return h.Network().Connectedness(p) != network.NotConnected
	}))
}

func newGossip(ctx context.Context, h host.Host, cfg Config, filter *subscriptions) (*Gossip, error) {
	if cfg.Network == "" {
		return nil, fmt.Errorf("joining gossip: no network name")
	}
	g := &Gossip{ctx: ctx, h: h, self: h.ID(), network: cfg.Network, log: cfg.Logger, replays: newReplays(),
		counts: newCounter(), flood: newFlood(h)}
	if g.log == nil {
		g.log = slog.Default()
	}
	own := protocol.ID("/starling/meshsub/1.2/" + cfg.Network)
	params := pubsub.DefaultGossipSubParams()
	params.D, params.Dlo, params.Dhi, params.Dout, params.Dscore = degree, degreeLow, degreeHigh, degreeOut, degreeLow
	score, thresholds := scoring(cfg, g.flood.score)
	ps, err := pubsub.NewGossipSub(ctx, h,
		pubsub.WithGossipSubProtocols([]protocol.ID{own}, func(f pubsub.GossipSubFeature, p protocol.ID) bool {
			return p == own && f != pubsub.GossipSubFeatureExtensions
		}),
		pubsub.WithGossipSubParams(params),
		pubsub.WithFloodPublish(true), // our own messages go to every neighbour at once
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithMaxMessageSize(maxRPC),
		pubsub.WithMaxControlMessageSize(maxControl),
		pubsub.WithAppSpecificRpcInspector(g.flood.inspect),
		pubsub.WithValidateQueueSize(validateQueue),
		pubsub.WithPeerOutboundQueueSize(outboundQueue),
		pubsub.WithPeerScore(score, thresholds),
		pubsub.WithSubscriptionFilter(filter),
		pubsub.WithRawTracer(tracer{counter: g.counts}),
		pubsub.WithLogger(g.log),
		pubsub.WithRPCLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return nil, fmt.Errorf("joining gossip: %w", err)
	}
	g.ps = ps
	leave := &network.NotifyBundle{DisconnectedF: func(_ network.Network, c network.Conn) {
		filter.left(c.RemotePeer())
		g.flood.left(c.RemotePeer())
	}}
	h.Network().Notify(leave)
	context.AfterFunc(ctx, func() { h.Network().StopNotify(leave) })
	return g, nil
}

// Stats returns the counts so far.
func (g *Gossip) Stats() Stats {
	s := g.counts.stats()
	s.Flood = g.flood.lost()
	return s
}

// prefix begins every topic of a network.
func prefix(network string) string { return "/starling/" + network + "/" }

// scoring sets the rules by which neighbours drop a peer that spreads invalid messages.
func scoring(cfg Config, flooded func(peer.ID) float64) (*pubsub.PeerScoreParams, *pubsub.PeerScoreThresholds) {
	nets := append([]*net.IPNet{
		{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
		{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
	}, cfg.TrustedNets...)
	return &pubsub.PeerScoreParams{
			Topics:                      make(map[string]*pubsub.TopicScoreParams),
			AppSpecificScore:            flooded,
			AppSpecificWeight:           1,
			IPColocationFactorWeight:    -10,
			IPColocationFactorThreshold: sameIP,
			IPColocationFactorWhitelist: nets,
			BehaviourPenaltyWeight:      -10,
			BehaviourPenaltyThreshold:   6,
			BehaviourPenaltyDecay:       decay(10 * time.Minute),
			TopicScoreCap:               50,
			DecayInterval:               decayEvery,
			DecayToZero:                 pubsub.DefaultDecayToZero,
			RetainScore:                 retainScore,
		}, &pubsub.PeerScoreThresholds{
			GossipThreshold:             gossipThreshold,
			PublishThreshold:            publishThreshold,
			GraylistThreshold:           graylistThreshold,
			OpportunisticGraftThreshold: 1,
		}
}

// topicScore scores a topic: a little for staying and for being first, much against invalid messages.
// Traffic is sparse, so silence is not held against anyone.
func topicScore() *pubsub.TopicScoreParams {
	return &pubsub.TopicScoreParams{
		SkipAtomicValidation:           true,
		TopicWeight:                    1,
		TimeInMeshWeight:               0.01,
		TimeInMeshQuantum:              10 * time.Second,
		TimeInMeshCap:                  360,
		FirstMessageDeliveriesWeight:   1,
		FirstMessageDeliveriesDecay:    decay(10 * time.Minute),
		FirstMessageDeliveriesCap:      20,
		InvalidMessageDeliveriesWeight: invalidWeight,
		InvalidMessageDeliveriesDecay:  decay(forgetInvalid),
	}
}

func decay(after time.Duration) float64 {
	return pubsub.ScoreParameterDecayWithBase(after, decayEvery, pubsub.DefaultDecayToZero)
}
