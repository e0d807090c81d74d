package exclusive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	rules "github.com/starling-network/starling/verify/exclusive"
)

// ErrNoRecord says that a peer does not give a record of that hash.
var ErrNoRecord = errors.New("no such record of a probe is public")

// codeUnknown refuses what this peer does not give.
const codeUnknown = "unknown"

// perAsker bounds how many questions of one peer are answered at a time.
const perAsker = 4

// Published are the records that a peer gives to everybody. It may be used by many goroutines.
type Published interface {
	// Probe is a record by its hash. ErrNoRecord.
	Probe(ctx context.Context, hash sign.Hash) ([]byte, error)
	// Probes are the hashes of all, ascending, at most protocol.MaxProbes.
	Probes(ctx context.Context) ([]sign.Hash, error)
}

// Publish answers who asks for records; close what it returns to stop. Every peer does, also one that has none: from nil.
func Publish(h *p2p.Host, tag string, from Published, log *slog.Logger) *stream.Server {
	return protocol.Probes.Handle(h, tag, func(ctx context.Context, _ peer.ID, req *nodepb.ProbesRequest) (*nodepb.ProbesReply, error) {
		return published(ctx, from, req)
	}, stream.Limits{PerPeer: perAsker, Logger: log})
}

func published(ctx context.Context, from Published, req *nodepb.ProbesRequest) (*nodepb.ProbesReply, error) {
	switch len(req.Hash) {
	case 0:
		out := &nodepb.ProbesReply{}
		if from == nil {
			return out, nil
		}
		all, err := from.Probes(ctx)
		for _, h := range all[:min(len(all), protocol.MaxProbes)] {
			out.Hashes = append(out.Hashes, h[:]...)
		}
		return out, err
	case sign.HashSize:
		if from == nil {
			return nil, stream.Refuse(codeUnknown, ErrNoRecord.Error())
		}
		b, err := from.Probe(ctx, sign.Hash(req.Hash))
		if errors.Is(err, ErrNoRecord) {
			return nil, stream.Refuse(codeUnknown, ErrNoRecord.Error())
		}
		return &nodepb.ProbesReply{Record: b}, err
	}
	return nil, &stream.Malformed{Reason: fmt.Sprintf("hash of %d bytes", len(req.Hash))}
}

// Asker asks peers for what they give to everybody.
type Asker struct {
	Host *p2p.Host
	Tag  string // of the network
}

func (a Asker) ask(ctx context.Context, of sign.Key, hash []byte) (*nodepb.ProbesReply, error) {
	id, err := p2p.PeerIDFromKey(of)
	if err != nil {
		return nil, err
	}
	r, err := protocol.Probes.Call(ctx, a.Host, a.Tag, id, &nodepb.ProbesRequest{Hash: hash})
	if no, ok := errors.AsType[*stream.Refused](err); ok && no.Code == codeUnknown {
		return nil, fmt.Errorf("%w: %s", ErrNoRecord, of.Short())
	}
	return r, err
}

// Record fetches a record from a peer and sees that it is the one. What it says is not checked. ErrNoRecord, market.ErrMalformed.
func (a Asker) Record(ctx context.Context, of sign.Key, hash sign.Hash) (rules.Record, error) {
	r, err := a.ask(ctx, of, hash[:])
	if err != nil {
		return rules.Record{}, err
	}
	return readRecord(r, hash)
}

func readRecord(r *nodepb.ProbesReply, hash sign.Hash) (rules.Record, error) {
	record, err := rules.UnmarshalRecord(r.Record)
	if err == nil && record.Hash() != hash {
		err = fmt.Errorf("%w: another record than %s", market.ErrMalformed, hash.Short())
	}
	if err != nil {
		return rules.Record{}, err
	}
	return record, nil
}

// List is the hashes of all records that a peer gives. market.ErrMalformed.
func (a Asker) List(ctx context.Context, of sign.Key) ([]sign.Hash, error) {
	r, err := a.ask(ctx, of, nil)
	if err != nil {
		return nil, err
	}
	return readList(r)
}

func readList(r *nodepb.ProbesReply) ([]sign.Hash, error) {
	if len(r.Hashes)%sign.HashSize != 0 || len(r.Hashes) > protocol.MaxProbes*sign.HashSize {
		return nil, fmt.Errorf("%w: hashes of %d bytes", market.ErrMalformed, len(r.Hashes))
	}
	var out []sign.Hash
	for b := range slices.Chunk(r.Hashes, sign.HashSize) {
		h := sign.Hash(b)
		if n := len(out); n > 0 && slices.Compare(out[n-1][:], h[:]) >= 0 {
			return nil, fmt.Errorf("%w: hashes that are not in order", market.ErrMalformed)
		}
		out = append(out, h)
	}
	return out, nil
}
