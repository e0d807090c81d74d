package audit

import (
	"context"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
)

// offer has the offers of this peer say which records are fresh now.
func (s *Service) offer() {
	if out := s.cfg.Shelf.delisted(); s.cfg.Delist != nil && len(out) > 0 {
		s.cfg.Delist(out)
	}
	if s.cfg.Proven == nil {
		return
	}
	_, slot, err := s.cfg.Sight.Window()
	if err != nil {
		return // it is asked again when the slot is known
	}
	recent, err := s.cfg.Sight.Recent()
	if err != nil {
		return // and when it is known which windows had audits; readers know it themselves
	}
	s.cfg.Proven(func(u market.Unit) (sign.Hash, bool) {
		s.mu.Lock()
		s.cards[u.ID] = u.Card()
		s.mu.Unlock()
		r, hash, ok := s.cfg.Shelf.newest(u.ID)
		if !ok || s.cfg.Shelf.Standing(u.ID).State != audit.Listed {
			return sign.Hash{}, false
		}
		if err := audit.Fresh(r, s.cfg.Genesis.AuditSlots, recent, slot, audit.Work{}); err != nil {
			s.cfg.Log.Debug("a unit is not offered as proven", "unit", u.ID, "err", err)
			return sign.Hash{}, false
		}
		if err := r.CheckClass(u.Class, u.Resources); err != nil { // another configuration since
			s.cfg.Log.Debug("a unit is not what its record shows", "unit", u.ID, "err", err)
			return sign.Hash{}, false
		}
		return hash, true
	})
}

// newest is the newest record of a unit that passed.
func (s *Shelf) newest(u market.UnitID) (audit.Record, sign.Hash, bool) {
	s.mu.Lock()
	hash, ok := s.units[u]
	b := s.records[hash]
	s.mu.Unlock()
	if !ok {
		return audit.Record{}, hash, false
	}
	r, err := audit.UnmarshalRecord(b)
	return r, hash, err == nil
}

// show answers requests for a record, or for the list behind the proof of an offer.
func (s *Service) show(req *nodepb.RecordRequest) (*nodepb.RecordReply, error) {
	if len(req.Proof) > 0 {
		if len(req.Proof) != sign.HashSize || len(req.Hash) > 0 {
			return nil, malformed("proof of %d bytes, hash of %d: one of them is asked for", len(req.Proof), len(req.Hash))
		}
		if s.cfg.List == nil {
			return nil, refuse(CodeUnknown, "this peer offers nothing")
		}
		list := s.cfg.List(sign.Hash(req.Proof))
		if len(list) == 0 {
			return nil, refuse(CodeUnknown, "no offer of this peer has that proof, or it is an old one")
		}
		b, err := market.MarshalShown(list)
		return &nodepb.RecordReply{Shown: b}, err
	}
	if len(req.Hash) != sign.HashSize {
		return nil, malformed("hash of %d bytes", len(req.Hash))
	}
	k, err := s.cfg.Shelf.Kept(sign.Hash(req.Hash))
	if err != nil {
		return nil, refuse(CodeUnknown, "%v", err)
	}
	out := &nodepb.RecordReply{Record: k.Record, Anchor: k.Anchor}
	r, err := audit.UnmarshalRecord(k.Record)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if card, known := s.cards[r.Answer.Unit]; known {
		out.Card = card.Marshal()
	}
	s.mu.Unlock()
	return out, nil
}

// Asker asks other peers for records and lists of them.
type Asker struct {
	Host *p2p.Host
	Tag  string // of the network
}

// Ask asks one peer.
func (a Asker) Ask(ctx context.Context, from sign.Key, req *nodepb.RecordRequest) (*nodepb.RecordReply, error) {
	id, err := p2p.PeerIDFromKey(from)
	if err != nil {
		return nil, err
	}
	return protocol.Record.Call(ctx, a.Host, a.Tag, id, req)
}

// recordLimits bound the answers: a buyer requests a few at a time.
func (s *Service) recordLimits() stream.Limits {
	return stream.Limits{PerPeer: 2 * maxFetches, Logger: s.cfg.Log}
}
