package pay

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// Retire takes back the money of a lease that costs nothing more. It may be called again.
func (x *Payments) Retire(l Lease) { x.retire(l) }

// retire is Retire, and reports whether the lease's deposit has its end.
func (x *Payments) retire(l Lease) bool {
	err := x.giveBack(l)
	if err != nil {
		x.cfg.Log.Error("a lease's money cannot be taken back yet", "lease", l.ID, "err", err)
	}
	return err == nil
}

// giveBack reports a lease's end to its deposit, with its final receipt if there is one. Nothing else of the order may
// end the deposit before, or its provider is asked to claim the amount that the receipt gives back.
func (x *Payments) giveBack(l Lease) error {
	r := escrow.Retired{Lease: l.ID}
	var err error
	r.Final, err = x.cfg.Leases.Final(l.ID)
	name := nameOf(l.Job, l.Core.Order)
	if l.Hired { // its money lies in the job's escrow, which its owner winds up
		guard, unknown := x.cfg.Jobs.Guard(l.Job)
		if unknown == nil {
			name = ""
		}
		if guard != nil && guard.Mine && guard.Place != nil {
			name = nameOf(l.Job, guard.Place.Order)
			together := x.cfg.Leases.Together(l.Job, l.Core.Order)
			err = errors.Join(err, x.deposits.Post(name, escrow.Hired{Leases: together}))
		}
	}
	if err == nil && name != "" {
		err = x.deposits.Post(name, escrow.Retire{Leases: []escrow.Retired{r}})
	}
	if err != nil && !errors.Is(err, settle.ErrUnknown) {
		return err
	}
	x.cfg.Leases.Retired(l.ID)
	return nil
}

// standing reports whether standbys may still be hired from an escrow.
func (x *Payments) standing(name string) bool {
	job := jobOf(name)
	guard, err := x.cfg.Jobs.Guard(job)
	return err == nil && guard != nil && guard.Running && guard.Place != nil && nameOf(job, guard.Place.Order) == name
}

// Unused winds up the escrow of an order without billable leases that will get no other lease.
func (x *Payments) Unused(job string, o market.OrderID) {
	name := nameOf(job, o)
	if x.standing(name) { // Settle winds it up
		return
	}
	if err := x.deposits.Post(name, escrow.End{}); err != nil && !errors.Is(err, settle.ErrUnknown) {
		x.cfg.Log.Error("an escrow without leases is not wound up yet", "escrow", name, "err", err)
	}
}

// Forsake is Unused for the orders of an earlier process that crashed. They are those with settled leases, and
// those with money set aside and no lease in the journal. It comes before the job sets aside anything else.
func (x *Payments) Forsake(job string) {
	used := map[string]bool{}
	var over []Lease
	for _, l := range x.cfg.Leases.Of(job) {
		if l.Settled {
			over = append(over, l)
		} else {
			used[nameOf(job, l.Core.Order)] = true
		}
	}
	for _, l := range over {
		if !x.retire(l) && !l.Retired {
			used[nameOf(job, l.Core.Order)] = true
		}
	}
	for _, name := range x.of(job) {
		if used[name] || x.standing(name) {
			continue
		}
		if err := x.deposits.Post(name, escrow.End{}); err != nil {
			x.cfg.Log.Error("an escrow without leases is not wound up yet", "escrow", name, "err", err)
		}
	}
}

// LetGo drops a job's money from memory, and returns the records that the journal need not keep. ok is false if some of
// the money can still move or a refund is pending. The caller calls end with the journal's answer: unless the records
// are gone, the money stays in memory.
func (x *Payments) LetGo(job string) (gone []store.Put, end func(gone bool), ok bool) {
	var back []func()
	end = func(gone bool) {
		if gone {
			x.views.drop(job)
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
	if !drop(depositTable.Kind(), x.deposits.Names(), x.deposits.Drop) ||
		!drop(hireTable.Kind(), x.hires.Names(), x.hires.Drop) {
		end(false)
		return nil, nil, false
	}
	return append(gone, x.views.records(job)...), end, true
}

// GiveUp winds up the hires for a job of another peer, which has wound up the rest.
func (x *Payments) GiveUp(job string) error {
	for _, name := range x.hires.Names() {
		if m, _, err := x.hires.Get(name); jobOf(name) != job || err != nil || m.Ending() {
			continue
		}
		if err := x.hires.Post(name, escrow.End{}); err != nil && !errors.Is(err, settle.ErrUnknown) {
			return fmt.Errorf("winding up hires: %w", err)
		}
	}
	return nil
}
