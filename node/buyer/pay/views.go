package pay

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// Claimed returns the amounts that were claimed from escrows, and the amounts still in them.
func Claimed(all []record.Escrow) (paid, held market.Amount) {
	for _, e := range all {
		paid += e.Paid
		if !e.Closed {
			held += e.Deposited - min(e.Deposited, e.Paid+e.Refunded)
		}
	}
	return paid, held
}

// Spent returns the money that has left the wallet for a job that has ended, and is not back: claimed, or still to be
// claimed. Without escrows it is the amount owed.
func Spent(all []record.Escrow, owed market.Amount) market.Amount {
	if len(all) == 0 {
		return owed
	}
	paid, held := Claimed(all)
	return paid + held
}

// escrowTable has an Escrow by job and order.
var escrowTable = journal.Define[string, record.Escrow]("escrow")

// views has the escrows of all jobs, as the chain showed them last.
type views struct {
	cfg Config

	mu      sync.Mutex
	shown   map[string]map[string]record.Escrow // by job, by order
	writing map[string]bool                     // views that a caller of change writes, by name
}

func newViews(cfg Config) *views {
	return &views{cfg: cfg, shown: map[string]map[string]record.Escrow{}, writing: map[string]bool{}}
}

// load reads the views of an earlier process.
func (x *views) load(ctx context.Context) error {
	return escrowTable.List(ctx, x.cfg.Store, "", func(name string, v record.Escrow) error {
		x.put(name, v)
		return nil
	})
}

// of returns the escrows of a job, the first one first.
func (x *views) of(job string) []record.Escrow {
	x.mu.Lock()
	defer x.mu.Unlock()
	of := x.shown[job]
	var out []record.Escrow
	for _, order := range slices.Sorted(maps.Keys(of)) {
		e := of[order]
		e.Transactions = slices.Clone(e.Transactions)
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b record.Escrow) int { return cmp.Compare(a.Opened, b.Opened) })
	return out
}

// get returns the view of a deposit's escrow, if there is one. x.mu is held.
func (x *views) get(name string) (e record.Escrow, there bool) {
	job, order, _ := strings.Cut(name, "/")
	e, there = x.shown[job][order]
	return e, there
}

// put stores the view of a deposit's escrow. x.mu is held, or x is not shared yet.
func (x *views) put(name string, e record.Escrow) {
	job, order, _ := strings.Cut(name, "/")
	if x.shown[job] == nil {
		x.shown[job] = map[string]record.Escrow{}
	}
	x.shown[job][order] = e
}

// change changes the view of a deposit's escrow, and journals it. A lost view costs nothing: the chain has it. Of
// several callers at once, one writes until the journal has the last change.
func (x *views) change(name string, change func(*record.Escrow)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, _ := x.get(name)
	e := before
	e.Transactions = slices.Clone(e.Transactions)
	if change(&e); reflect.DeepEqual(e, before) {
		return
	}
	if x.put(name, e); x.writing[name] {
		return
	}
	x.writing[name] = true
	defer delete(x.writing, name)
	for there := true; there && !reflect.DeepEqual(e, before); { // before is the journal's
		before = e
		x.mu.Unlock()
		if err := escrowTable.Write(context.Background(), x.cfg.Store, name, e); err != nil {
			x.cfg.Log.Warn("the view of an escrow was not journalled", "escrow", e.Address, "err", err)
		}
		x.mu.Lock()
		e, there = x.get(name)
	}
}

// records returns the removals of a job's views from the journal.
func (x *views) records(job string) (gone []store.Put) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for order := range x.shown[job] {
		gone = append(gone, store.Put{Kind: escrowTable.Kind(), Key: job + "/" + order})
	}
	return gone
}

// drop removes a job's views from memory.
func (x *views) drop(job string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.shown, job)
}

// seen reports whether an escrow was on chain.
func (x *views) seen(name string, at sign.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, _ := x.get(name)
	return e.Address == at
}

// Looked implements settle.Observer.
func (x *views) Looked(name string, v escrow.View) {
	if v.Escrow == nil {
		return
	}
	at := account.EscrowAddress(
		x.cfg.Genesis.Program, v.Escrow.Network, v.Escrow.Buyer, sign.Hash(v.Escrow.Order), v.Escrow.Opened)
	x.change(name, func(e *record.Escrow) {
		e.Address = at
		e.Deposited = max(e.Deposited, market.Amount(v.Escrow.Deposited))
		e.Paid = max(e.Paid, market.Amount(v.Escrow.Paid))
		e.Fees = max(e.Fees, market.Amount(v.Escrow.Fee+v.Escrow.Swept))
		e.Refunded, e.Deadline = max(e.Refunded, market.Amount(v.Escrow.Refunded)), market.Slot(v.Escrow.Deadline)
		e.Opened = market.Slot(v.Escrow.Opened)
	})
}

// Landed implements settle.Observer.
func (x *views) Landed(name string, l settle.Landed) {
	x.change(name, func(e *record.Escrow) {
		if !slices.ContainsFunc(e.Transactions, func(o record.Landed) bool { return o.Tx == l.Tx }) {
			e.Transactions = append(e.Transactions, record.Landed(l))
		}
	})
}
