package keep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// Source is a room whose own records are proofs.
type Source interface {
	// Entries lists the proofs.
	Entries() []proof.Entry
	// Proof returns one by its hash. It returns proof.ErrUnknown.
	Proof(ctx context.Context, h sign.Hash) (proof.Proof, error)
}

// Catalog is all proofs of a peer: the Store's and those of other rooms.
type Catalog struct {
	Store   *Store
	Sources []Source
}

// List lists the proofs of a kind, or all for the empty one.
func (c Catalog) List(k proof.Kind) []proof.Entry {
	out := c.Store.List(k)
	for _, s := range c.Sources {
		for _, e := range s.Entries() {
			if k == "" || e.Kind == k {
				out = append(out, e)
			}
		}
	}
	return out
}

// Get returns a proof by its hash. It returns proof.ErrUnknown.
func (c Catalog) Get(ctx context.Context, h sign.Hash) (proof.Proof, error) {
	p, _, err := c.Store.Get(ctx, h)
	for _, s := range c.Sources {
		if !errors.Is(err, proof.ErrUnknown) {
			break
		}
		p, err = s.Proof(ctx, h)
	}
	return p, err
}

// CodeUnknown refuses a request for something that the peer does not have.
const CodeUnknown = "unknown"

// perPeer bounds one peer's requests at a time: a buyer requests a few proofs together.
const perPeer = 16

// Server answers other peers.
type Server struct {
	Catalog
	// Offered returns the records behind the proof of an offer of this peer; nil for another proof. It is optional.
	Offered func(root sign.Hash) []market.Shown
	// Card returns the physical device that a unit of this peer claims to be; nil if it is not known. It is optional.
	Card func(market.UnitID) []byte
}

// Handle answers other peers until the returned server is closed.
func (s Server) Handle(h *p2p.Host, tag string, log *slog.Logger) *stream.Server {
	answer := func(ctx context.Context, _ peer.ID, req *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
		return s.Answer(ctx, req)
	}
	return protocol.Proof.Handle(h, tag, answer, stream.Limits{PerPeer: perPeer, Logger: log})
}

// Answer answers one request.
func (s Server) Answer(ctx context.Context, req *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
	if len(req.Offered) > 0 {
		return s.offered(req)
	}
	if len(req.Hash) != sign.HashSize {
		return nil, malformed("hash of %d bytes", len(req.Hash))
	}
	p, err := s.Get(ctx, sign.Hash(req.Hash))
	if err == nil && !p.Kind.Public() {
		err = proof.ErrUnknown
	}
	if errors.Is(err, proof.ErrUnknown) {
		return nil, stream.Refuse(CodeUnknown, fmt.Sprintf("%v: %.4x", proof.ErrUnknown, req.Hash))
	}
	if err != nil {
		return nil, err
	}
	c, err := p.Open()
	if err != nil {
		return nil, err
	}
	out := &nodepb.ProofReply{Anchor: p.Anchor}
	if out.Proof, err = proof.Marshal(c); err != nil {
		return nil, err
	}
	if a, ok := c.(proof.Audit); ok && s.Card != nil {
		out.Card = s.Card(a.Record.Answer.Unit)
	}
	return out, nil
}

// offered answers a request for the list of records behind an offer.
func (s Server) offered(req *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
	if len(req.Offered) != sign.HashSize || len(req.Hash) > 0 {
		return nil, malformed("offered of %d bytes, hash of %d: want one of them", len(req.Offered), len(req.Hash))
	}
	if s.Offered == nil {
		return nil, stream.Refuse(CodeUnknown, "this peer has no offers")
	}
	list := s.Offered(sign.Hash(req.Offered))
	if len(list) == 0 {
		return nil, stream.Refuse(CodeUnknown, "no current offer of this peer has that proof")
	}
	b, err := market.MarshalShown(list)
	return &nodepb.ProofReply{Shown: b}, err
}

func malformed(format string, args ...any) error {
	return &stream.Malformed{Reason: fmt.Sprintf(format, args...)}
}

// Asker requests proofs and lists of audit records from other peers.
type Asker struct {
	Host *p2p.Host
	Tag  string // of the network
}

// Ask sends one request.
func (a Asker) Ask(ctx context.Context, from sign.Key, req *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
	id, err := p2p.PeerIDFromKey(from)
	if err != nil {
		return nil, err
	}
	return protocol.Proof.Call(ctx, a.Host, a.Tag, id, req)
}

// Fetch requests a proof by its hash. It checks that the answer is that proof, and an audit record's anchor against the
// root that it names; it checks nothing else. It returns proof.ErrUnknown for another proof.
func (a Asker) Fetch(ctx context.Context, from sign.Key, h sign.Hash) (proof.Content, error) {
	r, err := a.Ask(ctx, from, &nodepb.ProofRequest{Hash: h[:]})
	if err != nil {
		return nil, err
	}
	return Read(r, h)
}

// Read decodes the answer to a request for a proof, as Fetch does.
func Read(r *nodepb.ProofReply, h sign.Hash) (proof.Content, error) {
	c, err := proof.Unmarshal(r.Proof, r.Anchor)
	if err != nil {
		return nil, err
	}
	if c.Hash() != h {
		return nil, fmt.Errorf("%w: answered with %s, want %s", proof.ErrUnknown, c.Hash().Short(), h.Short())
	}
	if a, ok := c.(proof.Audit); ok && len(a.Anchor) > 0 {
		_, err = proof.ReadAnchor(a.Anchor, h)
	}
	return c, err
}
