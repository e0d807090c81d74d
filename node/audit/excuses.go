package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
)

// Burns is what a network with a program tells of the fees that burn there.
type Burns interface {
	// Terms are what a claim costs.
	Terms(ctx context.Context) (audit.Fee, error)
	// Paid is what the chain has paid for a lease for ever, fee included.
	Paid(ctx context.Context, w audit.Worked) (market.Amount, error)
}

const (
	// excusePoll is how often it is looked whether what was paid for a unit's leases keeps it listed.
	excusePoll = 15 * time.Second
	// maxReceipts bounds the receipts that wait to become excuses; the oldest go first.
	maxReceipts = 4096
)

// excused are excuses of one unit, with what the network says of them; the zero value has none.
type excused struct {
	list []audit.Excuse
	fee  audit.Fee
	paid map[leaf]market.Amount
}

// leaf is where a lease's money lies.
type leaf struct {
	lease          market.LeaseID
	opened         uint64
	tranche, index uint16
	buyer          sign.Key
	order          market.OrderID
}

func leafOf(w audit.Worked) leaf {
	f := w.Funded
	return leaf{w.Lease.Core.ID(), f.Opened, f.Tranche, f.Index, f.Buyer, f.Order}
}

// hope supposes that all of the leases was paid, and says what excuses could then do at most. Nobody is excused where nothing burns.
func hope(ctx context.Context, b Burns, list []audit.Excuse) (excused, error) {
	if b == nil || len(list) == 0 {
		return excused{}, nil
	}
	out := excused{list: list, paid: map[leaf]market.Amount{}}
	for _, e := range list {
		for _, w := range e.Leases {
			out.paid[leafOf(w)] = max(out.paid[leafOf(w)], w.Receipt.Cumulative)
		}
	}
	var err error
	out.fee, err = b.Terms(ctx)
	return out, err
}

// weigh asks what was paid for the leases of excuses, as far as it counts.
func (e excused) weigh(ctx context.Context, b Burns) (excused, error) {
	out := e
	out.paid = map[leaf]market.Amount{}
	for _, x := range e.list {
		for _, w := range x.Leases {
			at := leafOf(w)
			if _, known := out.paid[at]; known || w.Receipt.Cumulative < e.paid[at] { // the newest receipt asks for all of them
				continue
			}
			var err error
			if out.paid[at], err = b.Paid(ctx, w); err != nil {
				return excused{}, fmt.Errorf("what was paid for lease %s: %w", at.lease.Short(), err)
			}
		}
	}
	return out, nil
}

// terms are what a unit is judged by that is sold at a price.
func (e excused) terms(windowSlots, slotMillis uint64, price market.Price) audit.Terms {
	t := audit.Terms{WindowSlots: windowSlots}
	rate, err := market.RateOf(price, 1, slotMillis)
	if len(e.list) == 0 || err != nil {
		return t
	}
	t.Fee, t.Price = e.fee, rate
	t.Paid = func(w audit.Worked) (market.Amount, error) {
		p, known := e.paid[leafOf(w)]
		if !known {
			return 0, errors.New("it was not looked up")
		}
		return p, nil
	}
	return t
}

// reports are what the excuses count for in a unit's standing, by window.
func (e excused) reports(t audit.Terms) map[audit.Window]audit.Report {
	out := map[audit.Window]audit.Report{}
	for _, x := range e.list {
		if _, err := t.Busy(x); err == nil {
			out[x.Window] = audit.Report{Result: audit.Excused}
		}
	}
	return out
}

// readExcuses reads what a peer gave with a record: at most MaxExcused, and of those that count one for a window. Excuse.Check comes later.
func readExcuses(r audit.Record, now audit.Window, raw [][]byte) ([]audit.Excuse, error) {
	if len(raw) > audit.MaxExcused {
		return nil, fmt.Errorf("%w: %d excuses, at most %d", market.ErrMalformed, len(raw), audit.MaxExcused)
	}
	var out []audit.Excuse
	for _, b := range raw {
		e, err := audit.UnmarshalExcuse(b)
		if err != nil {
			return nil, err
		}
		twice := slices.ContainsFunc(out, func(o audit.Excuse) bool { return o.Window == e.Window })
		if twice || e.Window <= r.Answer.Window || e.Window > now { // not needed
			continue
		}
		if e.Provider != r.Answer.Provider || e.Unit != r.Answer.Unit || e.WindowSlots != r.WindowSlots {
			return nil, &audit.RuleError{Rule: audit.RuleUnit, Detail: fmt.Sprintf("the excuse for window %d is another unit's, or of other windows", e.Window)}
		}
		out = append(out, e)
	}
	return out, nil
}

// passedIn is the slot in which the last member signed a record that passed: work from before it excuses nothing.
func passedIn(r audit.Record) market.Slot { return latest(r)[0].Slot }

// latest is the verdict of a record that passed which was given last, alone.
func latest(r audit.Record) []audit.Signed {
	return []audit.Signed{slices.MaxFunc(r.Verdicts, func(a, b audit.Signed) int { return cmp.Compare(a.Slot, b.Slot) })}
}

// filed is a receipt that both sides of a lease of this peer's units signed.
type filed struct {
	lease   market.Lease
	units   []market.UnitID
	receipt verify.Receipt
}

// covered are the windows whose first slot lies in a receipt, at most MaxExcused, the newest first.
func covered(r verify.ReceiptCore, windowSlots uint64) []audit.Window {
	var out []audit.Window
	if r.To <= r.From {
		return nil
	}
	for w := audit.WindowOf(r.To-1, windowSlots); w.First(windowSlots) >= r.From && len(out) < audit.MaxExcused; w-- {
		if out = append(out, w); w == 0 {
			break
		}
	}
	return out
}

// Worked is told of a receipt that both sides of a lease of this peer's units signed; it may come again. It does not wait.
func (s *Service) Worked(l market.Lease, units []market.UnitID, r verify.Receipt) {
	if s.cfg.Burns == nil || s.cfg.Funded == nil {
		return
	}
	s.mu.Lock()
	if s.filed = append(s.filed, filed{l, units, r}); len(s.filed) > maxReceipts {
		s.filed = s.filed[1:]
	}
	s.mu.Unlock()
	if len(covered(r.ReceiptCore, s.cfg.Genesis.AuditSlots)) == 0 {
		return
	}
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// remind hears again of all receipts that may excuse a unit still: the journal had them before they were told of, and the process may
// have ended before it made excuses of them.
func (s *Service) remind(ctx context.Context) error {
	since, any := s.cfg.Shelf.since()
	if s.cfg.Sold == nil || s.cfg.Burns == nil || s.cfg.Funded == nil || !any {
		return nil
	}
	return s.cfg.Sold(ctx, since, func(l market.Lease, units []market.UnitID, r verify.Receipt) error {
		return s.work(ctx, filed{l, units, r})
	})
}

// excuse makes excuses of the receipts that came.
func (s *Service) excuse(ctx context.Context) {
	s.mu.Lock()
	came := s.filed
	s.filed = nil
	s.mu.Unlock()
	now, _, _ := s.cfg.Sight.Window() // it was known a moment ago
	for _, f := range came {
		_, known := s.cfg.Funded(f.lease.Core.ID())
		if !known && audit.WindowOf(f.receipt.To, s.cfg.Genesis.AuditSlots)+1 >= now { // what its buyer says of that may come yet
			s.mu.Lock()
			s.filed = append(s.filed, f)
			s.mu.Unlock()
			continue
		}
		if err := s.work(ctx, f); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("units that were busy are not excused", "lease", f.lease.Core.ID(), "err", err)
		}
	}
}

// work notes a receipt for all units of its lease.
func (s *Service) work(ctx context.Context, f filed) error {
	at, known := s.cfg.Funded(f.lease.Core.ID())
	if !known {
		return nil
	}
	var errs []error
	for _, u := range f.units {
		in, err := market.ProveUnit(f.units, u)
		if err == nil {
			err = s.cfg.Shelf.Worked(ctx, s.cfg.Genesis.Domain(), u, audit.Worked{Lease: f.lease, In: in, Receipt: f.receipt, Funded: at})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fresh says why a record of one of this peer's units does not keep it listed now, whatever it did since.
func (s *Service) fresh(ctx context.Context, r audit.Record, u market.Unit, now market.Slot) error {
	err := audit.Fresh(r, nil, now, audit.Terms{WindowSlots: s.cfg.Genesis.AuditSlots})
	list := s.cfg.Shelf.Excuses(u.ID)
	if err == nil || len(list) == 0 {
		return err
	}
	e, err := hope(ctx, s.cfg.Burns, list)
	if err != nil {
		return err
	}
	if err := audit.Fresh(r, e.list, now, s.terms(e, u.Class)); err != nil {
		return err
	}
	if e, err = e.weigh(ctx, s.cfg.Burns); err != nil {
		return err
	}
	return audit.Fresh(r, e.list, now, s.terms(e, u.Class))
}

// terms are what this peer's units of a class are judged by.
func (s *Service) terms(e excused, c market.Class) audit.Terms {
	var price market.Price
	if s.cfg.Price != nil {
		price = s.cfg.Price(c)
	}
	return e.terms(s.cfg.Genesis.AuditSlots, s.cfg.Genesis.SlotMillis, price)
}

// reports are what a unit did in windows that it did not answer in.
func (s *Service) reports(ctx context.Context, u Claim) map[audit.Window]audit.Report {
	e, err := hope(ctx, s.cfg.Burns, s.cfg.Shelf.Excuses(u.ID))
	if err == nil {
		e, err = e.weigh(ctx, s.cfg.Burns)
	}
	if err != nil {
		s.cfg.Log.Debug("a unit's excuses cannot be weighed now", "unit", u.ID, "err", err)
		return nil
	}
	return e.reports(s.terms(e, u.Class))
}

func excuseKey(u market.UnitID, w audit.Window) string { return fmt.Sprintf("%s/%016x", u, uint64(w)) }

// loadExcuses reads what an earlier process kept.
func (s *Shelf) loadExcuses(ctx context.Context) error {
	return s.store.List(ctx, kindExcuse, "", func(key string, b []byte) error {
		e, err := audit.UnmarshalExcuse(b)
		if err != nil || !strings.HasPrefix(key, e.Unit.String()) {
			return fmt.Errorf("reading excuse %s: %w", key, cmp.Or(err, market.ErrMalformed))
		}
		s.addExcuse(e)
		return nil
	})
}

func (s *Shelf) addExcuse(e audit.Excuse) {
	if s.excuses[e.Unit] == nil {
		s.excuses[e.Unit] = map[audit.Window]audit.Excuse{}
	}
	s.excuses[e.Unit][e.Window] = e
	for _, l := range audit.Newest(e.Leases) {
		s.lease(e.Unit, l)
	}
}

// lease notes the newest receipt of a lease of a unit beside the others, one after the other in time: the last MaxLeases. s.mu is held.
func (s *Shelf) lease(u market.UnitID, l audit.Worked) {
	ls := s.leases[u]
	if i := slices.IndexFunc(ls, func(o audit.Worked) bool { return leafOf(o) == leafOf(l) }); i >= 0 {
		if ls[i].Receipt.To < l.Receipt.To {
			ls[i] = l
		}
		return
	}
	i, _ := slices.BinarySearchFunc(ls, l.Lease.Core.Start, func(o audit.Worked, at market.Slot) int { return cmp.Compare(o.Lease.Core.Start, at) })
	if i > 0 && ls[i-1].Receipt.To > l.Lease.Core.Start || i < len(ls) && l.Receipt.To > ls[i].Lease.Core.Start {
		return // a unit is leased once at a time
	}
	ls = slices.Insert(ls, i, l)
	s.leases[u] = ls[max(len(ls)-audit.MaxLeases, 0):]
}

// Worked keeps that a unit worked, and makes an excuse of it for each window that its receipt covers the beginning of, with what the
// unit did before since it last passed. A unit that never passed, passed since the lease began, or was excused too often has no use for it.
func (s *Shelf) Worked(ctx context.Context, d sign.Domain, u market.UnitID, worked audit.Worked) error {
	r, hash, ok := s.newest(u)
	if !ok || worked.Lease.Core.Start < passedIn(r) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.units[u] != hash {
		return nil
	}
	var puts []store.Put
	var made []audit.Excuse
	for _, w := range covered(worked.Receipt.ReceiptCore, r.WindowSlots) {
		if _, here := s.excuses[u][w]; here || w <= r.Answer.Window || w-r.Answer.Window > audit.MaxExcused {
			continue
		}
		e := audit.Excuse{Provider: r.Answer.Provider, Unit: u, Window: w, WindowSlots: r.WindowSlots, Since: passedIn(r)}
		for _, l := range s.leases[u] {
			if l.Receipt.To <= worked.Lease.Core.Start && leafOf(l) != leafOf(worked) {
				e.Leases = append(e.Leases, l)
			}
		}
		e.Leases = append(e.Leases, worked)
		e.Leases = e.Leases[max(len(e.Leases)-audit.MaxLeases, 0):]
		if err := e.Check(d); err != nil {
			return err
		}
		puts, made = append(puts, store.Put{Kind: kindExcuse, Key: excuseKey(u, w), Value: e.Marshal()}), append(made, e)
	}
	if len(puts) > 0 {
		if err := s.store.Write(ctx, puts...); err != nil {
			return err
		}
	}
	for _, e := range made {
		s.addExcuse(e)
	}
	s.lease(u, worked)
	return nil
}

// Excuses are those of a unit since it last passed, by window. The newest has what the unit did since, too.
func (s *Shelf) Excuses(u market.UnitID) []audit.Excuse {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.SortedFunc(maps.Values(s.excuses[u]), func(a, b audit.Excuse) int { return cmp.Compare(a.Window, b.Window) })
	if len(out) == 0 {
		return nil
	}
	e := &out[len(out)-1]
	end := e.Leases[len(e.Leases)-1]
	ls := slices.Clone(e.Leases)
	for _, l := range s.leases[u] {
		if leafOf(l) == leafOf(end) && l.Receipt.From >= end.Receipt.To || leafOf(l) != leafOf(end) && l.Lease.Core.Start >= end.Receipt.To {
			ls = append(ls, l)
		}
	}
	ls = ls[min(max(len(ls)-audit.MaxLeases, 0), len(e.Leases)-1):] // end covers its window's beginning
	e.Leases = ls[:min(len(ls), audit.MaxLeases)]
	return out
}

// since is from which slot on leases may excuse a unit: where the first of those passed that passed last; false when none did.
func (s *Shelf) since() (first market.Slot, any bool) {
	s.mu.Lock()
	units := slices.Collect(maps.Keys(s.units))
	s.mu.Unlock()
	for _, u := range units {
		if r, _, ok := s.newest(u); ok && (!any || passedIn(r) < first) {
			first, any = passedIn(r), true
		}
	}
	return first, any
}

// busy reports whether any unit has an excuse.
func (s *Shelf) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.excuses) > 0
}

// dropExcuses are the writes that forget a unit's excuses: it passed. s.mu is held.
func (s *Shelf) dropExcuses(u market.UnitID) (puts []store.Put) {
	for w := range s.excuses[u] {
		puts = append(puts, store.Put{Kind: kindExcuse, Key: excuseKey(u, w)})
	}
	return puts
}
