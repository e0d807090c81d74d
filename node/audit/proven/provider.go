package proven

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// shower is the state of one provider.
type shower struct {
	turn chan struct{} // holds one while its offers are checked: one after the other

	// Under Proofs.mu:
	used  time.Time
	units map[market.UnitID]checked    // newest record that passed
	class map[market.Class]sign.Hash   // the proof with the kept list
	lists map[sign.Hash][]market.Shown // by proof
	tried map[sign.Hash]attempted      // proofs and records that could not be had or judged, or were wrong
	order []sign.Hash                  // of tried, oldest first
}

// maxTried bounds the memory of one provider's wrong proofs and records.
const maxTried = 64

// forget drops the provider's proofs.
func (s *shower) forget() {
	s.units, s.class = map[market.UnitID]checked{}, map[market.Class]sign.Hash{}
	s.lists = map[sign.Hash][]market.Shown{}
	s.tried, s.order = map[sign.Hash]attempted{}, nil
}

// try records the result of checking a proof or a record. p.mu is held.
func (s *shower) try(h sign.Hash, a attempted) {
	if _, known := s.tried[h]; !known {
		if s.order = append(s.order, h); len(s.order) > maxTried {
			delete(s.tried, s.order[0])
			s.order = s.order[1:]
		}
	}
	s.tried[h] = a
}

// had forgets that a proof or a record could not be had. p.mu is held.
func (s *shower) had(h sign.Hash) {
	delete(s.tried, h)
	s.order = slices.DeleteFunc(s.order, func(o sign.Hash) bool { return o == h })
}

// waits returns an error if a proof or record must not be requested now.
func (s *shower) waits(h sign.Hash, now time.Time) error {
	if t, known := s.tried[h]; known && (t.final || now.Sub(t.at) < again) {
		return t.err
	}
	return nil
}

const notChecked = "records are not checked yet"

// doubt returns the gravest reason for which no more units of an offer are proven, or "" if all are.
func (s *shower) doubt(o market.Offer) string {
	if t, known := s.tried[o.Proof]; known {
		return "list of records: not available: " + t.err.Error()
	}
	list, known := s.lists[o.Proof]
	if !known {
		return notChecked
	}
	unchecked := ""
	for _, l := range list {
		if t, bad := s.tried[l.Record]; bad {
			return fmt.Sprintf("the record of unit %s: %v", l.Unit.Short(), t.err)
		}
		if _, ok := s.units[l.Unit]; !ok {
			unchecked = "not all records are checked yet"
		}
	}
	return unchecked
}

func (s *shower) unlock() { <-s.turn }

// drop forgets the units of a class that are not on the newest list and so may have been made up to fill the memory.
func (s *shower) drop(list []market.Shown, c market.Class) {
	on := make(map[market.UnitID]bool, len(list))
	for _, l := range list {
		on[l.Unit] = true
	}
	for u, k := range s.units {
		if k.class == c && !on[u] {
			delete(s.units, u)
		}
	}
}

// attempted is the result of checking a proof or record.
type attempted struct {
	at    time.Time
	err   error
	final bool // it stays wrong
}

// checked is a unit's record that passed everything but time.
type checked struct {
	hash   sign.Hash
	record audit.Record // without openings and verdicts
	work   audit.Work   // of the reader's own leases since
	sold   bool         // the reader found it proven before it signed a lease
	past   []showed     // of the time of audit.MaxRates audits, this record's too
	rates  audit.Rates  // the rates that may be sold by them
	class  market.Class
	res    market.Resources
	tag    sign.Hash // of the card that the unit claims; zero if the class allows many
}

// showed is the rates of one record.
type showed struct {
	window audit.Window
	rates  audit.Rates
}

// after combines a record with the unit's previous one, if that has the same class and resources.
func (c checked) after(old checked, r audit.Record, in audit.Instants) checked {
	w := r.Answer.Window
	c.past = []showed{{w, r.Rates()}}
	if old.class == c.class && old.res == c.res {
		for _, s := range old.past {
			if s.window != w && s.window+in.Audits(audit.MaxRates) > w && s.window < w+in.Audits(audit.MaxRates) {
				c.past = append(c.past, s)
			}
		}
	}
	c.past = c.past[:min(len(c.past), audit.MaxRates)]
	rates := make([]audit.Rates, len(c.past))
	for i, s := range c.past {
		rates[i] = s.rates
	}
	c.rates = audit.Capacity(rates)
	return c
}
