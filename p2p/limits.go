package p2p

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	basichost "github.com/libp2p/go-libp2p/p2p/host/basic"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/x/rate"

	"github.com/starling-network/starling/p2p/admit"
)

// Limits of one host. libp2p's defaults stop a buyer that reserves a thousand providers at once, and a
// farm of providers behind one address; these leave room for both and still bound one host's memory.
const (
	// MaxConns bounds connections of both directions: a buyer's widest fan-out with room to spare.
	MaxConns = 4096
	// MaxConnsInbound reserves a quarter of them for outgoing connections.
	MaxConnsInbound = 3072
	// MaxConnsPerPeer allows both transports, both directions and a relayed connection while one replaces the other.
	MaxConnsPerPeer = 8
	// MaxPending bounds the concurrent handshakes, and so the cost of a flood of strangers.
	MaxPending = 1216
	// MaxPendingInbound reserves 512 of them for outgoing connections.
	MaxPendingInbound = 704
	// maxPendingKnown of these are for addresses of peers that this one has or had to do with.
	maxPendingKnown = 192
	// HandshakeTimeout bounds a handshake, and the time until a stream names its protocol.
	HandshakeTimeout = 5 * time.Second
	// MaxStreams bounds streams of all peers together, about four per connection.
	MaxStreams = 16384
	// MaxStreamsInbound keeps a quarter of them for streams that we open.
	MaxStreamsInbound = 12288
	// MaxStreamsPerPeer bounds the streams of one peer: one call per lease of a large provider at a time.
	MaxStreamsPerPeer = 512
	// maxStreamsOfStranger bounds the streams that a peer opens without a lease: gossip, the DHT, and a client's calls
	// through us.
	maxStreamsOfStranger = 128
	// MaxMemory bounds the memory that libp2p accounts for, mostly stream windows.
	MaxMemory = 1 << 30
	// MaxMemoryPerPeer bounds one peer's share: several concurrent bulk transfers.
	MaxMemoryPerPeer = 128 << 20
	// MaxConnsPerIP bounds connections from one IPv4 address or IPv6 /56: a farm of machines behind one router.
	MaxConnsPerIP = 128
	// ConnRatePerIP is how many new connections per second one such address may open, after a burst of MaxConnsPerIP.
	ConnRatePerIP = 8
	// ConnRate is how many new connections per second all addresses together may open, after a burst of MaxPending.
	ConnRate = 512

	// DefaultLow connections are kept when trimming: enough for the DHT's buckets and the gossip meshes.
	DefaultLow = 96
	// DefaultHigh connections begin a trim; protected peers are never trimmed.
	DefaultHigh = 160
	// TrimGrace is the time that a new connection is safe from trimming, so that its use can be known.
	TrimGrace = 30 * time.Second

	// DialTimeout bounds one dial with its handshake.
	DialTimeout = 10 * time.Second
	// quicDelay is how long a TCP dial has before QUIC is tried too: TCP is cheaper by half and faster in bulk.
	quicDelay = 250 * time.Millisecond
	// relayDelay is how long direct dials have before a relay is tried.
	relayDelay = 500 * time.Millisecond
)

// libp2p holds these for the process and reads them without a lock, so they are set before any host
// exists. Its own values keep a restarted peer undialled for 5 s to 5 min; ours for 250 ms to 10 s.
func init() {
	basichost.DefaultNegotiationTimeout = HandshakeTimeout
	swarm.BackoffBase = 250 * time.Millisecond
	swarm.BackoffCoef = 250 * time.Millisecond
	swarm.BackoffMax = 10 * time.Second
}

var (
	loopback4 = netip.MustParsePrefix("127.0.0.0/8")
	loopback6 = netip.MustParsePrefix("::1/128")
)

// resources makes the resource manager that holds the limits above, with ceilings by standing. Loopback is bounded only
// by the totals: a testnet runs dozens of peers there.
func resources(standings *admit.Standings) (*admit.Manager, error) {
	conns := func(total, in, fd rcmgr.LimitVal) rcmgr.ResourceLimits {
		return rcmgr.ResourceLimits{Conns: total, ConnsInbound: in, ConnsOutbound: total, FD: fd}
	}
	system := conns(MaxConns, MaxConnsInbound, MaxConns)
	system.Streams, system.StreamsInbound, system.StreamsOutbound = MaxStreams, MaxStreamsInbound, MaxStreams
	system.Memory = MaxMemory
	transient := conns(MaxPending, MaxPendingInbound, MaxPending)
	transient.Streams, transient.StreamsInbound, transient.StreamsOutbound = MaxStreams, MaxStreams, MaxStreams
	transient.Memory = MaxMemory / 4
	onePeer := conns(MaxConnsPerPeer, MaxConnsPerPeer, MaxConnsPerPeer)
	onePeer.Streams, onePeer.StreamsInbound = MaxStreamsPerPeer, MaxStreamsPerPeer
	onePeer.StreamsOutbound, onePeer.Memory = MaxStreamsPerPeer, MaxMemoryPerPeer
	limits := rcmgr.PartialLimitConfig{System: system,
		Transient: transient, PeerDefault: onePeer}.Build(rcmgr.InfiniteLimits)

	perIP := rate.Limit{RPS: ConnRatePerIP, Burst: MaxConnsPerIP}
	m, err := rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits),
		rcmgr.WithMetricsDisabled(),
		rcmgr.WithLimitPerSubnet(
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: MaxConnsPerIP}},
			[]rcmgr.ConnLimitPerSubnet{
				{PrefixLength: 56, ConnCount: MaxConnsPerIP},
				{PrefixLength: 48, ConnCount: 4 * MaxConnsPerIP},
			}),
		rcmgr.WithNetworkPrefixLimit(
			[]rcmgr.NetworkPrefixLimit{{Network: loopback4, ConnCount: math.MaxInt}},
			[]rcmgr.NetworkPrefixLimit{{Network: loopback6, ConnCount: math.MaxInt}}),
		rcmgr.WithConnRateLimiters(&rate.Limiter{
			NetworkPrefixLimits: []rate.PrefixLimit{{Prefix: loopback4}, {Prefix: loopback6}},
			GlobalLimit:         rate.Limit{RPS: ConnRate, Burst: MaxPending},
			SubnetRateLimiter: rate.SubnetLimiter{
				IPv4SubnetLimits: []rate.SubnetLimit{{PrefixLength: 32, Limit: perIP}},
				IPv6SubnetLimits: []rate.SubnetLimit{{PrefixLength: 56, Limit: perIP}},
				GracePeriod:      time.Minute,
			},
		}))
	if err != nil {
		return nil, fmt.Errorf("making resource manager: %w", err)
	}
	return admit.NewManager(m, standings, admit.Limits{
		Handshakes: MaxPendingInbound - maxPendingKnown, Known: maxPendingKnown, Conns: MaxConnsInbound,
		Streams: MaxStreamsInbound,
		PerPeer: [...]int{admit.Stranger: maxStreamsOfStranger, admit.Answered: 2 * maxStreamsOfStranger,
			admit.Funded: 2 * maxStreamsOfStranger, admit.Counterparty: MaxStreamsPerPeer},
	}), nil
}
