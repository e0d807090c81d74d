package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// A lease is commanded by one peer: its buyer or the agent that its order named, until the guardians of its job give it to
// another one under a higher epoch. Their word is the threshold signature of the keys that sign the lease's vouchers.

// maxSeen bounds the leases of one line.
const maxSeen = 1024

// maxReceipts is how many receipts fit one answer.
const maxReceipts = 32

// handleSupervise lets a peer command a line of leases and its execution, with a grant by the guardians. It returns the
// receipts that the new supervisor has not seen.
func (p *Provider) handleSupervise(ctx context.Context, by sign.Key, req *marketpb.Supervise) (*marketpb.LeaseReply, error) {
	if len(req.GetLease()) != len(market.LeaseID{}) || len(req.Seen) > maxSeen {
		return nil, &stream.Malformed{Reason: "lease id of a wrong size, or too many leases"}
	}
	g, err := verify.UnmarshalSignedSupervisionGrant(req.Grant)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	if g.Supervisor != by {
		return nil, stream.Refuse(string(market.ReasonSupervision), "the grant is another peer's")
	}
	first := market.LeaseID(req.Lease)
	p.mu.Lock()
	r, known := p.book.Current(first)
	p.mu.Unlock()
	kept := p.exec.of(first)
	var job, guardians sign.Hash
	switch {
	case known:
		job, guardians = r.JobTerms, r.Core.VoucherKeys
	case len(kept) > 0:
		job, guardians = kept[0].rec.Job, kept[0].rec.Guardian
	default:
		return nil, stream.Refuse("lease", "no such lease here")
	}
	if err := g.Check(p.domain, job, guardians); err != nil {
		return nil, stream.Refuse(string(market.ReasonSupervision), err.Error())
	}
	if known {
		answer, err := p.step(ctx, lease.Supervised{Lease: first, By: by, Epoch: g.Epoch})
		if err != nil {
			return nil, p.failed(err)
		}
		if no, refused := answer.(lease.AnswerRefused); refused {
			return nil, refusal(no.Refusal)
		}
	}
	id, err := p2p.PeerIDFromKey(by)
	if err != nil {
		return nil, err
	}
	for _, e := range kept {
		if err := p.exec.handTo(ctx, e, id, g.Epoch); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	for _, s := range p.sales {
		r, ok := p.book.Lease(s.rec.Lease)
		if s.rec.First() != first || !ok {
			continue
		}
		// The current commander: the next supervisor may have been faster.
		if id, err := p2p.PeerIDFromKey(r.Peer()); err == nil {
			s.handTo(id)
		}
	}
	p.mu.Unlock()
	out, err := p.unseen(ctx, first, req.Seen)
	if err != nil {
		return nil, err
	}
	return &marketpb.LeaseReply{Step: &marketpb.LeaseReply_Supervised{Supervised: out}}, nil
}

// unseen lists receipts of a line after those that are known. Leases that are not named are not asked for.
func (p *Provider) unseen(ctx context.Context, first market.LeaseID, seen []*marketpb.SeenReceipts) (*marketpb.Supervised, error) {
	out := &marketpb.Supervised{}
	for _, l := range seen {
		if len(l.GetLease()) != len(market.LeaseID{}) {
			return nil, &stream.Malformed{Reason: "lease id is not 32 bytes"}
		}
		id := market.LeaseID(l.Lease)
		p.mu.Lock()
		r, ok := p.book.Lease(id)
		p.mu.Unlock()
		if !ok || r.First() != first {
			continue
		}
		err := p.cfg.Store.List(ctx, kindSold, id.String()+"/", func(key string, value []byte) error {
			receipt, err := verify.UnmarshalReceipt(value)
			switch {
			case err != nil:
				return fmt.Errorf("reading receipt %s: %w", key, err)
			case receipt.Seq <= l.Last:
			case len(out.Receipts) == maxReceipts:
				out.More = true
				return errEnough
			default:
				out.Receipts = append(out.Receipts, value)
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

var errEnough = errors.New("enough")

// handTo lets a peer command an execution under an epoch. One that commanded it under a higher one goes on doing so, and an epoch
// is one peer's.
func (x *executor) handTo(ctx context.Context, e *execution, to peer.ID, epoch uint64) error {
	e.mu.Lock()
	was, at := e.rec.Buyer, e.rec.Epoch
	if was == to && at == epoch {
		e.mu.Unlock()
		return nil
	}
	if epoch <= at {
		e.mu.Unlock()
		return stream.Refuse(string(market.ReasonSupervision), fmt.Sprintf("supervision epoch %d commands what runs, not %d", at, epoch))
	}
	e.rec.Buyer, e.rec.Epoch = to, epoch
	ended := e.state.State == nodepb.ExecState_EXEC_STATE_EXITED
	e.mu.Unlock()
	if err := x.persist(ctx, e); err != nil {
		e.mu.Lock()
		if e.rec.Epoch == epoch { // it is asked for again
			e.rec.Buyer, e.rec.Epoch = was, at
		}
		e.mu.Unlock()
		return err
	}
	if ended {
		x.grantOutputs(e)
	}
	e.changed()
	return nil
}

// payer is the peer that co-signs the lease's receipts and pays.
func (s *sale) payer() peer.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buyer
}

// handTo has another peer co-sign and pay from now on.
func (s *sale) handTo(to peer.ID) {
	s.mu.Lock()
	was := s.buyer
	s.buyer = to
	running := s.running
	s.mu.Unlock()
	if was == to {
		return
	}
	if running {
		s.p.cfg.Host.Protect(to, s.tag())
		s.p.cfg.Host.Unprotect(was, s.tag())
	}
	select {
	case s.poke <- struct{}{}: // it may have waited for the old one
	default:
	}
}

func (s *sale) tag() string { return "lease/" + s.rec.Lease.Short() }

func (s *sale) protect() { s.p.cfg.Host.Protect(s.payer(), s.tag()) }

func (s *sale) unprotect() { s.p.cfg.Host.Unprotect(s.payer(), s.tag()) }
