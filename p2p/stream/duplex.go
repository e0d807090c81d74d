package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"google.golang.org/protobuf/proto"
)

// DefaultIdle is the idle timeout of a duplex stream.
const DefaultIdle = time.Hour

// Duplex is one typed request and answer on a stream that then carries raw bytes both ways until both sides have closed
// theirs. It has no overall deadline.
type Duplex[Req, Resp proto.Message] struct {
	Name        string        // part of the protocol ID: [a-z0-9-]+
	Version     int           // part of the protocol ID
	MaxRequest  int           // bytes of an encoded request
	MaxResponse int           // bytes of an encoded response
	Deadline    time.Duration // of opening: request and answer; DefaultDeadline
	Idle        time.Duration // without a byte either way; DefaultIdle
}

// ID is the protocol ID on a network: /starling/<name>/<version>/<network>.
func (d Duplex[Req, Resp]) ID(network string) protocol.ID { return id(d.Name, d.Version, network) }

// Open requests a stream from the peer. It lives until both sides have closed it, [Conn.Close], or the end of ctx; the
// caller must close it. A relayed connection is good enough. The errors are those of [Protocol.Call].
func (d Duplex[Req, Resp]) Open(
	ctx context.Context, h host.Host, network string, to peer.ID, req Req,
) (Resp, *Conn, error) {
	var none Resp
	octx, cancel := context.WithTimeout(ctx, or(d.Deadline, DefaultDeadline))
	defer cancel()
	c, err := open(relayed(octx), h, d.ID(network), to, req, or(d.MaxRequest, DefaultMaxMessage))
	if err != nil {
		return none, nil, failed(octx, d.Name, to, err)
	}
	resp, st, err := answer[Resp](c, or(d.MaxResponse, DefaultMaxMessage))
	if err == nil && st != StatusOK {
		err = fmt.Errorf("%w: end of feed", ErrBadReply)
	}
	if err == nil && !c.stop() { // the deadline of opening is over: the stream is reset
		err = octx.Err()
	}
	if err != nil {
		c.abandon()
		return none, nil, failed(octx, d.Name, to, cut(c.s, err))
	}
	return resp, newConn(ctx, c.s, or(d.Idle, DefaultIdle)), nil
}

// Serve answers with fn, which accepts with a response and then has the stream until it returns. An error before
// accepting is sent as in [Protocol.Handle]; one after that resets the stream. The context ends when the Server is
// closed; reading or writing shows that the caller is gone.
func (d Duplex[Req, Resp]) Serve(
	h host.Host, network string,
	fn func(ctx context.Context, from peer.ID, req Req, accept func(Resp) (*Conn, error)) error, limits Limits,
) *Server {
	deadline, idle := or(d.Deadline, DefaultDeadline), or(d.Idle, DefaultIdle)
	return serve(h, d.ID(network), limits, deadline, func(ctx context.Context, s stream) error {
		req, err := request[Req](s, or(d.MaxRequest, DefaultMaxMessage))
		if err != nil {
			return err
		}
		_ = s.SetDeadline(time.Now().Add(deadline))
		var conn *Conn
		err = fn(ctx, s.from, req, func(resp Resp) (*Conn, error) {
			if conn != nil {
				return nil, errors.New("stream was accepted before")
			}
			if err := s.send(StatusOK, resp, or(d.MaxResponse, DefaultMaxMessage)); err != nil {
				return nil, err
			}
			_ = s.SetDeadline(time.Time{})
			conn = newConn(ctx, s.Stream, idle)
			return conn, nil
		})
		switch {
		case conn == nil && err == nil:
			return errors.New("stream was neither accepted nor refused")
		case conn == nil:
			return err
		case err != nil:
			conn.Abort()
			return &broken{err}
		}
		conn.stop()
		return nil
	})
}

// Conn is one end of an open duplex stream. Reading and writing may be done at once by two goroutines.
type Conn struct {
	s       network.Stream
	idle    time.Duration
	used    atomic.Int64 // when a byte last moved, as Unix nanoseconds
	stop    func() bool
	close   sync.Once
	writing sync.Mutex // held during a Write
}

func newConn(ctx context.Context, s network.Stream, idle time.Duration) *Conn {
	c := &Conn{s: s, idle: idle}
	c.moved()
	c.stop = context.AfterFunc(ctx, func() { _ = s.Reset() })
	return c
}

func (c *Conn) moved() { c.used.Store(time.Now().UnixNano()) }

// left is how long the stream may still be idle.
func (c *Conn) left() time.Duration {
	return c.idle - time.Since(time.Unix(0, c.used.Load()))
}

// Read reads the peer's bytes; io.EOF when it has closed its side. Bytes that go the other way keep a waiting Read
// alive.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		_ = c.s.SetReadDeadline(time.Now().Add(max(c.left(), time.Millisecond)))
		n, err := c.s.Read(p)
		if n > 0 {
			c.moved()
		}
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.left() > 0 {
			continue
		}
		return n, c.told(err)
	}
}

// Write sends p. It fails if the peer accepts nothing for the protocol's Idle.
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	done := 0
	for done < len(p) {
		_ = c.s.SetWriteDeadline(time.Now().Add(c.idle))
		n, err := c.s.Write(p[done:min(done+chunk, len(p))])
		done += n
		c.moved()
		if err != nil {
			return done, c.told(err)
		}
	}
	return done, nil
}

// told returns io.EOF unchanged and wraps other errors. An error that wraps io.EOF is the connection's end, not the
// stream's.
func (c *Conn) told(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, through(c.s, err))
}

// Relayed is the stream's relayed path; nil if it is direct.
func (c *Conn) Relayed() *Relayed { return RelayedBy(c.s.Conn()) }

// CloseWrite notifies the peer that no more bytes follow; reading continues.
func (c *Conn) CloseWrite() error { return c.s.CloseWrite() }

// Close ends both sides. Written data still arrives. During a Write it is Abort: the peer may never read the rest. It
// may be called more than once.
func (c *Conn) Close() error {
	var err error
	c.close.Do(func() {
		c.stop()
		if !c.writing.TryLock() {
			err = c.s.Reset()
			return
		}
		defer c.writing.Unlock()
		err = c.s.Close()
	})
	return err
}

// Abort ends both sides immediately: the peer sees a broken stream, not an end.
func (c *Conn) Abort() {
	c.close.Do(func() {
		c.stop()
		_ = c.s.Reset()
	})
}
