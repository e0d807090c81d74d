package buyer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/meter"
)

func (x *escrowed) escrows(job string) []Escrow {
	x.mu.Lock()
	defer x.mu.Unlock()
	of := x.shown[job]
	var out []Escrow
	for _, order := range slices.Sorted(maps.Keys(of)) {
		e := of[order]
		e.Transactions = slices.Clone(e.Transactions)
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Escrow) int { return cmp.Compare(a.Opened, b.Opened) })
	return out
}

func (x *escrowed) letGo(job string) (gone []store.Put, end func(bool), ok bool) {
	var back []func()
	end = func(gone bool) {
		if gone {
			x.mu.Lock()
			defer x.mu.Unlock()
			delete(x.shown, job)
			return
		}
		for _, f := range back {
			f()
		}
	}
	drop := func(kind string, names []string, drop func(string) (func(), bool)) bool {
		for _, name := range names {
			if jobOf(name) != job {
				continue
			}
			f, dropped := drop(name)
			if !dropped {
				return false
			}
			back, gone = append(back, f), append(gone, store.Put{Kind: kind, Key: name})
		}
		return true
	}
	if !drop(depositTable.Kind(), x.deposits.Names(), x.deposits.Drop) || !drop(hireTable.Kind(), x.hires.Names(), x.hires.Drop) {
		end(false)
		return nil, nil, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for order := range x.shown[job] {
		gone = append(gone, store.Put{Kind: kindEscrow, Key: job + "/" + order})
	}
	return gone, end, true
}

// claimed is what was claimed from escrows, and what lies in them still.
func claimed(all []Escrow) (paid, held market.Amount) {
	for _, e := range all {
		paid += e.Paid
		if !e.Closed {
			held += e.Deposited - min(e.Deposited, e.Paid+e.Refunded)
		}
	}
	return paid, held
}

// put keeps what is shown of an escrow. x.mu is held, or nobody else has x.
func (x *escrowed) put(job, order string, e Escrow) {
	if x.shown[job] == nil {
		x.shown[job] = map[string]Escrow{}
	}
	x.shown[job][order] = e
}

// show changes what is shown of an escrow, and journals it. What is lost of that costs nothing: the chain has it.
func (x *escrowed) show(name string, change func(*Escrow)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	job, order, _ := strings.Cut(name, "/")
	before := x.shown[job][order]
	e := before
	e.Transactions = slices.Clone(e.Transactions)
	if change(&e); reflect.DeepEqual(e, before) {
		return
	}
	x.put(job, order, e)
	b, err := json.Marshal(e)
	if err == nil {
		err = x.b.cfg.Store.Write(context.Background(), store.Put{Kind: kindEscrow, Key: name, Value: b})
	}
	if err != nil {
		x.b.cfg.Log.Warn("what is shown of an escrow was not journalled", "escrow", e.Address, "err", err)
	}
}

func (x *escrowed) looked(name string, v escrow.View) {
	if v.Escrow == nil {
		return
	}
	x.show(name, func(e *Escrow) {
		e.Address = program.EscrowAddress(x.b.cfg.Genesis.Program, v.Escrow.Network, v.Escrow.Buyer, sign.Hash(v.Escrow.Order), v.Escrow.Opened)
		e.Deposited, e.Paid = max(e.Deposited, market.Amount(v.Escrow.Deposited)), max(e.Paid, market.Amount(v.Escrow.Paid))
		e.Fees = max(e.Fees, market.Amount(v.Escrow.Fee+v.Escrow.Swept))
		e.Refunded, e.Deadline = max(e.Refunded, market.Amount(v.Escrow.Refunded)), market.Slot(v.Escrow.Deadline)
		e.Opened = market.Slot(v.Escrow.Opened)
	})
}

func (x *escrowed) landed(name string, l settle.Landed) {
	x.show(name, func(e *Escrow) {
		if !slices.ContainsFunc(e.Transactions, func(o settle.Landed) bool { return o.Tx == l.Tx }) {
			e.Transactions = append(e.Transactions, l)
		}
	})
}

// told carries out what a deposit says.
func (x *escrowed) told(name string, ev escrow.Effect) {
	job, g := jobOf(name), x.b.cfg.Genesis
	note := func(kind StepKind, format string, args ...any) {
		x.b.note(job, Step{At: time.Now(), Kind: kind, Detail: fmt.Sprintf(format, args...)})
	}
	switch ev := ev.(type) {
	case escrow.Opening:
		if !x.seen(name, ev.Escrow) { // it is told again by each process
			note(StepFunded, "escrow %s is being opened", ev.Escrow)
		}
		x.moved(name, ev.Escrow)
	case escrow.Funded:
		has := func(id market.LeaseID) bool {
			return slices.ContainsFunc(ev.Leases, func(l escrow.FundedLease) bool { return l.Lease == id })
		}
		if ev.Final {
			note(StepFunded, "%s are in escrow %s for good", x.counted(job, len(ev.Leases), has), ev.Escrow)
		} else {
			note(StepFunded, "%s are in escrow %s, since slot %d", x.counted(job, len(ev.Leases), has), ev.Escrow, ev.Landed)
		}
	case escrow.Void:
		x.void(ev.Leases, "its money was not on chain in time")
		note(StepFunded, "%s are void: their money was not on chain in time", x.counted(job, len(ev.Leases), func(id market.LeaseID) bool { return slices.Contains(ev.Leases, id) }))
	case escrow.Refunded:
		note(StepRefunded, "%s are back", g.FormatAmount(ev.Amount))
	case escrow.Closed:
		x.show(name, func(e *Escrow) {
			e.Closed, e.Waiting = true, ""
			e.Refunded = max(e.Refunded, e.Deposited-min(e.Deposited, e.Paid))
		})
		note(StepRefunded, "the escrow is closed, its rent is back")
	case escrow.Waiting:
		again := false
		x.show(name, func(e *Escrow) { again, e.Waiting = e.Waiting == ev.Reason, ev.Reason })
		if !again {
			note(StepFunded, "the escrow waits: %s", ev.Reason)
		}
	}
}

// counted says how many of n leases are wages, of which has knows.
func (x *escrowed) counted(job string, n int, has func(market.LeaseID) bool) string {
	wages := 0
	if s, err := x.b.get(job); err == nil {
		if d := s.snapshot().Detached; d != nil {
			for _, m := range d.Guardians {
				if m.Wage != nil && has(m.Wage.ID()) {
					wages++
				}
			}
		}
	}
	if wages > 0 {
		return fmt.Sprintf("%d leases and %d wages", n-wages, wages)
	}
	return fmt.Sprintf("%d leases", n)
}

// seen reports whether an escrow was on chain.
func (x *escrowed) seen(name string, at sign.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	job, order, _ := strings.Cut(name, "/")
	return x.shown[job][order].Address == at
}

// moved: an escrow that never came to be is opened under another address. Leases whose vouchers name the first are void.
func (x *escrowed) moved(name string, to sign.Key) {
	var gone []market.LeaseID
	x.b.mu.Lock()
	for id, l := range x.b.leases {
		if nameOf(l.job, l.core.Order) == name && l.escrow() != to {
			gone = append(gone, id)
		}
	}
	x.b.mu.Unlock()
	x.void(gone, "its escrow could not be opened in time")
}

// void ends leases whose money is not on chain: they cost nothing. It does not wait for the journal.
func (x *escrowed) void(leases []market.LeaseID, reason string) {
	x.b.mu.Lock()
	defer x.b.mu.Unlock()
	for _, id := range leases {
		if l, run := x.b.leases[id], x.b.ctx; l != nil && run != nil {
			x.b.wg.Go(func() { _ = l.void(run, reason) })
		}
	}
}

// voided voids the leases of a deposit that is wound up, as far as nobody was told yet.
func (x *escrowed) voided(ctx context.Context, m escrow.Deposit, leases []*bought) error {
	at, _ := m.Escrow()
	for _, l := range leases {
		if l.core.Order != m.Deal().Order || l.escrow() == at && !m.Void(l.id) {
			continue
		}
		if err := l.void(ctx, "its money was not on chain in time"); err != nil {
			return err
		}
	}
	return nil
}

func (l *bought) escrow() sign.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.Escrow
}

// void ends a lease that costs nothing, since its money was not on chain in time, and tries until the journal has that, or ctx ends.
func (l *bought) void(ctx context.Context, reason string) error {
	b := l.b
	for told := false; ; told = true {
		again, err := l.voidOnce(ctx)
		if again {
			return nil
		}
		if err == nil {
			break
		}
		if !told && ctx.Err() == nil {
			b.cfg.Log.Error("a void lease was not journalled; trying again until it is", "lease", l.id, "err", err)
		}
		if err := pause(ctx, journalRetry); err != nil {
			return err
		}
	}
	if l.state() != meter.PayerSettled {
		_ = l.over(ctx, reason)
		b.wg.Go(func() { b.tell(ctx, l, reason) })
	}
	return nil
}

// voidOnce notes that a lease is void once the journal has it; again says that it was noted before.
func (l *bought) voidOnce(ctx context.Context) (again bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.Void {
		return true, nil
	}
	l.rec.Void = true
	rec, err := l.record()
	if err == nil {
		err = l.b.cfg.Store.Write(ctx, rec)
	}
	l.rec.Void = err == nil
	return false, err
}
