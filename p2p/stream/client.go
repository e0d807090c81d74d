package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"
	"google.golang.org/protobuf/proto"
)

// Call sends a request to the peer and returns its response. It uses an existing connection, or dials the addresses in
// the host's peerstore. Errors: [*Refused], [*Malformed], [ErrUnreachable], [ErrUnsupported], [ErrTooLarge],
// [ErrBadReply], [ErrInternal], or the context's.
func (p Protocol[Req, Resp]) Call(ctx context.Context, h host.Host, network string, to peer.ID, req Req) (Resp, error) {
	var none Resp
	ctx, cancel := context.WithTimeout(ctx, or(p.Deadline, DefaultDeadline))
	defer cancel()
	c, err := open(relayed(ctx), h, p.ID(network), to, req, or(p.MaxRequest, DefaultMaxMessage))
	if err != nil {
		return none, failed(ctx, p.Name, to, err)
	}
	defer c.close()
	resp, st, err := answer[Resp](c, or(p.MaxResponse, DefaultMaxMessage))
	if err == nil && st != StatusOK {
		err = fmt.Errorf("%w: end of feed", ErrBadReply)
	}
	if err != nil {
		return none, failed(ctx, p.Name, to, cut(c.s, err))
	}
	return resp, nil
}

// Open requests a feed from the peer. The items live until ctx ends or [Items.Close]; the caller must close them. The
// errors of opening and of Next are those of [Protocol.Call].
func (f Feed[Req, Item]) Open(
	ctx context.Context, h host.Host, network string, to peer.ID, req Req,
) (*Items[Item], error) {
	c, err := open(relayed(ctx), h, f.ID(network), to, req, or(f.MaxRequest, DefaultMaxMessage))
	if err != nil {
		return nil, failed(ctx, f.Name, to, err)
	}
	return &Items[Item]{ctx: ctx, c: c, name: f.Name, to: to, max: or(f.MaxItem, DefaultMaxMessage)}, nil
}

// Items is the caller's side of an open feed. It is not safe for concurrent use, except Close.
type Items[Item proto.Message] struct {
	ctx  context.Context // of Open: the feed lives no longer
	c    *call
	name string
	to   peer.ID
	max  int
	err  error
}

// Next waits for the next item. A complete feed ends with io.EOF; every later call returns the same error.
func (i *Items[Item]) Next() (Item, error) {
	var none Item
	if i.err != nil {
		return none, i.err
	}
	item, st, err := answer[Item](i.c, i.max)
	switch {
	case err != nil:
		i.err = failed(i.ctx, i.name, i.to, cut(i.c.s, err))
	case st == StatusEnd:
		i.err = io.EOF
	}
	if i.err != nil {
		i.c.close()
		return none, i.err
	}
	return item, nil
}

// Close notifies the peer that no more items are wanted. It may be called more than once.
func (i *Items[Item]) Close() { i.c.abandon() }

// Open requests a transfer from the peer and returns its head and body. The body ends with io.EOF after exactly Size
// bytes, with io.ErrUnexpectedEOF when the peer sends fewer. The caller must close it.
func (t Transfer[Req, Head]) Open(
	ctx context.Context, h host.Host, network string, to peer.ID, req Req,
) (Head, *Body, error) {
	var none Head
	c, err := open(relayed(ctx), h, t.ID(network), to, req, or(t.MaxRequest, DefaultMaxMessage))
	if err != nil {
		return none, nil, failed(ctx, t.Name, to, err)
	}
	stall := or(t.Stall, DefaultStall)
	_ = c.s.SetReadDeadline(time.Now().Add(stall))
	head, st, err := answer[Head](c, or(t.MaxHead, DefaultMaxMessage))
	if err == nil && st != StatusOK {
		err = fmt.Errorf("%w: end of feed", ErrBadReply)
	}
	var size [8]byte
	if err == nil {
		_, err = io.ReadFull(c.s, size[:])
	}
	n := binary.BigEndian.Uint64(size[:])
	if err == nil && n > 1<<62 {
		err = fmt.Errorf("%w: body of %d bytes", ErrBadReply, n)
	}
	if err != nil {
		c.abandon()
		return none, nil, failed(ctx, t.Name, to, cut(c.s, err))
	}
	return head, &Body{Size: int64(n), ctx: ctx, c: c, left: int64(n), stall: stall, name: t.Name, to: to}, nil
}

// Body is the raw part of a transfer.
type Body struct {
	Size int64 // bytes that the peer announced

	ctx   context.Context // of Open: the body lives no longer
	c     *call
	left  int64
	stall time.Duration
	name  string
	to    peer.ID
}

// Read reads raw bytes. It fails if the peer sends nothing for the protocol's Stall.
func (b *Body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	_ = b.c.s.SetReadDeadline(time.Now().Add(b.stall))
	n, err := b.c.s.Read(p)
	b.left -= int64(n)
	switch {
	case err == nil || b.left == 0:
		return n, nil
	case errors.Is(err, io.EOF):
		return n, io.ErrUnexpectedEOF
	}
	return n, failed(b.ctx, b.name, b.to, through(b.c.s, err))
}

// Close ends the transfer, complete or not.
func (b *Body) Close() error {
	if b.left > 0 {
		b.c.abandon()
	} else {
		b.c.close()
	}
	return nil
}

// relayed allows a relayed connection: relays of this network carry gigabytes, and transfers cut at a limit are
// resumed.
func relayed(ctx context.Context) context.Context {
	return network.WithAllowLimitedConn(ctx, "starling")
}

// call is the requesting side of one stream, reset when its context ends.
type call struct {
	s    network.Stream
	stop func() bool
}

func (c *call) close() {
	c.stop()
	_ = c.s.Close()
}

func (c *call) abandon() {
	c.stop()
	_ = c.s.Reset()
}

// open sends req on a new stream.
func open(ctx context.Context, h host.Host, pid protocol.ID, to peer.ID, req proto.Message, max int) (*call, error) {
	frame, err := encodeRequest(req, max)
	if err != nil {
		return nil, err
	}
	s, err := newStream(ctx, h, pid, to)
	if err != nil {
		return nil, err
	}
	c := &call{s: s, stop: context.AfterFunc(ctx, func() { _ = s.Reset() })}
	if _, err := s.Write(frame); err != nil {
		// A peer may refuse before it has read the request. Its answer is more specific than the broken pipe.
		if _, _, answered := readAnswer(s, maxRefusal); isAnswer(answered) {
			err = answered
		}
		c.abandon()
		return nil, err
	}
	return c, nil
}

// newStream opens a stream, over another connection when the first is dead: a peer that dials TCP and QUIC drops the
// slower one, which we may have seen established; a failed request reveals that. Nothing was sent by then.
func newStream(ctx context.Context, h host.Host, pid protocol.ID, to peer.ID) (network.Stream, error) {
	for tries := 1; ; tries++ {
		s, err := h.NewStream(ctx, to, pid)
		var unsupported multistream.ErrNotSupported[protocol.ID]
		if err == nil || errors.As(err, &unsupported) || tries == maxTries || ctx.Err() != nil ||
			h.Network().Connectedness(to) == network.NotConnected {
			return s, err
		}
	}
}

// maxTries bounds over how many connections a stream is tried to be opened.
const maxTries = 4

// answer reads and decodes the next answer frame.
func answer[M proto.Message](c *call, max int) (M, Status, error) {
	var none M
	st, body, err := readAnswer(c.s, max)
	if err != nil || st != StatusOK {
		return none, st, err
	}
	m := fresh[M]()
	if err := proto.Unmarshal(body, m); err != nil {
		return none, st, fmt.Errorf("%w: %w", ErrBadReply, err)
	}
	return m, st, nil
}

// isAnswer reports whether err is the peer's answer, and not a failure of the stream.
func isAnswer(err error) bool {
	var refused *Refused
	var malformed *Malformed
	return errors.As(err, &refused) || errors.As(err, &malformed) ||
		errors.Is(err, ErrInternal) || errors.Is(err, ErrBadReply) || errors.Is(err, ErrTooLarge)
}

// cut marks an error as relayed if a relay carried its stream, unless the error is an answer.
func cut(s network.Stream, err error) error {
	if isAnswer(err) {
		return err
	}
	return through(s, err)
}

// failed wraps err in its sentinel with the operation.
func failed(ctx context.Context, name string, to peer.ID, err error) error {
	var unsupported multistream.ErrNotSupported[protocol.ID]
	switch {
	case isAnswer(err):
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.As(err, &unsupported):
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	default:
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return fmt.Errorf("asking %s for %s: %w", to, name, err)
}
