package files

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// fetchAgain is how often a fetch that broke off is taken up again without a byte more: enough for the peer to be
	// reached over another relay.
	fetchAgain = 4
	// fetchPause is the pause before that; it doubles each time.
	fetchPause = 250 * time.Millisecond
)

// Fetch brings a blob from a peer into the store. A stored blob is not transferred if the peer brought it before, or
// may read it here. Otherwise the peer has to send it, to prove that it has more than the CID: the blob may be another
// peer's secret. A fetch that broke off, for example at a relay's limit, is resumed.
func (f *Files) Fetch(ctx context.Context, from peer.ID, c cid.Cid, max int64) error {
	f.cfg.Host.Find(ctx, from)
	return f.fetch(ctx, workload.Places{Peer: from}, c, max)
}

// sharedFrom is the size from which a blob is worth the questions to fellows.
const sharedFrom = 4 << 20

// swarm returns the peer at a place, with its fellows for a blob that is not known to be small.
func (f *Files) swarm(at workload.Places) blob.Swarm {
	one := func(id peer.ID) blob.Peer { return blob.Peer{Host: f.cfg.Host, Network: f.cfg.Network, ID: id} }
	s := blob.Swarm{Shared: one(at.Peer)}
	if at.Size > 0 && at.Size < sharedFrom {
		return s
	}
	for _, id := range at.Fellows {
		if id != at.Peer && id != f.cfg.Host.ID() && !f.fellows.isLost(id) {
			s.Fellows = append(s.Fellows, fellow{one(id), f})
			if id < f.cfg.Host.ID() {
				s.Turn++
			}
		}
	}
	return s
}

// Parts requests parts of blobs from other peers.
type Parts struct {
	Host    *p2p.Host
	Network string
}

// Part reads len(into) bytes of a blob of a known size from a peer, from offset on. The caller checks them. It returns
// swarm.ErrChunk for an answer that cannot be these bytes, blob.ErrAlone, or the reason why the peer sent none.
func (p Parts) Part(ctx context.Context, from peer.ID, c cid.Cid, size, offset int64, into []byte) error {
	p.Host.Find(ctx, from)
	_, err := blob.Peer{Host: p.Host, Network: p.Network, ID: from}.Part(ctx, c, size, offset, into)
	if err != nil && len(p.Host.Network().Peers()) == 0 {
		return fmt.Errorf("%w: %w", blob.ErrAlone, err)
	}
	return err
}

// fellow is a peer that is looked up before it is asked. One that cannot be reached is left alone for a while: a buyer
// may name others' peers for each of many files.
type fellow struct {
	blob.Peer
	f *Files
}

// Part implements swarm.Supplier.
func (p fellow) Part(ctx context.Context, c cid.Cid, size, offset int64, into []byte) ([]byte, error) {
	host := p.f.cfg.Host
	host.Find(ctx, p.ID)
	has, err := p.Peer.Part(ctx, c, size, offset, into)
	if errors.Is(err, stream.ErrUnreachable) && host.Network().Connectedness(p.ID) != network.Connected {
		p.f.fellows.lose(p.ID)
	}
	return has, err
}

func (f *Files) fetch(ctx context.Context, at workload.Places, c cid.Cid, max int64) error {
	from := at.Peer
	blobs, holders := f.cfg.Blobs, []string{workload.Holder(from)}
	source := f.swarm(at)
	for {
		if blobs.Has(c) {
			if f.mayRead(from, c, holders) {
				return nil
			}
			p := blob.NewProof(blobs, c)
			err := resume(ctx, func(progress func(done, total int64)) error {
				return p.Take(ctx, source, max, progress)
			})
			if err != nil {
				return err
			}
			return blobs.Bring(c, holders[0])
		}
		var fresh bool
		err := resume(ctx, func(progress func(done, total int64)) (err error) {
			fresh, err = blobs.Receive(ctx, source, c, max, holders, progress)
			return err
		})
		if err != nil || fresh {
			return err
		}
		// Another's fetch stored it meanwhile, which proves nothing about this peer.
	}
}

// resume calls fetch until it succeeds, fails permanently, or makes no progress fetchAgain times. A fetch that never
// began is not repeated, since its peer is not reachable, unless a relay cut it. The error then has advice.
func resume(ctx context.Context, fetch func(progress func(done, total int64)) error) error {
	var best int64
	pause := fetchPause
	for idle := 0; ; idle++ {
		was := best
		err := fetch(func(done, _ int64) { best = max(best, done) })
		if best > was {
			idle, pause = 0, fetchPause
		}
		var cut *stream.Relayed
		relayed := errors.As(err, &cut)
		switch {
		case err == nil || !errors.Is(err, stream.ErrUnreachable) || best == 0 && !relayed:
			return err
		case idle >= fetchAgain && relayed:
			return fmt.Errorf("%s came through, %d times no further: %w; %s", stream.Size(best), idle, err,
				api.HintRelay)
		case idle >= fetchAgain:
			return err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return err
		}
	}
}
