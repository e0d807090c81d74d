package rewards

import (
	"context"
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// codeUnknown refuses a document that this peer does not have.
const codeUnknown = "unknown"

// Streams are the Peers of a host.
type Streams struct {
	Host *p2p.Host
	Tag  string // of the network
}

// Read implements Peers: part after part, each but the last of full length, until all of it is there. It returns
// market.ErrMalformed for a peer with a document that changes its length, is too long, or comes in other parts.
func (s Streams) Read(ctx context.Context, from sign.Key, d Document, most int) ([]byte, error) {
	id, err := p2p.PeerIDFromKey(from)
	if err != nil {
		return nil, err
	}
	return read(func(offset uint64) (*nodepb.RewardsReply, error) {
		return protocol.Rewards.Call(ctx, s.Host, s.Tag, id, &nodepb.RewardsRequest{
			Document: nodepb.RewardsRequest_Document(d.Kind), Epoch: d.Epoch,
			Provider: d.Provider[:], Unit: d.Unit[:], Root: d.Root[:], Offset: offset,
		})
	}, most)
}

func read(part func(offset uint64) (*nodepb.RewardsReply, error), most int) ([]byte, error) {
	var out []byte
	for total := uint64(1); uint64(len(out)) < total; {
		r, err := part(uint64(len(out)))
		if refused, ok := errors.AsType[*stream.Refused](err); ok && refused.Code == codeUnknown {
			return nil, ErrNoDocument
		}
		if err != nil {
			return nil, err
		}
		if len(out) == 0 {
			total = r.Total
		}
		if r.Total != total || total == 0 || total > uint64(most) ||
			uint64(len(r.Part)) != min(protocol.MaxRewardsPart, total-uint64(len(out))) {
			return nil, fmt.Errorf("%w: a part of %d bytes after %d of %d, at most %d are read",
				market.ErrMalformed, len(r.Part), len(out), r.Total, most)
		}
		out = append(out, r.Part...)
	}
	return out, nil
}

// Handle answers other peers; close the result to stop.
func (r *archive) Handle(h *p2p.Host, tag string) *stream.Server {
	answer := func(ctx context.Context, _ peer.ID, req *nodepb.RewardsRequest) (*nodepb.RewardsReply, error) {
		return r.answer(ctx, req)
	}
	return protocol.Rewards.Handle(h, tag, answer, stream.Limits{Logger: r.cfg.Log})
}

func (r *archive) answer(ctx context.Context, req *nodepb.RewardsRequest) (*nodepb.RewardsReply, error) {
	if len(req.Provider) != sign.KeySize || len(req.Unit) != sign.HashSize || len(req.Root) != sign.HashSize {
		return nil, &stream.Malformed{Reason: fmt.Sprintf("provider of %d bytes, unit of %d, root of %d",
			len(req.Provider), len(req.Unit), len(req.Root))}
	}
	b, err := r.Document(ctx, Document{
		Kind: Kind(min(req.Document, 255)), Epoch: req.Epoch,
		Provider: sign.Key(req.Provider), Unit: market.UnitID(req.Unit), Root: sign.Hash(req.Root),
	})
	if errors.Is(err, ErrNoDocument) || err == nil && req.Offset >= uint64(len(b)) {
		return nil, stream.Refuse(codeUnknown, ErrNoDocument.Error())
	}
	if err != nil {
		return nil, err
	}
	part := b[req.Offset:]
	return &nodepb.RewardsReply{Total: uint64(len(b)), Part: part[:min(len(part), protocol.MaxRewardsPart)]}, nil
}
