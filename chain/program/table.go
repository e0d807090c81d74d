package program

import (
	"encoding/binary"

	"github.com/starling-network/starling/market/sign"
)

// TableProgram keeps address lookup tables: a transaction that names accounts by a table and a number takes 1 byte for
// each, where it takes 32 without. Signers, and programs that it calls itself, cannot be named so.
var TableProgram = address("AddressLookupTab1e1111111111111111111111111")

// Table is an address lookup table and the addresses in it, by number.
type Table struct {
	Address sign.Key
	Holds   []sign.Key
}

const (
	// TableCooldown is how many slots after its deactivation a table cannot be closed yet: for so long a transaction
	// that uses it may still land. It is also how old the slot may be that a new one names.
	TableCooldown = 512
	// MaxTable is the most addresses of one.
	MaxTable = 256

	tableHead    = 56 // bytes of a table's account before the addresses
	tableCreate  = 0
	tableExtend  = 2
	tableDisable = 3
	tableClose   = 4
)

// TableAddress is where a table lies that the authority made naming a slot.
func TableAddress(authority sign.Key, slot uint64) sign.Key {
	return at(TableProgram, authority[:], data{}.u64(slot))
}

// TableRent is the rent of a table with this number of addresses.
func TableRent(addresses int) uint64 { return Rent(tableHead + sign.KeySize*addresses) }

// MakeTable makes a table, which can be used from the next slot on: two instructions, of which not both are needed
// again. The authority pays, and alone can close it. The slot is one of the last 512 and had a block; it makes the
// address, which never returns.
func MakeTable(authority sign.Key, slot uint64, holds ...sign.Key) []Instruction {
	t, bump := FindAddress(TableProgram, authority[:], data{}.u64(slot))
	d := data{}.u32(tableExtend).u64(uint64(len(holds)))
	for _, k := range holds {
		d = d.key(k)
	}
	accounts := []Meta{writes(t), signs(authority), pays(authority), reads(SystemProgram)}
	return []Instruction{
		{Program: TableProgram, Data: data{}.u32(tableCreate).u64(slot).u8(bump), Accounts: accounts},
		{Program: TableProgram, Data: d, Accounts: accounts},
	}
}

// DisableTable lets no new transaction use a table; CloseTable can follow when TableCooldown slots are over.
func DisableTable(authority, table sign.Key) Instruction {
	return Instruction{Program: TableProgram, Data: data{}.u32(tableDisable),
		Accounts: []Meta{writes(table), signs(authority)}}
}

// CloseTable ends a table; the rent goes back to the authority.
func CloseTable(authority, table sign.Key) Instruction {
	return Instruction{Program: TableProgram, Data: data{}.u32(tableClose),
		Accounts: []Meta{writes(table), signs(authority), pays(authority)}}
}

// TableCall is a call of the table program, read back.
type TableCall struct {
	Authority, Table sign.Key
	Made             bool       // a table, naming Slot
	Slot             uint64     //
	Holds            []sign.Key // added to it
	Disabled, Closed bool
}

// ParseTable reads an instruction of one of the forms above back; ok is false for any other.
func ParseTable(in Instruction) (c TableCall, ok bool) {
	if in.Program != TableProgram || len(in.Accounts) < 2 {
		return TableCall{}, false
	}
	c.Table, c.Authority = in.Accounts[0].Key, in.Accounts[1].Key
	r := &reader{b: in.Data}
	switch r.u32() {
	case tableCreate:
		c.Made, c.Slot = true, r.u64()
		r.u8()
	case tableExtend:
		n := r.u64()
		if r.failed || n > MaxTable || len(r.b) != sign.KeySize*int(n) {
			return TableCall{}, false
		}
		for range n {
			c.Holds = append(c.Holds, r.key())
		}
	case tableDisable:
		c.Disabled = true
	case tableClose:
		c.Closed = true
	default:
		return TableCall{}, false
	}
	return c, r.done()
}

func tableRentOf(in Instruction) uint64 {
	if len(in.Data) < 4 {
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
