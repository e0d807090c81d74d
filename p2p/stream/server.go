package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/p2p/admit"
)

// Server answers one protocol on one host until it is closed.
type Server struct {
	h      host.Host
	id     protocol.ID
	limits Limits
	log    *slog.Logger
	ctx    context.Context // parent of every handler's context
	cancel context.CancelFunc

	reading *admit.Places // streams with incomplete requests
	places  *admit.Places // streams that the handler answers

	mu     sync.Mutex
	closed bool
	peers  map[peer.ID]int // streams of either kind
	stats  Stats
	wg     sync.WaitGroup
}

// Stats counts the streams of a Server by their outcome.
type Stats struct {
	Answered  uint64 // the handler's response was sent
	Refused   uint64 // declined by the handler
	Busy      uint64 // declined for the limits
	Malformed uint64 // the request did not decode, was too large, or was called malformed by the handler
	Failed    uint64 // the handler returned another error
	Panics    uint64 // the handler panicked; also counted as Failed
	Broken    uint64 // the stream broke before the answer was sent
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close stops answering, cancels running handlers and waits for them.
func (s *Server) Close() {
	s.h.RemoveStreamHandler(s.id)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// Handle answers the protocol with fn, which runs on a goroutine of its own for each call. Its context ends with the
// protocol's deadline, when the caller disconnects, and when the Server is closed. fn declines with [Refuse], and
// rejects an invalid request with [*Malformed]; any other error is logged and not sent. Register all handlers before
// connecting: a later one is announced to every connected peer.
func (p Protocol[Req, Resp]) Handle(
	h host.Host, network string, fn func(ctx context.Context, from peer.ID, req Req) (Resp, error), limits Limits,
) *Server {
	deadline, max := or(p.Deadline, DefaultDeadline), or(p.MaxResponse, DefaultMaxMessage)
	return serve(h, p.ID(network), limits, deadline, func(ctx context.Context, s stream) error {
		req, err := request[Req](s, or(p.MaxRequest, DefaultMaxMessage))
		if err != nil {
			return err
		}
		_ = s.SetDeadline(time.Now().Add(deadline))
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		ctx, watched := s.watch(ctx)
		defer watched()
		resp, err := fn(ctx, s.from, req)
		if err != nil {
			return err
		}
		return s.send(StatusOK, resp, max)
	})
}

// Serve answers the feed with fn, which sends items and returns when there are no more. send blocks while the caller is
// slow, and fails when the caller has disconnected. The rest is as in [Protocol.Handle].
func (f Feed[Req, Item]) Serve(
	h host.Host, network string, fn func(ctx context.Context, from peer.ID, req Req, send func(Item) error) error,
	limits Limits,
) *Server {
	stall, max := or(f.Stall, DefaultStall), or(f.MaxItem, DefaultMaxMessage)
	return serve(h, f.ID(network), limits, stall, func(ctx context.Context, s stream) error {
		req, err := request[Req](s, or(f.MaxRequest, DefaultMaxMessage))
		if err != nil {
			return err
		}
		ctx, watched := s.watch(ctx)
		defer watched()
		err = fn(ctx, s.from, req, func(item Item) error {
			_ = s.SetWriteDeadline(time.Now().Add(stall))
			return s.send(StatusOK, item, max)
		})
		_ = s.SetWriteDeadline(time.Now().Add(stall))
		if err != nil {
			return err
		}
		return s.send(StatusEnd, nil, 0)
	})
}

// Serve answers the transfer with fn, which returns the head and a body of exactly size bytes; the body is
// closed in every case. The rest is as in [Protocol.Handle].
func (t Transfer[Req, Head]) Serve(
	h host.Host, network string,
	fn func(ctx context.Context, from peer.ID, req Req) (head Head, body io.ReadCloser, size int64, err error),
	limits Limits,
) *Server {
	stall, max := or(t.Stall, DefaultStall), or(t.MaxHead, DefaultMaxMessage)
	return serve(h, t.ID(network), limits, stall, func(ctx context.Context, s stream) error {
		req, err := request[Req](s, or(t.MaxRequest, DefaultMaxMessage))
		if err != nil {
			return err
		}
		ctx, watched := s.watch(ctx)
		defer watched()
		head, body, size, err := fn(ctx, s.from, req)
		if err != nil {
			return err
		}
		defer body.Close()
		_ = s.SetWriteDeadline(time.Now().Add(stall))
		if err := s.send(StatusOK, head, max); err != nil {
			return err
		}
		return sendBody(s, body, size, stall)
	})
}

// sendBody writes the announced size and exactly that number of bytes. The head is already sent, so after an error only
// a reset is possible.
func sendBody(s stream, body io.Reader, size int64, stall time.Duration) error {
	if _, err := s.Write(binary.BigEndian.AppendUint64(nil, uint64(size))); err != nil {
		return &broken{err}
	}
	buf := make([]byte, min(chunk, max(size, 1)))
	for left := size; left > 0; {
		n, err := body.Read(buf[:min(int64(len(buf)), left)])
		if n > 0 {
			_ = s.SetWriteDeadline(time.Now().Add(stall))
			if _, err := s.Write(buf[:n]); err != nil {
				return &broken{err}
			}
			left -= int64(n)
		}
		if err != nil && left > 0 {
			return &broken{fmt.Errorf("reading body: %w", noEOF(err))}
		}
	}
	return nil
}

// stream is the answering side of one stream.
type stream struct {
	network.Stream
	from  peer.ID
	start func() error // takes a place to be answered, once the request is in
}

// broken is an error after which no answer can be sent to the caller.
type broken struct{ error }

func (b *broken) Unwrap() error { return b.error }

func (s stream) send(st Status, m proto.Message, max int) error {
	frame, err := encodeAnswer(st, m, max)
	if err != nil {
		return err
	}
	if _, err := s.Write(frame); err != nil {
		return &broken{err}
	}
	return nil
}

// watch cancels the context when the caller resets the stream or sends unexpected data. The returned function ends the
// watch and waits for it.
func (s stream) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [1]byte
		// A caller that closes its half cleanly still waits for the answer.
		if _, err := s.Read(b[:]); !errors.Is(err, io.EOF) {
			cancel()
		}
	}()
	return ctx, func() {
		_ = s.SetReadDeadline(time.Unix(1, 0))
		<-done
		cancel()
	}
}

// request reads and decodes the request, and takes a place for its answer. Afterwards the stream has no deadline.
func request[Req proto.Message](s stream, max int) (Req, error) {
	var none Req
	_ = s.SetDeadline(time.Now().Add(readTimeout))
	body, err := readRequest(s, max)
	switch {
	case errors.Is(err, ErrTooLarge):
		return none, &Malformed{Reason: err.Error()}
	case err != nil:
		return none, &broken{err}
	}
	req := fresh[Req]()
	if err := proto.Unmarshal(body, req); err != nil {
		return none, &Malformed{Reason: "request is not the protobuf message of this protocol"}
	}
	if err := s.start(); err != nil {
		return none, err
	}
	_ = s.SetDeadline(time.Time{})
	return req, nil
}

// serve registers the handler that admits streams and runs answer for each.
func serve(
	h host.Host, id protocol.ID, limits Limits, errDeadline time.Duration,
	answer func(ctx context.Context, s stream) error,
) *Server {
	limits.Concurrent = or(limits.Concurrent, DefaultConcurrent)
	limits.PerPeer = or(limits.PerPeer, DefaultPerPeer)
	srv := &Server{h: h, id: id, limits: limits, log: limits.Logger, peers: make(map[peer.ID]int),
		reading: admit.NewPlaces(readers * limits.Concurrent), places: admit.NewPlaces(limits.Concurrent)}
	if srv.log == nil {
		srv.log = slog.Default()
	}
	srv.ctx, srv.cancel = context.WithCancel(context.Background())
	h.SetStreamHandler(id, func(ns network.Stream) {
		s := stream{Stream: ns, from: ns.Conn().RemotePeer()}
		standing, at := srv.standing(s.from), admit.NetworkOf(ns.Conn().RemoteMultiaddr())
		free, err := srv.admit(s.from, standing, at)
		if err == nil {
			s.start = func() error {
				if r := limits.Rates; r != nil {
					if _, ok := r.Wait(s.from, standing, at, 1, time.Now(), 0); !ok {
						return srv.busy("peer accepts no more requests now")
					}
				}
				place := srv.places.Take(standing, at)
				if place == nil {
					return srv.busy("peer is at its limit of open streams")
				}
				free()
				free = place
				return nil
			}
			defer func() { srv.done(s.from, free) }()
			err = srv.run(s, answer)
		}
		srv.finish(s, err, errDeadline)
	})
	return srv
}

// standing returns p's standing at the host. On a host without standings every peer may use all of the places.
func (s *Server) standing(p peer.ID) admit.Standing {
	return admit.StandingOn(s.h, admit.Counterparty)(p)
}

// admit takes a place for a stream of p, or returns an error. The caller gives the place back by free.
func (s *Server) admit(p peer.ID, standing admit.Standing, at netip.Prefix) (free func(), err error) {
	s.mu.Lock()
	closed, full := s.closed, s.peers[p] >= s.limits.PerPeer
	if !closed && !full {
		s.peers[p]++
		s.wg.Add(1)
	}
	s.mu.Unlock()
	switch {
	case closed:
		return nil, Refuse(CodeClosing, "peer is shutting down")
	case full:
		return nil, s.busy(fmt.Sprintf("peer answers at most %d streams of one peer at a time", s.limits.PerPeer))
	}
	if free = s.reading.Take(standing, at); free == nil {
		s.done(p, func() {})
		return nil, s.busy("peer is at its limit of incoming requests")
	}
	return free, nil
}

func (s *Server) busy(why string) error {
	s.count(func(c *Stats) { c.Busy++ })
	return Refuse(CodeBusy, why)
}

func (s *Server) done(p peer.ID, free func()) {
	free()
	s.mu.Lock()
	if s.peers[p]--; s.peers[p] == 0 {
		delete(s.peers, p)
	}
	s.mu.Unlock()
	s.wg.Done()
}

// run calls answer; a panic of the handler ends here.
func (s *Server) run(st stream, answer func(ctx context.Context, s stream) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("stream handler panicked", "protocol", s.id, "peer", st.from, "panic", r, "stack",
				string(debug.Stack()))
			s.count(func(c *Stats) { c.Panics++ })
			err = fmt.Errorf("handler panicked: %v", r)
		}
	}()
	return answer(s.ctx, st)
}

// finish sends err to the caller, counts and closes.
func (s *Server) finish(st stream, err error, deadline time.Duration) {
	var refused *Refused
	var malformed *Malformed
	var gone *broken
	switch {
	case err == nil:
		s.count(func(c *Stats) { c.Answered++ })
	case errors.As(err, &gone):
		s.count(func(c *Stats) { c.Broken++ })
		s.log.Debug("stream broke", "protocol", s.id, "peer", st.from, "err", err)
		_ = st.Reset()
		return
	case errors.As(err, &refused):
		if refused.Code != CodeBusy {
			s.count(func(c *Stats) { c.Refused++ })
		}
	case errors.As(err, &malformed):
		s.count(func(c *Stats) { c.Malformed++ })
		s.log.Debug("malformed request", "protocol", s.id, "peer", st.from, "err", err)
	default:
		s.count(func(c *Stats) { c.Failed++ })
		s.log.Warn("stream handler failed", "protocol", s.id, "peer", st.from, "err", err)
	}
	if err != nil {
		_ = st.SetWriteDeadline(time.Now().Add(deadline))
		if _, err := st.Write(encodeError(err)); err != nil {
			_ = st.Reset()
			return
		}
	}
	_ = st.Close()
}

func (s *Server) count(f func(*Stats)) {
	s.mu.Lock()
	f(&s.stats)
	s.mu.Unlock()
}
