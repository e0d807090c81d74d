package coords

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	ownKey = "own" // of the record in coordinates

	// soonest and latest are the waits between rounds: the first follows soon, each later one after twice as long.
	soonest, latest = 2 * time.Second, time.Minute
	// atOnce is the number of peers observed in a round, pings the number of pings to each.
	atOnce, pings = 4, 3
	// observeTimeout bounds observing one peer.
	observeTimeout = 5 * time.Second
	// savedBy is the least movement of the peer that is journalled.
	savedBy = time.Millisecond
)

// coordinates has the last coordinate of this peer.
var coordinates = journal.Define[string, market.Coordinate]("coordinate")

// Config is the configuration of a Service.
type Config struct {
	Host    *p2p.Host
	Network string // tag of the genesis
	Store   journal.Store
	Log     *slog.Logger
}

// Service keeps a peer's coordinate. New starts nothing; Run does.
type Service struct {
	cfg   Config
	space *Space
	saved market.Coordinate
}

// New begins at the peer's last journalled place.
func New(ctx context.Context, cfg Config) (*Service, error) {
	s := &Service{cfg: cfg}
	var err error
	if s.saved, err = coordinates.Get(ctx, cfg.Store, ownKey); err != nil {
		if !errors.Is(err, store.ErrNotFound) { // it is found out again
			cfg.Log.Warn("where this peer was in the network is forgotten", "err", err)
		}
		s.saved = market.Coordinate{}
	}
	s.space, err = NewSpace(s.saved)
	return s, err
}

// Coordinate returns the peer's coordinate; zero while it is unknown.
func (s *Service) Coordinate() market.Coordinate { return s.space.Coordinate() }

// Run observes peers until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	server := protocol.Coord.Handle(s.cfg.Host, s.cfg.Network, s.answer, stream.Limits{PerPeer: 2, Logger: s.cfg.Log})
	defer server.Close()
	wait := soonest
	for {
		t := time.NewTimer(wait/2 + rand.N(wait/2)) // peers that started together must not send together
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		if s.round(ctx) > 0 {
			wait = min(2*wait, latest)
			s.save(ctx)
		}
	}
}

// round observes a few of the connected peers and returns their number.
func (s *Service) round(ctx context.Context) int {
	peers := slices.DeleteFunc(s.cfg.Host.Network().Peers(), func(p peer.ID) bool { return !s.direct(p) })
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := 0
	for _, p := range peers[:min(len(peers), atOnce)] {
		wg.Go(func() {
			if err := s.observe(ctx, p); err != nil {
				s.cfg.Log.Debug("reading a peer's coordinate failed", "peer", p, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			seen++
		})
	}
	wg.Wait()
	return seen
}

// direct reports whether a peer is connected without a relay, which would distort the measurement, and answers such
// questions.
func (s *Service) direct(p peer.ID) bool {
	known, err := s.cfg.Host.Peerstore().SupportsProtocols(p, protocol.Coord.ID(s.cfg.Network))
	if err != nil || len(known) == 0 {
		return false
	}
	return slices.ContainsFunc(s.cfg.Host.Network().ConnsToPeer(p), func(c network.Conn) bool {
		return stream.RelayedBy(c) == nil
	})
}

// observe requests a peer's coordinate, measures the round trip, and updates the own coordinate.
func (s *Service) observe(ctx context.Context, p peer.ID) error {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	reply, err := protocol.Coord.Call(ctx, s.cfg.Host, s.cfg.Network, p, &nodepb.CoordRequest{})
	if err != nil {
		return err
	}
	at, err := market.UnmarshalCoordinate(reply.Coordinate)
	if err != nil {
		return err
	}
	r, err := s.cfg.Host.Ping(ctx, peer.AddrInfo{ID: p}, pings)
	if err != nil {
		return err
	}
	if r.Conn.Path == p2p.PathRelayed {
		return errors.New("only a relay connects it")
	}
	return s.space.Observe(string(p), at, slices.Min(r.RTTs), time.Now())
}

// answer returns this peer's coordinate.
func (s *Service) answer(context.Context, peer.ID, *nodepb.CoordRequest) (*nodepb.CoordReply, error) {
	return &nodepb.CoordReply{Coordinate: s.space.published().Marshal()}, nil
}

// save journals the peer's coordinate, once it has moved.
func (s *Service) save(ctx context.Context) {
	c := s.space.Coordinate()
	if c.IsZero() {
		return
	}
	was := s.saved
	was.Height, c.Height = max(was.Height, c.Height)-min(was.Height, c.Height), 0
	if !s.saved.IsZero() && was.Distance(c) < savedBy {
		return
	}
	c = s.space.Coordinate()
	if err := coordinates.Write(ctx, s.cfg.Store, ownKey, c); err != nil {
		s.cfg.Log.Warn("this peer's coordinate was not journalled", "err", err)
		return
	}
	s.saved = c
}
