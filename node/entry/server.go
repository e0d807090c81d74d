package entry

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/entry/entrypb"
	"github.com/starling-network/starling/node/rates"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
)

// Config is the configuration of an entry. RPC is optional; if nil, calls to the chain are not passed on.
type Config struct {
	Genesis market.Genesis
	Market  Market
	// Audits is optional; if nil, as on a network without audits, clients' requests about them are not served.
	Audits Audits
	// Slot returns the chain's current slot as this peer sees it, and whether the chain answered last.
	Slot func() (slot market.Slot, up bool)
	// Others returns peers that serve clients too.
	Others func() []peer.AddrInfo
	// RPC passes one JSON-RPC call to the chain. It refuses other calls with *stream.Refused. It is optional; if nil,
	// clients need their own access to the chain.
	RPC    func(ctx context.Context, call []byte) ([]byte, error)
	Limits Limits
	Log    *slog.Logger
}

// Market is the market as an entry peer sees it.
type Market interface {
	// FindSigned returns signed offers of a class, at most most.
	FindSigned(ctx context.Context, c market.Class, regions []market.Region, most int) ([][]byte, error)
	// PublishFor gossips an order for its buyer, the client, and returns the number of neighbours in its topic. It
	// passes quotes on to the client.
	PublishFor(ctx context.Context, client peer.ID, o market.Order, envelope []byte) (int, error)
	// Peers estimates the size of the network; 0 if it is not known.
	Peers() int
}

// Audits is the public facts of audits.
type Audits interface {
	// Roster returns the set that committees of a window are drawn from.
	Roster(ctx context.Context, w audit.Window) (audit.Roster, error)
	// Recent returns the last two windows with an audit up to one.
	Recent(ctx context.Context, w audit.Window) (audit.Recent, error)
}

// Limits are the requests per second of all clients together; zero means the default. One peer gets a small part of
// each (see share), and one network address four times that.
type Limits struct {
	Finds  float64 // DefaultFinds
	Orders float64 // DefaultOrders
	Calls  float64 // to the chain; DefaultCalls
}

// The defaults serve a few hundred working clients at a low cost for a peer: a look-up in the DHT is some dozen
// messages, an order one gossip message, a call one request to the chain's server.
const (
	DefaultFinds  = 20
	DefaultOrders = 10
	DefaultCalls  = 100
)

// Limits of one client's requests, a second and at once. A job with a lost rank orders anew every half second; a
// payment makes about ten calls to the chain in a row and then a few a second.
const (
	// CallsPerClient is how many calls to the chain of one client are passed on a second.
	CallsPerClient = 10
	// CallBurst is how many come at once.
	CallBurst = 60
	// CallsAtOnce is how many of one client are under way at a time.
	CallsAtOnce = stream.DefaultPerPeer

	findsPerClient, findBurst   = 2, 10
	ordersPerClient, orderBurst = 2, 10
	hellosPerClient, helloBurst = 4, 20

	perAddress = 4    // clients behind one address share this multiple of one client's part
	maxClients = 4096 // remembered at a time
	totalBurst = 2    // seconds of the total that may come at once
	findFresh  = time.Second
	maxCached  = 64 // remembered look-ups, for findFresh
)

// share bounds one kind of request.
type share struct {
	peers *rates.Limiter[peer.ID]
	addrs *rates.Limiter[netip.Prefix]
	total *rates.Limiter[struct{}]
}

func newShare(perSecond float64, burst int, total float64) *share {
	return &share{
		peers: rates.New[peer.ID](perSecond, burst, maxClients),
		addrs: rates.New[netip.Prefix](perAddress*perSecond, perAddress*burst, maxClients),
		total: rates.New[struct{}](total, max(int(totalBurst*total), 1), 1),
	}
}

// Server serves light clients until it is closed.
type Server struct {
	h       host.Host
	cfg     Config
	genesis []byte
	servers []*stream.Server
	ctx     context.Context // of look-ups, which serve several clients
	cancel  context.CancelFunc

	hellos, finds, orders, calls *share

	mu     sync.Mutex
	cached map[string]*looked
}

// looked is one look-up of offers, running or done.
type looked struct {
	done   chan struct{}
	at     time.Time
	offers [][]byte
	err    error
}

// Serve begins to serve light clients on h.
func Serve(h host.Host, cfg Config) (*Server, error) {
	g, err := json.Marshal(cfg.Genesis)
	if err != nil {
		return nil, err
	}
	or := func(v, otherwise float64) float64 {
		if v > 0 {
			return v
		}
		return otherwise
	}
	l := cfg.Limits
	s := &Server{
		h: h, cfg: cfg, genesis: g, cached: map[string]*looked{},
		hellos: newShare(hellosPerClient, helloBurst, 10*or(l.Finds, DefaultFinds)),
		finds:  newShare(findsPerClient, findBurst, or(l.Finds, DefaultFinds)),
		orders: newShare(ordersPerClient, orderBurst, or(l.Orders, DefaultOrders)),
		calls:  newShare(CallsPerClient, CallBurst, or(l.Calls, DefaultCalls)),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	limits, tag := stream.Limits{Logger: cfg.Log}, cfg.Genesis.Tag()
	s.servers = []*stream.Server{
		hello.Handle(h, p2p.AnyNetwork, s.hello, limits),
		find.Handle(h, tag, s.find, limits),
		publish.Handle(h, tag, s.publish, limits),
	}
	if cfg.RPC != nil {
		s.servers = append(s.servers, rpc.Handle(h, tag, s.rpc, limits))
	}
	if cfg.Audits != nil {
		s.servers = append(s.servers, roster.Handle(h, tag, s.roster, limits), recent.Handle(h, tag, s.recent, limits))
	}
	return s, nil
}

// Close stops serving and waits.
func (s *Server) Close() {
	s.cancel()
	for _, srv := range s.servers {
		srv.Close()
	}
}

// admit refuses a client with too many requests. The total is checked last, so that one client's flood does not use it
// up.
func (s *Server) admit(sh *share, from peer.ID) error {
	now := time.Now()
	if !sh.peers.Allow(from, now) {
		return stream.Refuse(stream.CodeBusy, "too many requests")
	}
	if a, ok := s.addressOf(from); ok && !sh.addrs.Allow(a, now) {
		return stream.Refuse(stream.CodeBusy, "too many requests from your address")
	}
	if !sh.total.Allow(struct{}{}, now) {
		return stream.Refuse(stream.CodeBusy, "too many requests of all clients; use another entry peer")
	}
	return nil
}

// addressOf returns the network of a client: an IPv4 address or an IPv6 /56. Loopback has none.
func (s *Server) addressOf(p peer.ID) (netip.Prefix, bool) {
	for _, c := range s.h.Network().ConnsToPeer(p) {
		ip, err := manet.ToIP(c.RemoteMultiaddr())
		if err != nil {
			continue
		}
		a, ok := netip.AddrFromSlice(ip)
		if a = a.Unmap(); !ok || a.IsLoopback() {
			continue
		}
		bits := 32
		if a.Is6() {
			bits = 56
		}
		if pre, err := a.Prefix(bits); err == nil {
			return pre, true
		}
	}
	return netip.Prefix{}, false
}

func (s *Server) hello(_ context.Context, from peer.ID, _ *entrypb.HelloRequest) (*entrypb.HelloReply, error) {
	if err := s.admit(s.hellos, from); err != nil {
		return nil, err
	}
	slot, up := s.cfg.Slot()
	m := &entrypb.HelloReply{
		Genesis: s.genesis, Slot: uint64(slot), ChainUp: up, Rpc: s.cfg.RPC != nil, Peers: uint32(s.cfg.Market.Peers()),
	}
	for _, o := range s.cfg.Others() {
		if e, ok := encodeEntry(o); ok && o.ID != from && len(m.Others) < MaxOthers {
			m.Others = append(m.Others, e)
		}
	}
	return m, nil
}

func (s *Server) find(ctx context.Context, from peer.ID, req *entrypb.FindRequest) (*entrypb.FindReply, error) {
	c, regions, most, err := checkFind(req)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	if err := s.admit(s.finds, from); err != nil {
		return nil, err
	}
	offers, err := s.look(ctx, c, regions)
	if err != nil {
		return nil, err
	}
	return &entrypb.FindReply{Offers: offers[:min(len(offers), most)]}, nil
}

// checkFind parses a search.
func checkFind(req *entrypb.FindRequest) (c market.Class, regions []market.Region, most int, err error) {
	c = market.Class(req.Class)
	if err := c.Check(); err != nil {
		return c, nil, 0, err
	}
	if len(req.Regions) > market.MaxRegions {
		return c, nil, 0, errors.New("too many regions")
	}
	for _, text := range req.Regions {
		r := market.Region(text)
		if err := r.Check(); err != nil {
			return c, nil, 0, err
		}
		regions = append(regions, r)
	}
	return c, regions, int(min(req.Most, MaxOffers)), nil
}

// look finds offers, at most once a second for all clients with the same search.
func (s *Server) look(ctx context.Context, c market.Class, regions []market.Region) ([][]byte, error) {
	key := string(c)
	for _, r := range regions {
		key += "\x00" + string(r)
	}
	s.mu.Lock()
	l := s.cached[key]
	if l == nil || !l.at.IsZero() && time.Since(l.at) > findFresh {
		for k, old := range s.cached {
			if !old.at.IsZero() && (time.Since(old.at) > findFresh || len(s.cached) >= maxCached) {
				delete(s.cached, k)
			}
		}
		l = &looked{done: make(chan struct{})}
		s.cached[key] = l
		s.mu.Unlock()
		// Others wait for it too, so it does not end when this client goes away.
		fctx, cancel := context.WithTimeout(s.ctx, quick)
		offers, err := s.cfg.Market.FindSigned(fctx, c, regions, MaxOffers)
		cancel()
		s.mu.Lock()
		l.offers, l.err, l.at = slices.Clip(offers), err, time.Now()
		s.mu.Unlock()
		close(l.done)
	} else {
		s.mu.Unlock()
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return l.offers, l.err
	}
}

// publish gossips an order that the client itself signed; it refuses other signers.
func (s *Server) publish(
	ctx context.Context, from peer.ID, req *entrypb.PublishRequest,
) (*entrypb.PublishReply, error) {
	if err := s.admit(s.orders, from); err != nil {
		return nil, err
	}
	o, err := market.DecodeOrder(s.cfg.Genesis.Domain(), req.Order, time.Now())
	switch {
	case errors.Is(err, market.ErrExpired), errors.Is(err, market.ErrNotYet):
		return nil, stream.Refuse("expired", err.Error())
	case err != nil:
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	if key, err := p2p.KeyFromPeerID(from); err != nil || o.Peer() != sign.Key(key) {
		return nil, &stream.Malformed{Reason: "the order is another buyer's"}
	}
	n, err := s.cfg.Market.PublishFor(ctx, from, o, req.Order)
	if err != nil {
		return nil, err
	}
	return &entrypb.PublishReply{Neighbours: uint32(n)}, nil
}

// recent returns the windows with audits. The costly part of the answer is computed once for all clients.
func (s *Server) recent(ctx context.Context, from peer.ID, req *entrypb.RecentRequest) (*entrypb.RecentReply, error) {
	if err := s.admit(s.finds, from); err != nil {
		return nil, err
	}
	r, err := s.cfg.Audits.Recent(ctx, audit.Window(req.Window))
	if err != nil {
		return nil, stream.Refuse("no-audits", err.Error())
	}
	return &entrypb.RecentReply{Last: uint64(r.Last), Before: uint64(r.Before)}, nil
}

// roster returns a window's roster. The costly part of the answer is computed once for all clients.
func (s *Server) roster(ctx context.Context, from peer.ID, req *entrypb.RosterRequest) (*entrypb.RosterReply, error) {
	if err := s.admit(s.finds, from); err != nil {
		return nil, err
	}
	r, err := s.cfg.Audits.Roster(ctx, audit.Window(req.Window))
	if err != nil {
		return nil, stream.Refuse("no-roster", err.Error())
	}
	return &entrypb.RosterReply{Members: r.Marshal()}, nil
}

func (s *Server) rpc(ctx context.Context, from peer.ID, req *entrypb.RPCRequest) (*entrypb.RPCReply, error) {
	if len(req.Call) > MaxCall {
		return nil, &stream.Malformed{Reason: "the call is too large"}
	}
	if err := s.admit(s.calls, from); err != nil {
		return nil, err
	}
	answer, err := s.cfg.RPC(ctx, req.Call)
	if err != nil {
		return nil, err
	}
	if len(answer) > MaxAnswer {
		return nil, stream.Refuse("too-large", "the chain's answer is larger than an entry peer passes on")
	}
	return &entrypb.RPCReply{Answer: answer}, nil
}
