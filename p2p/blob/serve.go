package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/blob/blobpb"
	"github.com/starling-network/starling/p2p/blob/chunks"
	"github.com/starling-network/starling/p2p/stream"
)

// Concurrency of serving: each transfer holds one buffer and one open file.
const (
	maxServed        = 64
	maxServedPerPeer = 8
)

// transfer is the protocol: the raw bytes after the head are the asked part of the blob.
var transfer = stream.Transfer[*blobpb.Request, *blobpb.Head]{
	Name: "blob", Version: 1, MaxRequest: 256, MaxHead: 64 + chunks.MaxCount/8,
}

// Codes of refusals.
const (
	// CodeNotFound: the peer does not have the blob, or may not give it to us; the code does not distinguish them.
	CodeNotFound = "not-found"
)

// errBusy is the refusal of a request that may succeed later.
var errBusy = stream.Refuse(stream.CodeBusy, "peer is computing a list of chunks")

// Fellows are peers that receive the same blobs for the same holders, and give each other the chunks that they have.
type Fellows interface {
	// Of returns the holders for which a peer may read a blob. It may read it only if one of them brought it here, or
	// is bringing it now.
	Of(p peer.ID, c cid.Cid) (holders []string)
	// Enter takes a place to send to a fellow until leave is called. It reports false if none is free.
	Enter() (leave func(), ok bool)
}

// Serve serves blobs of s to the peers that allow allows; a nil allow allows everything. allow is called before the
// store, so a refused peer cannot learn of the blob's existence. fellows is optional; if nil, there are none.
func Serve(
	h host.Host, network string, s *Store, allow func(peer.ID, cid.Cid) bool, fellows Fellows,
) *stream.Server {
	v := &server{s, allow, fellows}
	return transfer.Serve(h, network, v.answer, stream.Limits{Concurrent: maxServed, PerPeer: maxServedPerPeer})
}

type server struct {
	s       *Store
	allow   func(peer.ID, cid.Cid) bool
	fellows Fellows
}

func (v *server) answer(
	ctx context.Context, from peer.ID, req *blobpb.Request,
) (*blobpb.Head, io.ReadCloser, int64, error) {
	c, err := cid.Cast(req.GetCid())
	if err == nil {
		err = Check(c)
	}
	if err != nil {
		return nil, nil, 0, &stream.Malformed{Reason: err.Error()}
	}
	if v.allow == nil || v.allow(from, c) {
		if req.GetList() {
			return v.list(ctx, c)
		}
		f, err := v.s.Open(c)
		if err != nil {
			return nil, nil, 0, refusal(err)
		}
		return sent(f, nil, req)
	}
	if v.fellows == nil {
		return nil, nil, 0, refusal(ErrNotFound)
	}
	return v.share(ctx, from, c, req)
}

// refusal returns the answer to a request that the store cannot serve.
func refusal(err error) error {
	if errors.Is(err, ErrNotFound) {
		return stream.Refuse(CodeNotFound, "blob not found")
	}
	return err
}

// list answers a request for a blob's chunk list.
func (v *server) list(ctx context.Context, c cid.Cid) (*blobpb.Head, io.ReadCloser, int64, error) {
	l, err := v.s.lists.of(ctx, c)
	if errors.Is(err, ErrTooLarge) {
		return nil, nil, 0, &stream.Malformed{Reason: err.Error()}
	}
	if err != nil {
		return nil, nil, 0, refusal(err)
	}
	data := l.Bytes()
	return &blobpb.Head{Size: uint64(l.Blob)}, io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
}

// share answers a fellow. It sends the chunk list of whole blobs only.
func (v *server) share(
	ctx context.Context, from peer.ID, c cid.Cid, req *blobpb.Request,
) (*blobpb.Head, io.ReadCloser, int64, error) {
	holders := v.fellows.Of(from, c)
	if req.GetList() {
		if !slices.ContainsFunc(holders, func(h string) bool { return v.s.Brought(c, h) }) {
			return nil, nil, 0, refusal(ErrNotFound)
		}
		return v.list(ctx, c)
	}
	f, here, err := openFor(v.s, c, holders)
	if err != nil {
		return nil, nil, 0, refusal(err)
	}
	head, body, n, err := sent(f, here, req)
	if err != nil || n == 0 { // a fellow that only learns which chunks are here takes no place
		return head, body, n, err
	}
	leave, ok := v.fellows.Enter()
	if !ok {
		return nil, nil, 0, errors.Join(stream.Refuse(stream.CodeBusy, "peer sends to enough others"), f.Close())
	}
	return head, &leaving{body, leave}, n, nil
}

// leaving gives a fellow's place back.
type leaving struct {
	io.ReadCloser
	leave func()
}

func (l *leaving) Close() error {
	l.leave()
	return l.ReadCloser.Close()
}

// openFor opens a blob that one of some holders brought, or the part of it that came until now. here is nil for a whole
// blob. It returns ErrNotFound in all other cases.
func openFor(s *Store, c cid.Cid, holders []string) (f *os.File, here *arrived, err error) {
	for _, h := range holders {
		if s.Brought(c, h) {
			f, err := s.Open(c)
			return f, nil, err
		}
		a := s.arriving.of(c, h)
		if a == nil {
			continue
		}
		f, err := os.Open(s.path("partial", c.String()))
		if errors.Is(err, fs.ErrNotExist) { // it has just become whole, or was given up
			continue
		}
		return f, a.now(), err
	}
	return nil, nil, fmt.Errorf("%w: %s", ErrNotFound, c)
}

// sent returns the asked part of an open blob, which it closes after an error. If here is not nil, the blob has only
// these chunks.
func sent(f *os.File, here *arrived, req *blobpb.Request) (*blobpb.Head, io.ReadCloser, int64, error) {
	head, offset, length, err := asked(f, here, req)
	if err == nil {
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return nil, nil, 0, errors.Join(err, f.Close())
	}
	return head, f, length, nil
}

// asked returns the head of the answer, and the part of the file that is its body.
func asked(f *os.File, here *arrived, req *blobpb.Request) (head *blobpb.Head, offset, length int64, err error) {
	var size int64
	head = &blobpb.Head{}
	if here != nil {
		size, head.Chunks = here.size, here.have
	} else {
		info, err := f.Stat()
		if err != nil {
			return nil, 0, 0, err
		}
		size = info.Size()
	}
	head.Size = uint64(size)
	if req.GetOffset() > uint64(size) {
		return nil, 0, 0, &stream.Malformed{Reason: fmt.Sprintf("offset %d of %d", req.GetOffset(), size)}
	}
	offset = int64(req.GetOffset())
	length = size - offset
	if part, ok := req.GetPart().(*blobpb.Request_Length); ok {
		if part.Length > uint64(length) {
			reason := fmt.Sprintf("%d bytes from %d of %d", part.Length, offset, size)
			return nil, 0, 0, &stream.Malformed{Reason: reason}
		}
		length = int64(part.Length)
	}
	if here != nil && !here.have.Covers(here.size, offset, length) {
		return nil, 0, 0, stream.Refuse(CodeNotFound, "chunk not found")
	}
	return head, offset, length, nil
}
