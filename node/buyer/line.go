package buyer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/meter"
)

// line is a lease and the successors that make it longer, one after the other. What runs is named by the first, each
// has a payer of its own, and the rank has lost its provider only when the line is over.
type line struct {
	first market.LeaseID
	// ctx ends, and lost closes, when the line can be used no more.
	ctx    context.Context
	cancel context.CancelFunc
	lost   <-chan struct{}

	guard  sync.Mutex // taken last
	chain  []*bought  // by start, those that were prepaid
	why    string     // it is over
	absent bool       // and was when this peer came back
	split  bool       // a probe found that its units are shared
}

func newLine(l *bought) *line {
	ctx, cancel := context.WithCancel(context.Background())
	return &line{first: l.id, ctx: ctx, cancel: cancel, lost: ctx.Done(), chain: []*bought{l}}
}

// join adds a successor, once.
func (n *line) join(l *bought) {
	n.guard.Lock()
	defer n.guard.Unlock()
	if slices.Contains(n.chain, l) {
		return
	}
	n.chain = append(n.chain, l)
	slices.SortFunc(n.chain, func(x, y *bought) int {
		if x.core.Start < y.core.Start {
			return -1
		}
		return 1
	})
}

// all lists the leases of the line.
func (n *line) all() []*bought {
	n.guard.Lock()
	defer n.guard.Unlock()
	return slices.Clone(n.chain)
}

// end is the last lease of the line that was not given back: when it is over, so is the line.
func (n *line) end() *bought {
	n.guard.Lock()
	defer n.guard.Unlock()
	last := n.chain[0]
	for _, l := range n.chain[1:] {
		if !l.back {
			last = l
		}
	}
	return last
}

// over notes that a lease of the line costs nothing more: in time, when it was used up to its end. The line goes on
// with the next lease, or, when what is over had not begun, with those before it.
func (n *line) over(l *bought, inTime bool, why string) {
	n.guard.Lock()
	defer n.guard.Unlock()
	if l.gone {
		return
	}
	l.gone, l.inTime, l.back = true, inTime, !n.begun(l)
	if n.usable() {
		return
	}
	if n.why == "" {
		n.why = why
	}
	n.cancel()
}

// usable reports whether a lease of the line is in force: all before it were used up to their end. n.guard is held.
func (n *line) usable() bool {
	for _, l := range n.chain {
		if !l.gone {
			return true
		}
		if !l.inTime {
			return false
		}
	}
	return false
}

// begun reports whether all leases before l were used up to their end, so that it was in force. n.guard is held.
func (n *line) begun(l *bought) bool {
	for _, o := range n.chain {
		if o == l {
			break
		}
		if !o.gone || !o.inTime {
			return false
		}
	}
	return true
}

// alive is usable for who does not hold the guard.
func (n *line) alive() bool {
	n.guard.Lock()
	defer n.guard.Unlock()
	return n.usable()
}

// dead makes a line that an earlier process gave up paying for one that is lost from the start.
func (n *line) dead(reason string) {
	n.guard.Lock()
	defer n.guard.Unlock()
	if n.why == "" {
		n.why, n.absent = reason, true
	}
	n.cancel()
}

// condemn makes a line that a probe found to be of shared units one that is lost.
func (n *line) condemn(reason string) {
	n.guard.Lock()
	n.split = true
	n.guard.Unlock()
	n.dead(reason)
}

// shared reports whether a probe condemned the line.
func (n *line) shared() bool {
	n.guard.Lock()
	defer n.guard.Unlock()
	return n.split
}

// away reports whether the line was lost while this peer was not there.
func (n *line) away() bool {
	n.guard.Lock()
	defer n.guard.Unlock()
	return n.absent
}

func (n *line) lostReason() string {
	n.guard.Lock()
	defer n.guard.Unlock()
	return n.why
}

// usedUp reports whether the lease's last slot has a receipt, or it is over in slot now because its time is: by then
// its provider may close it with the last slots unpaid. l.mu is held.
func (l *bought) usedUp(now market.Slot) bool {
	last := l.payer.Last()
	return last.Seq > 0 && last.To >= l.core.End || l.payer.Reason() == meter.ReasonLeaseEnded ||
		now+market.Slot(l.terms().SkewSlots) >= l.core.End
}

// open lists the leases of the line that are not settled.
func (n *line) open() []*bought {
	var out []*bought
	for _, l := range n.all() {
		if l.state() != meter.PayerSettled {
			out = append(out, l)
		}
	}
	return out
}

// link makes lines of the leases that were read from the journal.
func (b *Buyer) link() error { return b.linkAll(slices.Collect(maps.Values(b.leases))) }

// linkAll makes lines of leases, all of those that one of them makes longer among them.
func (b *Buyer) linkAll(leases []*bought) error {
	byID := map[market.LeaseID]*bought{}
	for _, l := range leases {
		byID[l.id] = l
	}
	for _, l := range leases {
		if l.rec.Root.IsZero() {
			continue
		}
		root := byID[l.rec.Root]
		if root == nil {
			return fmt.Errorf("reading lease %s: lease %s, which it makes longer, is not in the journal", l.id.Short(), l.rec.Root.Short())
		}
		l.cancel()
		l.line = root.line
		l.join(l)
	}
	now, err := b.cfg.Slots.Now(time.Now())
	if err != nil {
		now = 0 // not known yet: then the receipts decide
	}
	for _, l := range leases {
		l.gone, l.inTime = l.payer.State() != meter.PayerPaying, l.usedUp(now)
	}
	for _, l := range leases {
		l.back = l.gone && !l.begun(l)
	}
	return nil
}
