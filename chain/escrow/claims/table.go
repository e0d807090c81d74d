package claims

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// table is a provider's lookup table, for claims with too many accounts for a transaction. It is made as soon as the
// lease's leaf is seen, and its rent is recovered when nothing is left to claim.
//
//	none ──signed──▶ asked ──final──▶ made ──over, final──▶ disabled ──cooldown, final──▶ none
//	  ▲                │
//	  └── expired, or failed
//
// If no endpoint has the status of the transaction that creates it, another table is created, and the rent of the first
// is lost.
type table struct {
	slot     market.Slot // in its address; 0: no table, and none pending
	made     bool        // finalized
	disabled market.Slot // in which it was, finalized; 0: it can be used
}

// A table is given up after this many failures to close it: another process with the provider's key has closed it.
const maxTableFails = 12

func (t *table) at(provider sign.Key) sign.Key { return svm.TableAddress(provider, uint64(t.slot)) }

// use returns the tables of a claim's transaction; ok is false while it waits for one.
func (t *table) use(l *leaf, q *escrow.Queue, vault sign.Key) (use []svm.Table, ok bool) {
	if !l.needsTable() {
		return nil, true
	}
	there := t.made || q.UnderState(escrow.TaskMakeTable, chain.Confirmed)
	if !there || t.disabled != 0 {
		return nil, false
	}
	return []svm.Table{{Address: t.at(l.core.Provider), Holds: l.named(vault)}}, true
}

// create creates a table if claims need one and none exists. Its slot is final, so every later block accepts it.
func (t *table) create(
	now time.Time, l *leaf, q *escrow.Queue, final market.Slot, v escrow.View, stake market.Amount,
) (orders []escrow.SignOrder) {
	task := escrow.Task{Kind: escrow.TaskMakeTable}
	if !l.needsTable() || t.slot != 0 || final == 0 {
		return nil
	}
	if _, _, err := l.in(v); err != nil {
		return nil
	}
	if _, ok := q.May(now, task); !ok {
		return nil
	}
	*t = table{slot: final}
	return []escrow.SignOrder{q.Ask(now, task, stake,
		svm.MakeTable(l.core.Provider, uint64(final), l.named(v.Escrow.Vault)...)...)}
}

// record takes the last status of a transaction about the table.
func (t *table) record(x escrow.QueuedTx, status chain.TxStatus) {
	final := status.State == chain.Finalized
	switch x.Task.Kind {
	case escrow.TaskMakeTable:
		if t.made = final; !final {
			*t = table{}
		}
	case escrow.TaskDisableTable:
		if final {
			t.disabled = max(status.Slot, 1)
		}
	case escrow.TaskCloseTable:
		if final {
			*t = table{}
		}
	}
}

// unsigned drops a table that no transaction was signed for.
func (t *table) unsigned(q *escrow.Queue) {
	if !t.made && !q.UnderKind(escrow.TaskMakeTable) {
		*t = table{}
	}
}

// journalled returns the table for the journal: the zero table unless it is made or a signed transaction makes it.
func (t table) journalled(q *escrow.Queue) table {
	if !t.made && !q.UnderSigned(escrow.TaskMakeTable) {
		return table{}
	}
	return t
}

// consistent reports whether the table agrees with the transactions about it.
func (t *table) consistent(q *escrow.Queue) bool {
	making := q.UnderKind(escrow.TaskMakeTable)
	ending := q.UnderKind(escrow.TaskDisableTable) || q.UnderKind(escrow.TaskCloseTable)
	switch {
	case t.slot == 0:
		return !t.made && t.disabled == 0 && !making && !ending
	case !t.made:
		return t.disabled == 0 && making && !ending
	}
	return !making
}

// close takes back the rent of a table without further use. Waits is the awaited event.
func (t *table) close(
	now time.Time, provider sign.Key, q *escrow.Queue, final market.Slot,
) (change bool, orders []escrow.SignOrder, waits string) {
	task, call := escrow.Task{Kind: escrow.TaskDisableTable}, svm.DisableTable(provider, t.at(provider))
	switch ready := uint64(t.disabled) + svm.TableCooldown; {
	case t.slot == 0 || !t.made:
		return false, nil, ""
	case t.disabled == 0:
		// it was disabled before, by a transaction that no endpoint remembers
		if fails, _ := q.May(now, task); fails >= escrow.MaxRejects {
			t.disabled = max(final, 1)
			return true, nil, ""
		}
	case uint64(final) <= ready:
		return false, nil, fmt.Sprintf("lookup table: closable after slot %d", ready)
	default:
		task, call = escrow.Task{Kind: escrow.TaskCloseTable}, svm.CloseTable(provider, t.at(provider))
	}
	fails, ok := q.May(now, task)
	if fails >= maxTableFails {
		*t = table{}
		return true, nil, ""
	}
	if !ok {
		return false, nil, ""
	}
	return true, []escrow.SignOrder{q.Ask(now, task, 0, call)}, ""
}
