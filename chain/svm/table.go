package svm

import (
	"encoding/binary"

	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/market/sign"
)

// TableProgram keeps address lookup tables: a transaction that names accounts by a table and a number takes 1 byte for
// each, where it takes 32 without. Signers, and programs that the transaction calls, cannot be in a table.
var TableProgram = address("AddressLookupTab1e1111111111111111111111111")

// Table is an address lookup table and the addresses in it, by number.
type Table struct {
	Address sign.Key
	Holds   []sign.Key
}

const (
	// TableCooldown is the number of slots after its deactivation in which a table cannot be closed, since a
	// transaction that uses it may still land. It is also the greatest age of the slot that a new table names.
	TableCooldown = 512
	// MaxTable is the most addresses of one.
	MaxTable = 256

	tableHead    = 56 // bytes of a table's account before the addresses
	tableCreate  = 0
	tableExtend  = 2
	tableDisable = 3
	tableClose   = 4
)

// TableAddress is the address of the table that an authority made naming a slot.
func TableAddress(authority sign.Key, slot uint64) sign.Key {
	return Address(TableProgram, authority[:], fields.Data{}.U64(slot))
}

// TableRent is the rent of a table with this number of addresses.
func TableRent(addresses int) uint64 { return Rent(tableHead + sign.KeySize*addresses) }

// MakeTable makes a table in two instructions: one creates it, one fills it. It can be used from the next slot on. Only
// the authority can close it; it also pays. The slot is one of the last TableCooldown and has a block. It is part of
// the address, so an address is never reused.
func MakeTable(authority sign.Key, slot uint64, holds ...sign.Key) []Instruction {
	t, bump := FindAddress(TableProgram, authority[:], fields.Data{}.U64(slot))
	d := fields.Data{}.U32(tableExtend).U64(uint64(len(holds)))
	for _, k := range holds {
		d = d.Key(k)
	}
	accounts := []Meta{Writes(t), Signs(authority), Pays(authority), Reads(SystemProgram)}
	return []Instruction{
		{Program: TableProgram, Data: fields.Data{}.U32(tableCreate).U64(slot).U8(bump), Accounts: accounts},
		{Program: TableProgram, Data: d, Accounts: accounts},
	}
}

// DisableTable closes a table to new transactions; CloseTable can follow TableCooldown slots later.
func DisableTable(authority, table sign.Key) Instruction {
	return Instruction{Program: TableProgram, Data: fields.Data{}.U32(tableDisable),
		Accounts: []Meta{Writes(table), Signs(authority)}}
}

// CloseTable ends a table; the rent goes back to the authority.
func CloseTable(authority, table sign.Key) Instruction {
	return Instruction{Program: TableProgram, Data: fields.Data{}.U32(tableClose),
		Accounts: []Meta{Writes(table), Signs(authority), Pays(authority)}}
}

// TableCall is a parsed call of the table program.
type TableCall struct {
	Authority, Table sign.Key
	Made             bool       // a table, naming Slot
	Slot             uint64     //
	Holds            []sign.Key // added to it
	Disabled, Closed bool
}

// ParseTable parses an instruction of one of the forms above; ok is false for any other.
func ParseTable(in Instruction) (c TableCall, ok bool) {
	if in.Program != TableProgram || len(in.Accounts) < 2 {
		return TableCall{}, false
	}
	c.Table, c.Authority = in.Accounts[0].Key, in.Accounts[1].Key
	r := fields.Reader{Rest: in.Data}
	switch r.U32() {
	case tableCreate:
		c.Made, c.Slot = true, r.U64()
		r.U8()
	case tableExtend:
		n := r.U64()
		if r.Bad || n > MaxTable || len(r.Rest) != sign.KeySize*int(n) {
			return TableCall{}, false
		}
		for range n {
			c.Holds = append(c.Holds, r.Key())
		}
	case tableDisable:
		c.Disabled = true
	case tableClose:
		c.Closed = true
	default:
		return TableCall{}, false
	}
	return c, r.Done()
}

// TableRentOf is the rent that a call of the table program costs its payer, in lamports. It is 0 for calls of other
// programs and for bytes that are no call.
func TableRentOf(in Instruction) uint64 {
	if in.Program != TableProgram || len(in.Data) < 4 {
		return 0
	}
	switch binary.LittleEndian.Uint32(in.Data) {
	case tableCreate:
		return TableRent(0)
	case tableExtend:
		if c, ok := ParseTable(in); ok {
			return TableRent(len(c.Holds)) - TableRent(0)
		}
	}
	return 0
}
