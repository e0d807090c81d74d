package audit

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// offer has the offers of this peer name the records that are fresh.
func (s *Service) offer() {
	if s.cfg.Seller == nil {
		return
	}
	shelf := s.cfg.Shelf.State()
	if out := shelf.Delisted(); len(out) > 0 {
		s.cfg.Seller.Withdraw(out)
	}
	_, slot, err := s.cfg.Sight.Window()
	if err != nil {
		return // a later call retries when the slot is known
	}
	recent, err := s.cfg.Sight.Recent()
	if err != nil {
		return // and when it is known which windows had audits; readers know it themselves
	}
	s.cfg.Seller.Show(func(u market.Unit) (sign.Hash, bool) {
		s.mu.Lock()
		s.cards[u.ID] = u.Card()
		s.mu.Unlock()
		r, hash, ok := shelf.Newest(u.ID)
		if !ok || shelf.Standing(u.ID).State != audit.Listed {
			return sign.Hash{}, false
		}
		if err := audit.Fresh(r, s.cfg.Genesis.AuditSlots, recent, slot, audit.Work{}); err != nil {
			s.cfg.Log.Debug("a unit is not offered as proven", "unit", u.ID, "err", err)
			return sign.Hash{}, false
		}
		if err := r.CheckClass(u.Class, u.Resources); err != nil { // another configuration since
			s.cfg.Log.Debug("unit: mismatch with its record", "unit", u.ID, "err", err)
			return sign.Hash{}, false
		}
		return hash, true
	})
}

// Card returns the physical device that a unit of this peer claims to be; nil if it is not known.
func (s *Service) Card(u market.UnitID) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if card, known := s.cards[u]; known {
		return card.Marshal()
	}
	return nil
}
