package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/provider/policy"
)

// State of the sale.
const (
	Selling  = "selling"
	Paused   = "paused"
	Draining = "draining"
	Drained  = "drained"
	Closed   = "closed"
	Feeless  = "no fees" // its key cannot pay the fees of claiming its earnings
)

// OfferStates are all states.
var OfferStates = []string{Selling, Paused, Draining, Drained, Closed, Feeless}

// Status is a provider's inventory and state.
type Status struct {
	State    string    // of OfferStates: Selling, Paused, Draining, Drained, Closed or Feeless
	Reason   string    // of Feeless
	Until    time.Time // when the hours change; the zero time if they never do
	Hours    string
	Leases   int // live leases and holds
	Runtimes []string
	Lots     []LotStatus
	Sick     []SickUnit
}

// LotStatus is one lot as it stands.
type LotStatus struct {
	Lot
	Asked     market.Price // now
	Seq       uint64       // of the last offer; 0 before the first
	Free      int
	Proven    int // of those, with a fresh audit record
	Held      int
	Withdrawn int
}

// SickUnit is a unit that is not sold because something is wrong with it.
type SickUnit struct {
	Unit   market.Unit
	Reason string
	Leased bool // still leased
}

// Status returns the current inventory and state.
func (p *Provider) Status() Status {
	open, change := p.cfg.Policy.Hours.At(time.Now())
	b, now := p.ledger.Book(), p.settings()
	s := Status{Until: change, Hours: p.cfg.Policy.Hours.String(), Runtimes: slices.Sorted(maps.Keys(p.cfg.Runtimes))}
	for r := range b.Records() {
		if r.State.Live() {
			s.Leases++
		}
	}
	s.State, s.Reason = stateOf(now, s.Leases, open, p.feeless())
	bad := p.withdrawn()
	for _, l := range p.cfg.Lots {
		st := LotStatus{
			Lot: l, Asked: b.Limits().Asks[l.Class], Seq: p.board.Seq(l.Class),
			Free: b.Free(l.Class), Proven: b.Shown(l.Class),
		}
		for _, u := range l.Units {
			_, held := b.Holder(u.ID)
			if held {
				st.Held++
			}
			if reason, sick := bad[u.ID]; sick {
				st.Withdrawn++
				s.Sick = append(s.Sick, SickUnit{Unit: u, Reason: reason, Leased: held})
			}
		}
		s.Lots = append(s.Lots, st)
	}
	return s
}

// Engine returns the error of the first runtime with an engine that can start nothing now, or nil if all can.
func (p *Provider) Engine(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(p.cfg.Runtimes)) {
		if err := p.quotes.engine(ctx, name, time.Now()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// stateOf returns the state of the sale and its reason.
func stateOf(now settings, leases int, open bool, feeless string) (state, reason string) {
	switch {
	case now.Draining && leases == 0:
		return Drained, ""
	case now.Draining:
		return Draining, ""
	case now.Paused:
		return Paused, ""
	case !open:
		return Closed, ""
	case feeless != "":
		return Feeless, feeless
	}
	return Selling, ""
}

// Sold is one lease or hold as this provider sees it.
type Sold struct {
	Record   lease.Record
	Receipts uint64
	Earned   market.Amount
	Lot      Lot // of its units; without units when its class is no longer sold
}

// Sold lists the holds, the live leases, and leases that ended recently.
func (p *Provider) Sold() []Sold {
	var out []Sold
	for r := range p.ledger.Book().Records() {
		s := Sold{Record: r, Lot: policy.Of(p.cfg.Lots, r.Class)}
		if m := p.meters.Find(r.Lease); m != nil {
			s.Receipts, s.Earned = m.Account()
		}
		out = append(out, s)
	}
	return out
}

// Inventory returns the root of the IDs of all units for sale, free or not, as in a registration on chain. It is zero
// if there are none.
func (p *Provider) Inventory() sign.Hash {
	units := p.ledger.Book().Units()
	if len(units) == 0 {
		return sign.Hash{}
	}
	ids := make([]market.UnitID, len(units))
	for i, u := range units {
		ids[i] = u.ID
	}
	return market.UnitsRoot(ids)
}

// Idle returns the units for sale that are neither held nor withdrawn and that an audit can prove.
func (p *Provider) Idle() []market.Unit {
	b := p.ledger.Book()
	return slices.DeleteFunc(b.Units(), func(u market.Unit) bool {
		_, held := b.Holder(u.ID)
		return held || b.Withdrawn(u.ID) || u.Class == market.Disk
	})
}

// Units returns how many units there are and how many are free.
func (p *Provider) Units() (total, free int) {
	b := p.ledger.Book()
	for _, l := range p.cfg.Lots {
		total, free = total+b.Total(l.Class), free+b.Free(l.Class)
	}
	return total, free
}

// Show sets by which audit record each unit is to be sold; record returns none for a unit without a fresh one. Offers
// name it from now on, and orders that do not take unproven units get no others.
func (p *Provider) Show(record func(u market.Unit) (sign.Hash, bool)) {
	ids, err := p.board.Show(p.ledger.Book().Units(), record)
	if err == nil {
		err = p.ledger.Change(func(b lease.Book) (lease.Book, error) { return b.WithShown(ids), nil })
	}
	if err != nil {
		p.cfg.Log.Error("the records of units are not offered", "err", err)
		return
	}
	p.board.Change()
}

// Shown returns the list of records behind the proof of an offer of this peer; nil for an unknown one.
func (p *Provider) Shown(root sign.Hash) []market.Shown { return p.board.Shown(root) }

// Out counts the published offers.
func (p *Provider) Out() int { return p.board.Public(time.Now()) }
