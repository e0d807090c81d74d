package reputation

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// Asker requests anchored receipts from other peers.
type Asker struct {
	Host *p2p.Host
	Tag  string // of the network
}

// Ask sends a request to one peer. It returns market.ErrMalformed for a malformed answer.
func (a Asker) Ask(ctx context.Context, of sign.Key, after Mark) (Page, error) {
	id, err := p2p.PeerIDFromKey(of)
	if err != nil {
		return Page{}, err
	}
	reply, err := protocol.Anchored.Call(ctx, a.Host, a.Tag, id, requestOf(after))
	if err != nil {
		return Page{}, err
	}
	return pageOf(reply)
}

func requestOf(after Mark) *nodepb.AnchoredRequest {
	if after == (Mark{}) {
		return &nodepb.AnchoredRequest{}
	}
	return &nodepb.AnchoredRequest{Slot: uint64(after.Slot), Lease: after.Lease[:]}
}

// markIn reads a request.
func markIn(req *nodepb.AnchoredRequest) (m Mark, err error) {
	if len(req.Lease) != 0 && len(req.Lease) != sign.HashSize {
		return m, &stream.Malformed{Reason: fmt.Sprintf("lease of %d bytes", len(req.Lease))}
	}
	m.Slot = market.Slot(req.Slot)
	copy(m.Lease[:], req.Lease)
	return m, nil
}

// pageOf reads an answer; it verifies nothing.
func pageOf(reply *nodepb.AnchoredReply) (Page, error) {
	page := Page{More: reply.More}
	if len(reply.Receipts) > MaxPage || len(reply.Records) > MaxRecords {
		return page, fmt.Errorf("%w: %d receipts, at most %d are read; %d records, at most %d", market.ErrMalformed,
			len(reply.Receipts), MaxPage, len(reply.Records), MaxRecords)
	}
	for _, r := range reply.Receipts {
		if len(r.GetReceipt()) != verify.ReceiptSize {
			return page, fmt.Errorf("%w: receipt of %d bytes", market.ErrMalformed, len(r.GetReceipt()))
		}
		page.Receipts = append(page.Receipts, append(append([]byte{}, r.Receipt...), r.Anchor...))
	}
	for _, h := range reply.Records {
		if len(h) != sign.HashSize {
			return page, fmt.Errorf("%w: hash of %d bytes", market.ErrMalformed, len(h))
		}
		page.Records = append(page.Records, sign.Hash(h))
	}
	return page, nil
}

func replyOf(page Page) *nodepb.AnchoredReply {
	out := &nodepb.AnchoredReply{More: page.More}
	for _, b := range page.Receipts {
		out.Receipts = append(out.Receipts, &nodepb.AnchoredReply_Receipt{
			Receipt: b[:verify.ReceiptSize], Anchor: b[verify.ReceiptSize:],
		})
	}
	for _, h := range page.Records {
		out.Records = append(out.Records, h[:])
	}
	return out
}

// Handle answers other peers until the returned server is closed.
func (s *Shower) Handle(h *p2p.Host, tag string, log *slog.Logger) *stream.Server {
	answer := func(_ context.Context, _ peer.ID, req *nodepb.AnchoredRequest) (*nodepb.AnchoredReply, error) {
		after, err := markIn(req)
		if err != nil {
			return nil, err
		}
		return replyOf(s.Show(after)), nil
	}
	return protocol.Anchored.Handle(h, tag, answer, stream.Limits{PerPeer: 1, Logger: log})
}
