package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/time/rate"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/rates"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// Limits of a provider's measuring for one hold, and for others.
const (
	// MaxTargets is the maximum number of paths in one request.
	MaxTargets = 64
	// holdTargets and holdBytes bound the measured paths, and the bytes sent, for one hold.
	holdTargets = 2048
	holdBytes   = 512 << 20
	// holdFor is the lifetime of a hold's account: longer than any hold before its lease is active.
	holdFor = 2 * time.Minute
	// maxHolds bounds the accounts.
	maxHolds = 4096
	// pathTimeout bounds the paths of one request, dialling included.
	pathTimeout = 2500 * time.Millisecond

	// perSecond and burst are the streams that one other member may open, takeRate and takeBurst the bytes that are
	// taken of all.
	perSecond = 20
	burst     = 256
	maxPeers  = 4096
	takeRate  = 128 << 20
	takeBurst = 512 << 20
)

// Reasons for the buyer why a path was not measured: they quote no machine that is no peer.
const (
	FailedSelf      = "that is this peer itself"
	FailedUnreached = "it was not reached"
	FailedRefused   = "it refuses to be measured"
	FailedBroken    = "it broke off while it was measured"
)

// Holds is a provider's knowledge of its holds.
type Holds interface {
	// Measures is nil if a hold is live, not active yet, of a cluster's order, and commanded by a peer.
	Measures(hold market.HoldID, by sign.Key) error
	// Serves reports whether any live hold or lease of a cluster is commanded by a peer.
	Serves(by sign.Key) bool
}

// Service measures for peers that hold units here, and answers other such services. Close it.
type Service struct {
	host    host.Host
	tag     string
	holds   Holds
	log     *slog.Logger
	servers []*stream.Server
	opened  *rates.Limiter[peer.ID]
	taken   *rate.Limiter

	mu       sync.Mutex
	accounts map[market.HoldID]*account
}

var errSelf = errors.New("a path to this peer itself")

// account is the work done for a hold.
type account struct {
	since          time.Time
	targets, bytes int
}

// New answers on a host. tag is the network's.
func New(h host.Host, tag string, holds Holds, log *slog.Logger) *Service {
	s := &Service{
		host: h, tag: tag, holds: holds, log: log,
		opened: rates.New[peer.ID](perSecond, burst, maxPeers), taken: rate.NewLimiter(takeRate, takeBurst),
		accounts: map[market.HoldID]*account{},
	}
	s.servers = []*stream.Server{
		protocol.Measure.Handle(h, tag, s.measure, stream.Limits{PerPeer: 64, Concurrent: 128, Logger: log}),
		protocol.Link.Serve(h, tag, s.answer, stream.Limits{PerPeer: 8, Concurrent: 128, Logger: log}),
	}
	return s
}

// Close stops answering.
func (s *Service) Close() {
	for _, server := range s.servers {
		server.Close()
	}
}

// measure measures for the peer that commands a hold.
func (s *Service) measure(ctx context.Context, from peer.ID, req *nodepb.MeasureRequest) (*nodepb.MeasureReply, error) {
	k, err := p2p.KeyFromPeerID(from)
	if err != nil || len(req.Hold) != len(market.HoldID{}) {
		return nil, &stream.Malformed{Reason: "hold id is not 16 bytes"}
	}
	by, hold := sign.Key(k), market.HoldID(req.Hold)
	n := len(req.Targets)
	switch {
	case n < 1 || n > MaxTargets:
		return nil, &stream.Malformed{Reason: fmt.Sprintf("%d targets, want 1 to %d", n, MaxTargets)}
	case req.Rounds < 1 || req.Rounds > MaxEchoes:
		return nil, &stream.Malformed{Reason: fmt.Sprintf("%d rounds, want 1 to %d", req.Rounds, MaxEchoes)}
	case req.Bytes > MaxBytes || req.Bytes > 0 && n > 1:
		return nil, &stream.Malformed{Reason: fmt.Sprintf("%d bytes to %d targets, at most %d to one",
			req.Bytes, n, MaxBytes)}
	}
	targets := make([]peer.AddrInfo, n)
	for i, t := range req.Targets {
		if targets[i], err = target(t); err != nil {
			return nil, &stream.Malformed{Reason: err.Error()}
		}
	}
	if err := s.holds.Measures(hold, by); err != nil {
		return nil, stream.Refuse(string(market.ReasonHold), err.Error())
	}
	if !s.charge(hold, n, int(req.Bytes), time.Now()) {
		return nil, stream.Refuse(string(market.ReasonLimit), "enough was measured for this hold")
	}
	began := time.Now()
	pctx, cancel := context.WithDeadline(ctx, began.Add(pathTimeout))
	defer cancel()
	reply := &nodepb.MeasureReply{Results: make([]*nodepb.LinkResult, n)}
	var silent atomic.Bool // an address did not answer as the right peer
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() {
			r, err := s.path(pctx, t, by, int(req.Rounds), int(req.Bytes))
			if err != nil {
				class := s.class(t.ID, err)
				if class == FailedUnreached {
					silent.Store(true)
				}
				reply.Results[i] = &nodepb.LinkResult{Error: class}
				return
			}
			reply.Results[i] = &nodepb.LinkResult{
				RttMicros: uint32(max(r.RTT.Microseconds(), 1)), Mbit: r.Mbit, Relayed: r.Relayed,
			}
		})
	}
	wg.Wait()
	if silent.Load() {
		// the time of a failure would reveal the state of the address: a closed port, an open one, or nothing
		<-pctx.Done()
	}
	return reply, nil
}

// class is an error in the buyer's words.
func (s *Service) class(p peer.ID, err error) string {
	var refused *stream.Refused
	switch {
	case errors.Is(err, errSelf):
		return FailedSelf
	case s.host.Network().Connectedness(p) == network.NotConnected:
		return FailedUnreached
	case errors.As(err, &refused):
		return FailedRefused
	}
	return FailedBroken
}

// target reads a peer to be measured.
func target(t *nodepb.LinkTarget) (peer.AddrInfo, error) {
	if len(t.GetPeer()) != sign.KeySize || len(t.GetAddrs()) > market.MaxAddrs {
		return peer.AddrInfo{}, errors.New("a target is a key of 32 bytes and at most 8 addresses")
	}
	id, err := p2p.PeerIDFromKey([32]byte(t.Peer))
	if err != nil {
		return peer.AddrInfo{}, err
	}
	info := peer.AddrInfo{ID: id}
	for _, text := range t.Addrs {
		if a, err := ma.NewMultiaddr(text); err == nil {
			info.Addrs = append(info.Addrs, a)
		}
	}
	return info, nil
}

// charge counts the work for a hold; false: it had its share.
func (s *Service) charge(hold market.HoldID, targets, bytes int, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[hold]
	if a == nil {
		for id, old := range s.accounts {
			if now.Sub(old.since) > holdFor {
				delete(s.accounts, id)
			}
		}
		if len(s.accounts) >= maxHolds {
			return false
		}
		a = &account{since: now}
		s.accounts[hold] = a
	}
	if a.targets+targets > holdTargets || a.bytes+bytes > holdBytes {
		return false
	}
	a.targets, a.bytes = a.targets+targets, a.bytes+bytes
	return true
}

// path measures one path.
func (s *Service) path(ctx context.Context, to peer.AddrInfo, buyer sign.Key, rounds, most int) (Result, error) {
	if to.ID == s.host.ID() {
		return Result{}, errSelf
	}
	s.host.Peerstore().AddAddrs(to.ID, to.Addrs, peerstore.TempAddrTTL)
	_, conn, err := protocol.Link.Open(ctx, s.host, s.tag, to.ID, &nodepb.LinkRequest{Buyer: buyer[:]})
	if err != nil {
		return Result{}, err
	}
	defer conn.Abort()
	r := Result{Relayed: conn.Relayed() != nil}
	if r.RTT, err = echoes(conn, rounds, time.Now); err != nil {
		return Result{}, err
	}
	if most > 0 && !r.Relayed { // a relay is not there for that
		if r.Mbit, err = bulk(conn, most, r.RTT, time.Now); err != nil {
			return Result{}, err
		}
		_ = conn.Close()
	}
	return r, nil
}

// answer is the other end of path.
func (s *Service) answer(
	_ context.Context, from peer.ID, req *nodepb.LinkRequest, accept func(*nodepb.LinkReply) (*stream.Conn, error),
) error {
	if len(req.Buyer) != sign.KeySize {
		return &stream.Malformed{Reason: "a buyer's key is 32 bytes"}
	}
	if !s.holds.Serves(sign.Key(req.Buyer)) {
		return stream.Refuse(string(market.ReasonHold), "nothing is held here for a cluster of this buyer")
	}
	if !s.opened.Allow(from, time.Now()) {
		return stream.Refuse(stream.CodeBusy, "this peer is being measured too often")
	}
	conn, err := accept(&nodepb.LinkReply{})
	if err != nil {
		return err
	}
	stop := time.AfterFunc(2*pathTimeout, conn.Abort)
	defer stop.Stop()
	err = answer(conn, time.Now, func(n int) error {
		if !s.taken.AllowN(time.Now(), n) {
			return errors.New("too many bytes are being sent to measure this peer")
		}
		return nil
	})
	if err != nil {
		s.log.Debug("measuring a path ended early", "peer", from, "err", err)
		return err
	}
	return conn.Close()
}
