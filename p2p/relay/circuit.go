package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/pb"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/proto"
	circuit "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/util"
	ma "github.com/multiformats/go-multiaddr"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/starling-network/starling/p2p/admit"
)

// connect opens a circuit from the client of st to its requested peer and carries it to its end.
func (s *Service) connect(st network.Stream, req *pb.HopMessage, answered func()) {
	client := st.Conn().RemotePeer()
	if relayed(st.Conn().RemoteMultiaddr()) {
		// Nested circuits would cost every relay on the path without a benefit.
		s.refuse(st, pb.Status_PERMISSION_DENIED, "request over a relayed connection")
		return
	}
	target, err := util.PeerToPeerInfoV2(req.GetPeer())
	if err != nil {
		s.refuse(st, pb.Status_MALFORMED_MESSAGE, err.Error())
		return
	}
	if target.ID == s.h.ID() || target.ID == client || !s.allowed(client, target.ID) {
		s.refuse(st, pb.Status_PERMISSION_DENIED, "not allowed")
		return
	}
	at := admit.NetworkOf(st.Conn().RemoteMultiaddr())
	if !s.take(client, target.ID, at) {
		s.refuse(st, pb.Status_RESOURCE_LIMIT_EXCEEDED, "circuit limit of this relay reached")
		return
	}
	defer s.release(client, target.ID, at)
	span, err := st.Scope().BeginSpan()
	if err == nil {
		defer span.Done()
		err = errors.Join(span.ReserveMemory(2*buffer, network.ReservationPriorityHigh),
			st.Scope().SetService(circuit.ServiceName))
	}
	if err != nil {
		s.refuse(st, pb.Status_RESOURCE_LIMIT_EXCEEDED, err.Error())
		return
	}
	to, err := s.stop(client, target.ID, at)
	if err != nil {
		status := pb.Status_CONNECTION_FAILED
		if errors.Is(err, errUnknown) {
			status = pb.Status_NO_RESERVATION
		}
		s.refuse(st, status, err.Error())
		return
	}
	defer s.forget(to)
	if !s.track(to) || s.respond(st, pb.Status_OK) != nil {
		_ = st.Reset()
		_ = to.Reset()
		return
	}
	answered()
	s.carry(st, to)
}

func (s *Service) allowed(client, target peer.ID) bool {
	return s.cfg.Allow == nil || s.cfg.Allow(client, target)
}

// take counts a circuit, or returns false if there is no room.
func (s *Service) take(client, target peer.ID, at netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.cfg.Limits
	full := s.byPeer[client] >= l.PerPeer || s.byPeer[target] >= l.PerPeer
	if s.closed || full || !s.room(client, s.open, l.Circuits, s.from, at, l.shareCircuits()) {
		return false
	}
	s.open++
	s.from.add(at, 1)
	s.byPeer[client]++
	s.byPeer[target]++
	return true
}

func (s *Service) release(client, target peer.ID, at netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.from.add(at, -1)
	for _, p := range []peer.ID{client, target} {
		if s.byPeer[p]--; s.byPeer[p] == 0 {
			delete(s.byPeer, p)
		}
	}
}

// errUnknown: the relay has no address of the target.
var errUnknown = errors.New("no reservation, no connection and no address")

// stop requests that the target accept the client's circuit.
func (s *Service) stop(client, target peer.ID, at netip.Prefix) (network.Stream, error) {
	ctx, cancel := context.WithTimeout(s.ctx, connectTimeout)
	defer cancel()
	if err := s.locate(ctx, client, target, at); err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		to, err := s.ask(ctx, client, target)
		if err == nil || errors.Is(err, errStatus) || tries == maxTries || ctx.Err() != nil ||
			s.h.Network().Connectedness(target) == network.NotConnected {
			return to, err
		}
	}
}

// maxTries bounds the connections over which a target is tried. A peer that dials TCP and QUIC drops the slower one,
// which we may have seen established; a failed request reveals that.
const maxTries = 4

// ask sends the target one request, over one of its connections.
func (s *Service) ask(ctx context.Context, client, target peer.ID) (network.Stream, error) {
	// A target that is itself behind a NAT may be connected to us through another relay only: that carries the circuit
	// too.
	to, err := s.h.NewStream(network.WithAllowLimitedConn(ctx, "circuit"), target, proto.ProtoIDv2Stop)
	if err != nil {
		return nil, fmt.Errorf("asking the target: %w", err)
	}
	cut := context.AfterFunc(ctx, func() { _ = to.Reset() })
	defer cut()
	err = to.Scope().SetService(circuit.ServiceName)
	if err == nil && !s.allowed(client, target) {
		err = errors.New("not allowed")
	}
	if err == nil {
		_, err = protodelim.MarshalTo(to, &pb.StopMessage{
			Type: pb.StopMessage_CONNECT.Enum(), Peer: util.PeerInfoToPeerV2(peer.AddrInfo{ID: client}),
			Limit: s.cfg.Limits.message(),
		})
	}
	var resp pb.StopMessage
	if err == nil {
		rd := util.NewDelimitedReader(to, maxMessage)
		defer rd.Close()
		err = rd.ReadMsg(&resp)
	}
	if err == nil && (resp.GetType() != pb.StopMessage_STATUS || resp.GetStatus() != pb.Status_OK) {
		err = fmt.Errorf("%w: %s", errStatus, resp.GetStatus())
	}
	if err == nil && !cut() {
		err = ctx.Err()
	}
	if err != nil {
		_ = to.Reset()
		return nil, fmt.Errorf("asking the target: %w", err)
	}
	return to, nil
}

// locate makes sure that the host is connected to the target or knows an address to dial.
func (s *Service) locate(ctx context.Context, client, target peer.ID, at netip.Prefix) error {
	if s.h.Network().Connectedness(target) != network.NotConnected ||
		slices.ContainsFunc(s.h.Peerstore().Addrs(target), s.foreign) {
		return nil
	}
	if s.cfg.Find == nil {
		return errUnknown
	}
	done, err := s.finding.take(ctx, client, at)
	if err != nil {
		return fmt.Errorf("waiting for the lookup of the target: %w", err)
	}
	info, err := s.cfg.Find(ctx, target)
	done()
	if err != nil || !slices.ContainsFunc(info.Addrs, s.foreign) {
		return fmt.Errorf("%w: %w", errUnknown, errors.Join(err))
	}
	s.h.Peerstore().AddAddrs(target, info.Addrs, peerstore.TempAddrTTL)
	return nil
}

// foreign reports whether dialling the address does not come back to this relay.
func (s *Service) foreign(a ma.Multiaddr) bool {
	via, err := a.ValueForProtocol(ma.P_P2P)
	return err != nil || !relayed(a) || via != s.h.ID().String()
}

// carry copies between both streams until both directions have ended or a limit is reached.
func (s *Service) carry(a, b network.Stream) {
	s.mu.Lock()
	s.stats.Opened++
	s.mu.Unlock()
	l := s.cfg.Limits
	if l.Duration > 0 {
		end := time.Now().Add(l.Duration)
		_, _ = a.SetDeadline(end), b.SetDeadline(end)
	} else {
		_, _ = a.SetDeadline(time.Time{}), b.SetDeadline(time.Time{})
	}
	var carried atomic.Int64
	back := make(chan struct{})
	go func() {
		defer close(back)
		s.copy(a, b, &carried)
	}()
	s.copy(b, a, &carried)
	<-back
	_, _ = a.Close(), b.Close()
	s.mu.Lock()
	s.stats.Bytes += uint64(carried.Load())
	s.mu.Unlock()
}

// copy carries one direction. A clean end is passed on; anything else cuts the circuit.
func (s *Service) copy(to, from network.Stream, carried *atomic.Int64) {
	buf := make([]byte, buffer)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if total := carried.Add(int64(n)); s.cfg.Limits.Data > 0 && total > s.cfg.Limits.Data {
				err = errors.New("data limit")
			} else if werr := s.pace.WaitN(s.ctx, n); werr != nil {
				err = werr
			} else if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			_ = to.CloseWrite()
			return
		default:
			_, _ = to.Reset(), from.Reset()
			return
		}
	}
}

func relayed(a ma.Multiaddr) bool {
	_, err := a.ValueForProtocol(ma.P_CIRCUIT)
	return err == nil
}
