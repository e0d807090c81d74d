package escrow

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
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
// If no endpoint knows the status of the transaction that makes it, another table is made, and the rent of the first is
// lost.
type table struct {
	slot     market.Slot // that its address names; 0: none is there and none under way
	made     bool        // for ever
	disabled market.Slot // in which it was, for ever; 0: it can be used
}

// Tables are given up for lost when closing them failed as often as this: somebody else closed them with the provider's
// key.
const maxTableFails = 12

// needsTable reports whether a claim fits into a transaction only by a table.
func (c *Claims) needsTable() bool { return !claimFits(c.keys.Threshold, len(c.funding.Proof), false) }

// tables are those that a claim's transaction uses; ok is false as long as it has to wait for one.
func (c *Claims) tables(v View) (use []program.Table, ok bool) {
	if !c.needsTable() {
		return nil, true
	}
	there := c.table.made || c.fleet.underState(kindMakeTable, chain.Confirmed)
	if !there || c.table.disabled != 0 {
		return nil, false
	}
	return []program.Table{{Address: c.tableAt(), Holds: c.named(v.Escrow.Vault)}}, true
}

func (c *Claims) tableAt() sign.Key {
	return program.TableAddress(c.core.Provider, uint64(c.table.slot))
}

// named are the accounts of the lease's claims that a table can name.
func (c *Claims) named(vault sign.Key) []sign.Key {
	return []sign.Key{c.escrow, program.TrancheAddress(c.net.Program, c.escrow, c.funding.Tranche), vault,
		program.TokenAccount(c.core.Payout, c.net.Mint), c.net.Mint, c.net.address, program.TokenProgram,
		program.InstructionsSysvar}
}

// makeTable makes one if claims need it and none is there. The slot that it names is final: every block after it knows
// it.
func (c *Claims) makeTable(now time.Time, final, v View) (change bool, effects []Effect) {
	t := task{kind: kindMakeTable}
	if !c.needsTable() || c.table.slot != 0 || final.Slot == 0 {
		return false, nil
	}
	if _, _, err := c.leafIn(v); err != nil {
		return false, nil
	}
	if _, ok := c.fleet.may(now, t); !ok {
		return false, nil
	}
	c.table = table{slot: final.Slot}
	return true, []Effect{Sign{Orders: []SignOrder{c.fleet.ask(now, t, c.core.Cap-min(c.core.Cap, c.paid),
		program.MakeTable(c.core.Provider, uint64(final.Slot), c.named(v.Escrow.Vault)...)...)}}}
}

// tabled records the final status of a transaction about the table.
func (c *Claims) tabled(x flight, status chain.TxStatus) {
	final := status.State == chain.Finalized
	switch x.task.kind {
	case kindMakeTable:
		if c.table.made = final; !final {
			c.table = table{}
		}
	case kindDisableTable:
		if final {
			c.table.disabled = max(status.Slot, 1)
		}
	case kindCloseTable:
		if final {
			c.table = table{}
		}
	}
}

// unsigned drops a table that no transaction was signed for.
func (c *Claims) unsigned() {
	if !c.table.made && !c.fleet.underKind(kindMakeTable) {
		c.table = table{}
	}
}

// journalled is the table as the journal has it: one that is neither made nor in a signed transaction was never asked
// for.
func (c *Claims) journalled() table {
	if !c.table.made && !slices.ContainsFunc(c.fleet.flights, func(x flight) bool {
		return x.task.kind == kindMakeTable && x.tx.ID != ""
	}) {
		return table{}
	}
	return c.table
}

// tableFits reports whether the table is consistent with the transactions about it.
func (c *Claims) tableFits() bool {
	t := c.table
	making := c.fleet.underKind(kindMakeTable)
	ending := c.fleet.underKind(kindDisableTable) || c.fleet.underKind(kindCloseTable)
	switch {
	case t.slot == 0:
		return !t.made && t.disabled == 0 && !making && !ending
	case !t.made:
		return t.disabled == 0 && making && !ending
	}
	return !making
}

// closeTable takes the rent of a table back that is of no use any more.
func (c *Claims) closeTable(now time.Time, final market.Slot) (change bool, effects []Effect) {
	t, call := task{kind: kindDisableTable}, program.DisableTable(c.core.Provider, c.tableAt())
	switch ready := uint64(c.table.disabled) + program.TableCooldown; {
	case c.table.slot == 0 || !c.table.made:
		return false, nil
	case c.table.disabled == 0:
		// it was before, by a transaction that nobody remembers
		if fails, _ := c.fleet.may(now, t); fails >= maxRejects {
			c.table.disabled = max(final, 1)
			return true, nil
		}
	case uint64(final) <= ready:
		c.waits = fmt.Sprintf("its lookup table can be closed after slot %d", ready)
		return false, nil
	default:
		t, call = task{kind: kindCloseTable}, program.CloseTable(c.core.Provider, c.tableAt())
	}
	fails, ok := c.fleet.may(now, t)
	if fails >= maxTableFails {
		c.table = table{}
		return true, nil
	}
	if !ok {
		return false, nil
	}
	return true, []Effect{Sign{Orders: []SignOrder{c.fleet.ask(now, t, 0, call)}}}
}

// Done reports that it is over, and nothing of the provider's is left on chain either.
func (c Claims) Done() bool { return c.end != endNot && c.table.slot == 0 }

// closes reports whether a transaction is still worth sending then.
func closes(t task) bool { return t.kind != kindMakeTable }

// windUp takes an event when nothing is left to claim.
func (c *Claims) windUp(now time.Time, ev Event) (change bool, effects []Effect, err error) {
	if c.Done() {
		return false, nil, nil
	}
	switch ev := ev.(type) {
	case Signed:
		effects, change, _ = c.fleet.signed(now, c.params, ev, closes)
		c.unsigned()
	case Pushed:
		x, status, _, over, more := c.fleet.pushed(now, c.params, ev)
		if effects = more; over {
			change = true
			c.tabled(x, status)
		}
	case Looked:
		c.looking, c.lookAt = false, now.Add(c.params.LookEvery)
		if ev.Err != "" {
			c.fleet.reason = clip(ev.Err)
			break
		}
		c.waits = ""
		if len(c.fleet.flights) == 0 {
			if change, effects = c.closeTable(now, ev.Final.Slot); len(effects) == 0 && c.waits != "" {
				effects = append(effects, Waiting{Reason: c.waits, Until: c.lookAt})
			}
		}
	case Ticked:
		effects = c.fleet.tick(now, c.params, closes)
		if c.lookAt.IsZero() || !now.Before(c.lookAt) {
			effects = append(effects, c.look()...)
		}
	}
	return change, effects, nil
}
