package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/blob/chunks"
	"github.com/starling-network/starling/p2p/blob/swarm"
	"github.com/starling-network/starling/p2p/stream"
)

// The fellows of a job read a blob of an origin once from there, and then from each other. An origin has no chunk list,
// so a fellow sends a blob only when all of it is verified, with its own list:
//
//	turn 0: nobody has it ──▶ origin                    turn n: ask all ──▶ one has it ──▶ its list, chunks of all
//	                                                             ├ it comes ──▶ ask again, until patience ends
//	                                                             └ nobody ──▶ ask again for n·turnTime, then origin
//
// A false list costs one more transfer, since the CID decides. The origin then sends all.

const (
	// turnTime is how long each turn waits for the one before it to begin.
	turnTime = 2 * time.Second
	// comesLeast is how long a fellow may take to receive a blob while others wait for it, beside the time that the
	// blob takes at comesRate, bytes in a second.
	comesLeast, comesRate = 2 * time.Second, 16 << 20
	// askTime is how long fellows may take to answer which chunks they have. askFirst and askMost are the pauses.
	askTime, askFirst, askMost = time.Second, 200 * time.Millisecond, 2 * time.Second
)

// pace is turnTime and askTime; tests have their own.
type pace struct{ turn, ask time.Duration }

// site is a file of the web, as a supplier of parts.
type site struct{ web.File }

// Part implements swarm.Supplier.
func (s site) Part(ctx context.Context, c cid.Cid, size, offset int64, into []byte) ([]byte, error) {
	body, _, err := s.Open(ctx, c, offset, size)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	_, err = io.ReadFull(body, into)
	return nil, err
}

// origin is a source that is no peer.
type origin interface {
	blob.Source
	swarm.Supplier
}

// relay is a blob of an origin that this peer reads together with fellows.
type relay struct {
	f      *Files
	origin origin
	at     workload.Places
	c      cid.Cid
}

// source returns the blob's source: with fellows if one of them has the blob, or receives it soon. The blob's size must
// be known: a fellow must not claim another.
func (r relay) source(ctx context.Context) blob.Source {
	s := r.f.swarm(r.at)
	if r.at.Size <= 0 || r.at.Size > chunks.MaxBlob || len(s.Fellows) == 0 {
		return r.origin
	}
	from, ok := r.await(ctx, s.Fellows)
	if !ok {
		return r.origin
	}
	s.Shared, s.Spare = &listed{origin: r.origin, from: from, size: r.at.Size}, true
	return s
}

// await waits for a fellow that has all of the blob. It returns false when this peer has to read the origin. Fellows
// that received the blob too slowly are left alone for a while.
func (r relay) await(ctx context.Context, all []swarm.Supplier) (from fellow, ok bool) {
	begun, turn := time.Now(), r.turn(all)
	for pause := askFirst; ctx.Err() == nil; pause = min(2*pause, askMost) {
		from, coming, ok := r.asked(ctx, all)
		if ok {
			return from, true
		}
		patience := time.Duration(turn) * r.f.pace.turn
		if len(coming) > 0 {
			patience = max(patience, comes(r.at.Size))
		}
		left := patience - time.Since(begun)
		if left <= 0 {
			for _, p := range coming {
				r.f.fellows.lose(p)
			}
			break
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
		}
	}
	return fellow{}, false
}

// comes is how long a fellow may take to receive a blob.
func comes(size int64) time.Duration { return comesLeast + time.Duration(size/comesRate)*time.Second }

// turn returns how many of some fellows come before this peer for the blob. Each blob has another order.
func (r relay) turn(all []swarm.Supplier) (n int) {
	place := func(id peer.ID) []byte {
		h := sha256.Sum256([]byte(string(id) + r.c.KeyString()))
		return h[:]
	}
	own := place(r.f.cfg.Host.ID())
	for _, s := range all {
		if p, ok := s.(fellow); ok && bytes.Compare(place(p.ID), own) < 0 {
			n++
		}
	}
	return n
}

// asked asks fellows whether they have the blob. It returns the first that has all of it, or those that receive it.
func (r relay) asked(ctx context.Context, all []swarm.Supplier) (from fellow, coming []peer.ID, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, r.f.pace.ask)
	defer cancel()
	type answer struct {
		of  fellow
		has chunks.Set
		err error
	}
	answers := make(chan answer, len(all))
	for _, s := range all {
		go func() {
			has, err := s.Part(ctx, r.c, r.at.Size, 0, nil)
			of, _ := s.(fellow)
			answers <- answer{of, has, err}
		}()
	}
	for range all {
		select {
		case a := <-answers:
			switch {
			case a.err != nil:
			case a.has == nil || a.has.Equal(chunks.All(chunks.Count(r.at.Size))):
				return a.of, nil, true
			default:
				coming = append(coming, a.of.ID)
			}
		case <-ctx.Done():
			return fellow{}, coming, false
		}
	}
	return fellow{}, coming, false
}

// listed is an origin with the chunk list of a fellow, which is believed as much as the fellow: the CID decides.
type listed struct {
	origin
	from fellow
	size int64
	gave bool // the fellow gave a list
}

var _ blob.Shared = (*listed)(nil)

// List implements blob.Shared.
func (l *listed) List(ctx context.Context, c cid.Cid, _ int64) (size int64, list []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, comes(l.size))
	defer cancel()
	err = stream.WhileBusy(ctx, func() (err error) {
		size, list, err = l.from.List(ctx, c, l.size)
		return err
	})
	if err == nil && size != l.size {
		err = fmt.Errorf("%w: size: got %d bytes, want %d", blob.ErrDigest, size, l.size)
	}
	if err != nil {
		l.from.f.fellows.lose(l.from.ID)
		return 0, nil, err
	}
	l.gave = true
	return size, list, nil
}

// Open implements blob.Source. It is called after List if the list was false.
func (l *listed) Open(ctx context.Context, c cid.Cid, offset, most int64) (io.ReadCloser, int64, error) {
	if l.gave {
		l.from.f.fellows.lose(l.from.ID)
	}
	return l.origin.Open(ctx, c, offset, most)
}

// receive reads the blob from a source, and from its origin alone if fellows beside it were no help.
func (r relay) receive(ctx context.Context, from blob.Source, max int64, holders []string) (fresh bool, err error) {
	fresh, err = r.f.cfg.Blobs.Receive(ctx, from, r.c, max, holders, nil)
	_, shared := from.(blob.Swarm)
	if err == nil || !shared || ctx.Err() != nil || workload.NoRoom(err) || errors.Is(err, blob.ErrTooLarge) {
		return fresh, err
	}
	return r.f.cfg.Blobs.Receive(ctx, r.origin, r.c, max, holders, nil)
}
