package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/store"
)

// Errors of the operator's changes at run time.
var (
	// ErrNotSold says that this peer does not sell the class.
	ErrNotSold = errors.New("not sold here")
	// ErrFloor reports that a price is under the configured floor.
	ErrFloor = errors.New("under the price floor")
	// ErrNotWithdrawn says that no withdrawn unit is meant.
	ErrNotWithdrawn = errors.New("not among the units that are withdrawn")
)

// operatorState is the operator's settings at run time, as the journal keeps them.
type operatorState struct {
	Paused   bool                       `json:"paused,omitempty"`
	Draining bool                       `json:"draining,omitempty"` // paused for good: the peer is to be stopped
	Prices   map[market.Class]repricing `json:"prices,omitempty"`
}

// repricing is a price said at run time. It counts until the configuration says another one than it replaced.
type repricing struct {
	Price market.Price `json:"price"`
	Was   market.Price `json:"was"`
}

const operatorKey = "state"

func (p *Provider) loadOperator(ctx context.Context) error {
	b, err := p.cfg.Store.Get(ctx, kindOperator, operatorKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading what the operator said: %w", err)
	}
	if err := json.Unmarshal(b, &p.op); err != nil {
		return fmt.Errorf("reading what the operator said: %w", err)
	}
	return nil
}

// operateLocked journals a change of the operator's settings, then applies it. p.mu is held.
func (p *Provider) operateLocked(ctx context.Context, next operatorState) error {
	b, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := p.cfg.Store.Write(ctx, store.Put{Kind: kindOperator, Key: operatorKey, Value: b}); err != nil {
		return fmt.Errorf("journalling what the operator said: %w", err)
	}
	p.op = next
	p.offerChanged()
	return nil
}

// asks are the prices asked now.
func (p *Provider) asks() map[market.Class]market.Price {
	out := map[market.Class]market.Price{}
	for _, l := range p.cfg.Lots {
		price := l.Price
		if r, ok := p.op.Prices[l.Class]; ok && r.Was == l.Price {
			price = r.Price
		}
		out[l.Class] = max(price, l.Floor)
	}
	return out
}

func (p *Provider) paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.op.Paused
}

// Pause takes the offers back and sells nothing new; leases go on. It holds until Resume, also after a restart.
func (p *Provider) Pause(ctx context.Context) error { return p.pause(ctx, false) }

// Drain is Pause before the peer is stopped: Offers shows how many leases are left.
func (p *Provider) Drain(ctx context.Context) error { return p.pause(ctx, true) }

func (p *Provider) pause(ctx context.Context, drain bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.op
	next.Paused, next.Draining = true, drain
	return p.operateLocked(ctx, next)
}

// Resume sells again.
func (p *Provider) Resume(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.op
	next.Paused, next.Draining = false, false
	return p.operateLocked(ctx, next)
}

// SetPrice changes the price of a class, for future quotes and leases. It holds until the configuration sets another
// price. It returns ErrNotSold or ErrFloor.
func (p *Provider) SetPrice(ctx context.Context, c market.Class, price market.Price) error {
	l := p.lot(c)
	if len(l.Units) == 0 {
		var classes []string
		for _, c := range p.Classes() {
			classes = append(classes, string(c))
		}
		return fmt.Errorf("class %s: %w; sold are %s", c, ErrNotSold, strings.Join(classes, ", "))
	}
	if price < l.Floor {
		money := func(v market.Price) string { return p.cfg.Genesis.FormatAmount(market.Amount(v)) }
		return fmt.Errorf("class %s at %s: %w of %s", c, money(price), ErrFloor, money(l.Floor))
	}
	if err := p.cfg.Genesis.CheckPrice(price); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.op
	next.Prices = maps.Clone(p.op.Prices)
	if next.Prices == nil {
		next.Prices = map[market.Class]repricing{}
	}
	next.Prices[c] = repricing{Price: price, Was: l.Price}
	if err := p.operateLocked(ctx, next); err != nil {
		return err
	}
	limits := p.book.Limits()
	limits.Asks = p.asks()
	book, err := p.book.WithLimits(limits)
	if err == nil {
		p.book = book
	}
	return err
}

// Withdraw stops selling units, with the fault of each. Leases on them go on. They stay withdrawn until Readmit or
// until the peer is started again, even if they look healthy meanwhile: a unit that was broken once needs a person's
// look.
func (p *Provider) Withdraw(bad map[market.UnitID]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, reason := range bad {
		if _, known := p.bad[id]; known {
			continue
		}
		p.bad[id] = reason
		p.cfg.Log.Warn("a unit is withdrawn from sale", "unit", id.Short(), "reason", reason)
	}
	p.withdrawLocked()
}

// Readmit sells units again that were withdrawn, named by serial, which is a GPU's UUID; all or none. ErrNotWithdrawn.
func (p *Provider) Readmit(serials []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	back := map[market.UnitID]bool{}
	for _, serial := range serials {
		found := false
		for _, u := range p.book.Units() {
			if _, bad := p.bad[u.ID]; bad && u.Serial == serial {
				back[u.ID], found = true, true
			}
		}
		if !found {
			return fmt.Errorf("%.128q: %w", serial, ErrNotWithdrawn)
		}
	}
	for id := range back {
		delete(p.bad, id)
	}
	p.withdrawLocked()
	return nil
}

func (p *Provider) withdrawLocked() {
	p.book = p.book.WithWithdrawn(slices.Collect(maps.Keys(p.bad)))
	p.offerChanged()
}

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
	Leases   int // live ones and holds
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
	Leased bool // somebody has it still
}

// Status returns the current inventory and state.
func (p *Provider) Status() Status {
	now := time.Now()
	open, change := p.cfg.Policy.Hours.At(now)
	p.offerMu.Lock()
	seqs := map[market.Class]uint64{}
	for c, o := range p.offers {
		seqs[c] = o.offer.Seq
	}
	p.offerMu.Unlock()
	feeless := p.feeless()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{State: Selling, Until: change, Hours: p.cfg.Policy.Hours.String(), Runtimes: slices.Sorted(maps.Keys(p.cfg.Runtimes))}
	for r := range p.book.Records() {
		if r.State.Live() {
			s.Leases++
		}
	}
	switch {
	case p.op.Draining && s.Leases == 0:
		s.State = Drained
	case p.op.Draining:
		s.State = Draining
	case p.op.Paused:
		s.State = Paused
	case !open:
		s.State = Closed
	case feeless != "":
		s.State, s.Reason = Feeless, feeless
	}
	for _, l := range p.cfg.Lots {
		st := LotStatus{Lot: l, Asked: p.book.Limits().Asks[l.Class], Seq: seqs[l.Class], Free: p.book.Free(l.Class), Proven: p.book.Shown(l.Class)}
		for _, u := range l.Units {
			_, held := p.book.Holder(u.ID)
			if held {
				st.Held++
			}
			if reason, sick := p.bad[u.ID]; sick {
				st.Withdrawn++
				s.Sick = append(s.Sick, SickUnit{Unit: u, Reason: reason, Leased: held})
			}
		}
		s.Lots = append(s.Lots, st)
	}
	return s
}
