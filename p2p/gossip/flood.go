package gossip

import (
	"math"
	"net/netip"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

	"github.com/starling-network/starling/p2p/admit"
)

// Limits of neighbours, in messages a second and at once. A busy topic has some 25 a second, all of which an honest
// neighbour may be the first to pass on: the limit is four times that. A peer accepts less than farOver in all, so that
// none is blamed for passing on a flood.
const (
	perPeer, peerBurst    = 100, 400
	perPeerBytes          = 256 << 10 // a second, and four times that at once
	perNetwork, netBurst  = 100, 400  // of strangers
	ofStrangers, strBurst = 200, 800  // all together
	ofAll, allBurst       = 400, 1600
	farOver, farBurst     = 800, 3200 // messages beyond it cost score, one each
	forgiveFlood          = 10 * time.Minute
	// overhead is about the size of a message without its data and topic.
	overhead = 160
	// maxNets is the number of networks' buckets above which full buckets without a peer are dropped.
	maxNets = 1024
)

// flood bounds the messages of neighbours. It drops messages before pubsub sees them. A dropped message does not count
// as seen, so a flooder that passes on others' messages among its own cannot suppress them.
type flood struct {
	h        host.Host
	standing func(peer.ID) admit.Standing

	mu             sync.Mutex
	peers          map[peer.ID]*intake
	nets           map[netip.Prefix]*shared
	strangers, all *rate.Limiter
	dropped        uint64
}

// intake is the traffic of one neighbour.
type intake struct {
	messages, bytes, far *rate.Limiter
	net                  *shared // nil where its address is in no network
	blame                float64 // as of since
	since                time.Time
}

// shared is the total traffic of the neighbours of one network.
type shared struct {
	messages *rate.Limiter
	peers    int
}

func newIntake() *intake {
	return &intake{messages: rate.NewLimiter(perPeer, peerBurst), bytes: rate.NewLimiter(perPeerBytes, 4*perPeerBytes),
		far: rate.NewLimiter(farOver, farBurst)}
}

func newFlood(h host.Host) *flood {
	return &flood{
		h: h, standing: admit.StandingOn(h, admit.Stranger), peers: map[peer.ID]*intake{},
		nets: map[netip.Prefix]*shared{}, strangers: rate.NewLimiter(ofStrangers, strBurst),
		all: rate.NewLimiter(ofAll, allBurst),
	}
}

// inspect removes the messages over the limits from a frame. Control messages and subscriptions have their own limits.
func (f *flood) inspect(from peer.ID, rpc *pubsub.RPC) error {
	if len(rpc.GetPublish()) == 0 {
		return nil
	}
	now, stranger := time.Now(), f.standing(from) == admit.Stranger
	f.mu.Lock()
	defer f.mu.Unlock()
	in := f.intake(from)
	kept := rpc.Publish[:0]
	for _, m := range rpc.Publish {
		if in != nil && in.admits(m, now) && (!stranger || f.admitsStranger(in, now)) && f.all.AllowN(now, 1) {
			kept = append(kept, m)
			continue
		}
		f.dropped++
	}
	clear(rpc.Publish[len(kept):])
	rpc.Publish = kept
	return nil
}

func (f *flood) admitsStranger(in *intake, now time.Time) bool {
	return (in.net == nil || in.net.messages.AllowN(now, 1)) && f.strangers.AllowN(now, 1)
}

// admits counts a message against its neighbour, and penalizes a neighbour that is far over its limit.
func (in *intake) admits(m *pb.Message, now time.Time) bool {
	if !in.far.AllowN(now, 1) {
		in.blame = in.left(now) + 1
		in.since = now
	}
	return in.messages.AllowN(now, 1) &&
		in.bytes.AllowN(now, min(len(m.GetData())+len(m.GetTopic())+overhead, 4*perPeerBytes))
}

// left is the rest of the blame.
func (in *intake) left(now time.Time) float64 {
	if in.blame == 0 {
		return 0
	}
	return in.blame * math.Exp2(-now.Sub(in.since).Seconds()/forgiveFlood.Seconds())
}

// intake returns the state of a neighbour, nil if it is disconnected; f.mu is held.
func (f *flood) intake(p peer.ID) *intake {
	if in := f.peers[p]; in != nil {
		return in
	}
	if len(f.h.Network().ConnsToPeer(p)) == 0 { // asked under the lock, so that left comes later
		return nil
	}
	in := newIntake()
	f.peers[p] = in
	if at := admit.NetworkOfPeer(f.h.Network(), p); at.IsValid() {
		if in.net = f.nets[at]; in.net == nil {
			f.sweep()
			in.net = &shared{messages: rate.NewLimiter(perNetwork, netBurst)}
			f.nets[at] = in.net
		}
		in.net.peers++
	}
	return in
}

// sweep forgets networks when there are many: those without connections and with full buckets; f.mu is held.
func (f *flood) sweep() {
	if len(f.nets) < maxNets {
		return
	}
	now := time.Now()
	for at, n := range f.nets {
		if n.peers == 0 && n.messages.TokensAt(now) >= netBurst {
			delete(f.nets, at)
		}
	}
}

// left forgets a disconnected peer. The traffic of its network's strangers stays counted, for the next of them.
func (f *flood) left(p peer.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := f.peers[p]
	if in == nil || f.h.Network().Connectedness(p) != network.NotConnected {
		return
	}
	delete(f.peers, p)
	if in.net != nil {
		in.net.peers--
	}
}

// score is a neighbour's penalty for sending far more than it may.
func (f *flood) score(p peer.ID) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if in := f.peers[p]; in != nil {
		return -in.left(time.Now())
	}
	return 0
}

// lost is how many messages were dropped.
func (f *flood) lost() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropped
}
