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
	// Terms are what a claim costs, and the most that the network pays a unit for a window.
	Terms(ctx context.Context) (fee audit.Fee, reward market.Amount, err error)
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
	list   []audit.Excuse
	fee    audit.Fee
	reward market.Amount
	paid   map[leaf]market.Amount
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
	out.fee, out.reward, err = b.Terms(ctx)
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
	t.Fee, t.Worth = e.fee, audit.Worth{Reward: e.reward, Price: rate}
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
		if t.Paid == nil {
			break
		}
		busy, err := x.Busy(t.Fee, t.Paid)
		if err != nil {
			continue
		}
		if keeps, err := audit.Suffices(x.Window, t.WindowSlots, busy, t.Worth); err == nil {
			out[x.Window] = audit.Report{Result: audit.Excused, Keeps: keeps}
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
		if twice || e.Window <= r.Answer.Window || e.Window >= now { // not needed
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
	if s.cfg.Burns == nil || s.cfg.Funded == nil || len(covered(r.ReceiptCore, s.cfg.Genesis.AuditSlots)) == 0 {
		return
	}
	s.mu.Lock()
	if s.filed = append(s.filed, filed{l, units, r}); len(s.filed) > maxReceipts {
		s.filed = s.filed[1:]
	}
	s.mu.Unlock()
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// excuse makes excuses of the receipts that came.
func (s *Service) excuse(ctx context.Context) {
	s.mu.Lock()
	came := s.filed
	s.filed = nil
	s.mu.Unlock()
	for _, f := range came {
		at, known := s.cfg.Funded(f.lease.Core.ID())
		if !known {
			continue
		}
		for _, u := range f.units {
			in, err := market.ProveUnit(f.units, u)
			for _, w := range covered(f.receipt.ReceiptCore, s.cfg.Genesis.AuditSlots) {
				if err == nil {
					err = s.cfg.Shelf.Excuse(ctx, s.cfg.Genesis.Domain(), w, u, audit.Worked{Lease: f.lease, In: in, Receipt: f.receipt, Funded: at})
				}
			}
			if err != nil && ctx.Err() == nil {
				s.cfg.Log.Error("a unit that was busy is not excused", "unit", u, "lease", f.lease.Core.ID(), "err", err)
			}
		}
	}
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
}

// Excuse keeps that a unit worked when a window began, beside what it did since it last passed. A unit that never passed, passed
// since the lease began, or was excused too often has no use for it.
func (s *Shelf) Excuse(ctx context.Context, d sign.Domain, w audit.Window, u market.UnitID, worked audit.Worked) error {
	r, _, ok := s.newest(u)
	if !ok || w <= r.Answer.Window || w-r.Answer.Window > audit.MaxExcused {
		return nil
	}
	e := audit.Excuse{Provider: r.Answer.Provider, Unit: u, Window: w, WindowSlots: r.WindowSlots, Since: passedIn(r)}
	if worked.Lease.Core.Start < e.Since {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, here := s.excuses[u][w]; here || s.units[u] != r.Hash() {
		return nil
	}
	e.Leases = append(s.before(u, w, worked), worked)
	if err := e.Check(d); err != nil {
		return err
	}
	if err := s.store.Write(ctx, store.Put{Kind: kindExcuse, Key: excuseKey(u, w), Value: e.Marshal()}); err != nil {
		return err
	}
	s.addExcuse(e)
	return nil
}

// before are the leases that excused a unit earlier, which count again with another. s.mu is held.
func (s *Shelf) before(u market.UnitID, w audit.Window, worked audit.Worked) []audit.Worked {
	var last audit.Excuse
	for at, e := range s.excuses[u] {
		if at < w && (len(last.Leases) == 0 || at > last.Window) {
			last = e
		}
	}
	out := slices.Clone(last.Leases)
	for n := len(out); n > 0 && (out[n-1].Lease.Core.ID() == worked.Lease.Core.ID() || out[n-1].Receipt.To > worked.Lease.Core.Start); n-- {
		out = out[:n-1] // the same, or one that overlaps
	}
	return out[max(len(out)-(audit.MaxLeases-1), 0):]
}

// Excuses are those of a unit since it last passed, by window.
func (s *Shelf) Excuses(u market.UnitID) []audit.Excuse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.excuses[u]), func(a, b audit.Excuse) int { return cmp.Compare(a.Window, b.Window) })
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
