// Package relay carries connections between peers that cannot reach each other. It speaks libp2p's circuit relay v2, so
// that the client in every libp2p host works with it unchanged, and differs from libp2p's own relay in two ways:
//
//	client ──one connection──> relay ──> peer with a reservation here         as libp2p's
//	                             └─────> any other peer of the network        the entry service
//
// A peer with a reservation has requested incoming circuits. The entry service also reaches other peers, over a
// connection that the relay has or can open. So a client needs only one entry peer to deliver its packets. It need not
// trust the entry with their content: both ends run their own handshake through the circuit. The limits are made for
// work (see [Limits]).
//
// On the wire, both messages with an unsigned varint length before them:
//
//	client → relay   /libp2p/circuit/relay/0.2.0/hop    HopMessage{CONNECT, target}      → HopMessage{STATUS, limit}
//	relay  → target  /libp2p/circuit/relay/0.2.0/stop   StopMessage{CONNECT, client}     → StopMessage{STATUS}
//
// after which both streams carry the bytes of the circuit. The relay dials a target only at addresses from its own
// sources. It ignores addresses in the client's message, so that a client cannot direct its dials.
package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/pb"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/proto"
	circuit "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/util"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/starling-network/starling/p2p/admit"
)

const (
	// maxMessage bounds one message of the protocol, as in libp2p.
	maxMessage = 4096
	// readTimeout bounds the wait for a request after its stream was opened.
	readTimeout = 30 * time.Second
	// connectTimeout bounds the lookup, the dial and the request to the target.
	connectTimeout = 20 * time.Second
	// maxAsking bounds requests that are being read or answered, circuits not counted.
	maxAsking = 256
	// maxAskingPerPeer bounds those of one peer.
	maxAskingPerPeer = 16
	// maxAskingPerNetwork bounds those of the clients of one network.
	maxAskingPerNetwork = maxAsking / 4
	// buffer is how many bytes of one direction of a circuit are copied at a time.
	buffer = 32 << 10
)

// Config is the limits of a relay and the peers that it serves. Every field may be left out.
type Config struct {
	Limits Limits
	// Allow reports whether client may be connected to target; nil allows all. It is called again once both are
	// connected.
	Allow func(client, target peer.ID) bool
	// Find looks up a target without a known address. It is optional; if nil, such targets are not found.
	Find func(ctx context.Context, target peer.ID) (peer.AddrInfo, error)
	// Standing returns a peer's standing, and so its reserve; nil: every peer is a stranger.
	Standing func(peer.ID) admit.Standing
	Logger   *slog.Logger // nil means slog.Default()
}

// Stats are counts since the start, and of now.
type Stats struct {
	Circuits int    // open now
	Opened   uint64 // circuits in all
	Refused  uint64 // requests that were answered with an error
	Bytes    uint64 // carried by circuits that have ended
}

// Service relays for one host until it is closed.
type Service struct {
	h       host.Host
	cfg     Config
	log     *slog.Logger
	stock   *circuit.Relay // keeps the reservations
	reserve network.StreamHandler
	ctx     context.Context
	cancel  context.CancelFunc
	places  *places
	finding *turns
	pace    *rate.Limiter // bytes of all circuits

	mu      sync.Mutex
	closed  bool
	asking  map[peer.ID]int
	askFrom shares
	askers  int
	open    int
	byPeer  map[peer.ID]int // circuits of a client or to a target
	from    shares          // circuits, by the client's network
	stats   Stats
	streams map[network.Stream]struct{}
	wg      sync.WaitGroup
}

// New begins to relay on h.
func New(h host.Host, cfg Config) (*Service, error) {
	if err := cfg.Limits.Check(); err != nil {
		return nil, err
	}
	cfg.Limits = cfg.Limits.withDefaults()
	s := &Service{
		h: h, cfg: cfg, log: cfg.Logger, finding: newTurns(), pace: cfg.Limits.pace(),
		asking: make(map[peer.ID]int), askFrom: shares{}, byPeer: make(map[peer.ID]int), from: shares{},
		streams: make(map[network.Stream]struct{}),
	}
	s.places = newPlaces(cfg.Limits, func(p peer.ID) bool {
		return h.Network().Connectedness(p) != network.NotConnected
	}, s.kept)
	if s.log == nil {
		s.log = slog.Default()
	}
	var err error
	if s.stock, err = circuit.New(catcher{h, s}, circuit.WithResources(cfg.Limits.resources()),
		circuit.WithACL(acl{s})); err != nil {
		return nil, fmt.Errorf("starting the relay: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	h.SetStreamHandler(proto.ProtoIDv2Hop, s.handle)
	return s, nil
}

// Stats returns the counts.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Circuits = s.open
	return st
}

// Close cuts all circuits, forgets all reservations and waits.
func (s *Service) Close() error {
	s.h.RemoveStreamHandler(proto.ProtoIDv2Hop)
	s.cancel()
	s.mu.Lock()
	s.closed = true
	for st := range s.streams {
		_ = st.Reset()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return s.stock.Close()
}

// catcher is the host as the reservation keeper sees it: its stream handler goes to us instead.
type catcher struct {
	host.Host
	s *Service
}

func (c catcher) SetStreamHandler(_ protocol.ID, h network.StreamHandler) { c.s.reserve = h }
func (c catcher) RemoveStreamHandler(protocol.ID)                         {}

// acl calls Allow for reservations as for circuits: a peer that may not be reached gets no place. Networks have their
// shares.
type acl struct{ s *Service }

func (a acl) AllowReserve(p peer.ID, at ma.Multiaddr) bool {
	return a.s.allowed(p, p) && a.s.places.allow(p, at)
}
func (a acl) AllowConnect(peer.ID, ma.Multiaddr, peer.ID) bool { return false } // never asked: we connect ourselves

// replay is a stream of which the beginning was read already.
type replay struct {
	network.Stream
	r io.Reader
}

func (r replay) Read(p []byte) (int, error) { return r.r.Read(p) }

// handle answers one request of a client.
func (s *Service) handle(st network.Stream) {
	client := st.Conn().RemotePeer()
	if !s.admit(client, st) {
		_ = st.Reset()
		return
	}
	defer s.wg.Done()
	defer s.forget(st)
	asking := true
	done := func() {
		if asking {
			asking = false
			s.answered(client, st)
		}
	}
	defer done()
	if st.Scope().ReserveMemory(maxMessage, network.ReservationPriorityAlways) != nil {
		_ = st.Reset()
		return
	}
	defer st.Scope().ReleaseMemory(maxMessage)

	_ = st.SetReadDeadline(time.Now().Add(readTimeout))
	// The request is read without reading beyond it: the bytes after it belong to the circuit.
	var read bytes.Buffer
	rd := util.NewDelimitedReader(io.TeeReader(st, &read), maxMessage)
	defer rd.Close()
	var req pb.HopMessage
	if err := rd.ReadMsg(&req); err != nil {
		s.refuse(st, pb.Status_MALFORMED_MESSAGE, err.Error())
		return
	}
	_ = st.SetReadDeadline(time.Time{})
	switch req.GetType() {
	case pb.HopMessage_RESERVE:
		s.reserve(replay{st, io.MultiReader(&read, st)})
	case pb.HopMessage_CONNECT:
		s.connect(st, &req, done)
	default:
		s.refuse(st, pb.Status_MALFORMED_MESSAGE, "unknown request")
	}
}

// kept reports whether a peer may use the reserve beside strangers' share.
func (s *Service) kept(p peer.ID) bool {
	return s.cfg.Standing != nil && s.cfg.Standing(p) >= admit.Counterparty
}

// room reports whether a peer from a network may have one more place, out of all in total and share for one network of
// strangers.
func (s *Service) room(p peer.ID, used, all int, from shares, at netip.Prefix, share int) bool {
	if s.kept(p) {
		return used < plus(all)
	}
	return used < all && !from.full(at, share)
}

// admit counts a request and records its stream. It reports whether the request is admitted.
func (s *Service) admit(client peer.ID, st network.Stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := admit.NetworkOf(st.Conn().RemoteMultiaddr())
	if s.closed || s.asking[client] >= maxAskingPerPeer ||
		!s.room(client, s.askers, maxAsking, s.askFrom, at, maxAskingPerNetwork) {
		s.stats.Refused++
		return false
	}
	s.askers++
	s.askFrom.add(at, 1)
	s.asking[client]++
	s.streams[st] = struct{}{}
	s.wg.Add(1)
	return true
}

func (s *Service) answered(client peer.ID, st network.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.askers--
	s.askFrom.add(admit.NetworkOf(st.Conn().RemoteMultiaddr()), -1)
	if s.asking[client]--; s.asking[client] == 0 {
		delete(s.asking, client)
	}
}

// track remembers a stream so that Close can cut it; false when it is too late.
func (s *Service) track(st network.Stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.streams[st] = struct{}{}
	return true
}

func (s *Service) forget(st network.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}

// refuse answers a client with an error.
func (s *Service) refuse(st network.Stream, status pb.Status, why string) {
	s.mu.Lock()
	s.stats.Refused++
	s.mu.Unlock()
	s.log.Debug("relaying refused", "peer", st.Conn().RemotePeer(), "status", status, "reason", why)
	if s.respond(st, status) != nil {
		_ = st.Reset()
		return
	}
	_ = st.Close()
}

// respond writes the answer to a client.
func (s *Service) respond(st network.Stream, status pb.Status) error {
	msg := &pb.HopMessage{Type: pb.HopMessage_STATUS.Enum(), Status: status.Enum()}
	if status == pb.Status_OK {
		msg.Limit = s.cfg.Limits.message()
	}
	_ = st.SetWriteDeadline(time.Now().Add(readTimeout))
	defer func() { _ = st.SetWriteDeadline(time.Time{}) }()
	_, err := protodelim.MarshalTo(st, msg)
	return err
}

// message is the announcement of the limits to both ends; nil when they are generous.
func (l Limits) message() *pb.Limit {
	if l.generous() {
		return nil
	}
	t := l.told()
	seconds, data := uint32(t.duration/time.Second), uint64(t.data)
	return &pb.Limit{Duration: &seconds, Data: &data}
}

var errStatus = errors.New("the target refused the circuit")
