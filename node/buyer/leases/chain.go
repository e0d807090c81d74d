package leases

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
)

// chain is a lease and the successors that make it longer, one after the other. Programs are named by the first. Each
// lease has a payer of its own, and the rank has lost its provider only when the chain is lost.
type chain struct {
	// First is the id of the first lease.
	First  market.LeaseID
	ctx    context.Context // ends when the chain can be used no more
	cancel context.CancelFunc

	guard  sync.Mutex // taken last
	list   []*Lease   // the prepaid leases, by start
	why    string     // it is lost
	absent bool       // and was when this peer came back
	split  bool       // a probe found that its units are shared
}

func newChain(l *Lease) *chain {
	ctx, cancel := context.WithCancel(context.Background())
	return &chain{First: l.ID, ctx: ctx, cancel: cancel, list: []*Lease{l}}
}

// Context ends when the chain can be used no more.
func (c *chain) Context() context.Context { return c.ctx }

// join adds a successor, once.
func (c *chain) join(l *Lease) {
	c.guard.Lock()
	defer c.guard.Unlock()
	if slices.Contains(c.list, l) {
		return
	}
	c.list = append(c.list, l)
	slices.SortStableFunc(c.list, func(x, y *Lease) int { return cmp.Compare(x.Core.Start, y.Core.Start) })
}

// Chain returns the leases of the chain, by their start.
func (c *chain) Chain() []*Lease {
	c.guard.Lock()
	defer c.guard.Unlock()
	return slices.Clone(c.list)
}

// Find returns a lease of the chain, or nil.
func (c *chain) Find(id market.LeaseID) *Lease {
	for _, l := range c.Chain() {
		if l.ID == id {
			return l
		}
	}
	return nil
}

// Open returns the leases of the chain that are not settled.
func (c *chain) Open() []*Lease {
	return slices.DeleteFunc(c.Chain(), func(l *Lease) bool { return l.Done() })
}

// tail returns the last lease of the chain that was not given back. The chain ends with it.
func (c *chain) tail() *Lease {
	c.guard.Lock()
	defer c.guard.Unlock()
	last := c.list[0]
	for _, l := range c.list[1:] {
		if !l.back {
			last = l
		}
	}
	return last
}

// over records that a lease of the chain costs nothing more. inTime means that it was used to its end. The chain
// continues with the next lease, or with the earlier ones if the lease had not begun.
func (c *chain) over(l *Lease, inTime bool, why string) {
	c.guard.Lock()
	defer c.guard.Unlock()
	if l.gone {
		return
	}
	l.gone, l.inTime, l.back = true, inTime, !c.begun(l)
	if c.usable() {
		return
	}
	if c.why == "" {
		c.why = why
	}
	c.cancel()
}

// usable reports whether a lease of the chain is in force: all before it were used up to their end. guard is held.
func (c *chain) usable() bool {
	for _, l := range c.list {
		if !l.gone {
			return true
		}
		if !l.inTime {
			return false
		}
	}
	return false
}

// begun reports whether all leases before l were used up to their end, so that it was in force. guard is held.
func (c *chain) begun(l *Lease) bool {
	for _, o := range c.list {
		if o == l {
			break
		}
		if !o.gone || !o.inTime {
			return false
		}
	}
	return true
}

// Alive reports whether a lease of the chain is in force.
func (c *chain) Alive() bool {
	c.guard.Lock()
	defer c.guard.Unlock()
	return c.usable()
}

// Expire ends a chain that ended while this peer was away.
func (c *chain) Expire(reason string) { c.end(reason, false) }

// Condemn ends a chain after a probe found its units to be shared.
func (c *chain) Condemn(reason string) { c.end(reason, true) }

func (c *chain) end(reason string, split bool) {
	c.guard.Lock()
	defer c.guard.Unlock()
	c.split = c.split || split
	if c.why == "" {
		c.why, c.absent = reason, true
	}
	c.cancel()
}

// Condemned reports whether a probe ended the chain.
func (c *chain) Condemned() bool {
	c.guard.Lock()
	defer c.guard.Unlock()
	return c.split
}

// Absent reports whether the chain was lost while this peer was not there.
func (c *chain) Absent() bool {
	c.guard.Lock()
	defer c.guard.Unlock()
	return c.absent
}

// LostReason returns why the chain is lost, or "".
func (c *chain) LostReason() string {
	c.guard.Lock()
	defer c.guard.Unlock()
	return c.why
}

// Spent reports whether the last slot of the chain, or the last of its money, is paid for.
func (c *chain) Spent() bool {
	l := c.tail()
	v := l.Payer().Voucher()
	return v != nil && (v.Horizon >= l.Core.End || l.Core.Rate > 0 && v.Cumulative >= l.Core.Cap)
}

// Loss returns the money paid for the chain since begun, the start of work that is lost. A zero time means the start of
// the chain.
func (c *chain) Loss(begun time.Time) market.Amount {
	var paid market.Amount
	all := c.Chain()
	for _, o := range all {
		paid = paid.Plus(o.Owed())
	}
	if begun.IsZero() {
		return paid
	}
	g := all[0].book.cfg.Genesis
	worth, err := all[0].Core.Rate.Owed(g.SlotsIn(time.Since(begun)) + g.IntervalSlots) // an interval is paid ahead
	if err != nil {
		return paid
	}
	return min(paid, worth)
}

// MilliCPU returns the use of processors in the last interval of the chain, in thousandths of one.
func (c *chain) MilliCPU() uint64 {
	l := c.tail()
	r := l.Payer().Last()
	millis := uint64(r.To-r.From) * l.book.cfg.Genesis.SlotMillis
	if r.Seq == 0 || millis == 0 {
		return 0
	}
	return r.CPUMillis * 1000 / millis
}

// backSlack is the time for a returning peer to find its providers before a paid lease ends.
const backSlack = 3 * time.Second

// Outage returns this peer's absence before its present process, and the prepaid time of the last lease, both from its
// last receipt. unpaid reports whether the absence was longer, so that the provider was right to stop. All is zero for
// a lease of this process.
func (c *chain) Outage() (away, ahead time.Duration, unpaid bool) {
	l := c.tail()
	if l.seenAt == 0 {
		return 0, 0, false
	}
	b := l.book
	now, err := b.cfg.Clock.Now(time.Now())
	b.mu.Lock()
	since := time.Since(b.began)
	b.mu.Unlock()
	g := b.cfg.Genesis
	back := now - min(now, market.Slot(g.SlotsIn(since)))
	if err != nil || back <= l.seenAt {
		return 0, 0, false
	}
	length := func(slots market.Slot) time.Duration {
		millis := min(uint64(slots), math.MaxInt32) * g.SlotMillis
		return (time.Duration(millis) * time.Millisecond).Round(time.Second)
	}
	away, ahead = length(back-l.seenAt), length(l.paidAt-min(l.paidAt, l.seenAt))
	return away, ahead, back+market.Slot(g.SlotsIn(backSlack)) >= l.paidAt
}
