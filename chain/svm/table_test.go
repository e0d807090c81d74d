package svm_test

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// TestTableCalls pins the bytes and accounts of calls of the table program: they are Solana's, not ours.
func TestTableCalls(t *testing.T) {
	t.Parallel()
	const slot = 0x0102030405060708
	authority, holds := key(1), []sign.Key{key(2), key(3)}
	le := binary.LittleEndian
	at, bump := svm.FindAddress(svm.TableProgram, authority[:], le.AppendUint64(nil, slot))
	if got := svm.TableAddress(authority, slot); got != at {
		t.Errorf("address %s, want %s", got, at)
	}
	made := svm.MakeTable(authority, slot, holds...)
	if len(made) != 2 {
		t.Fatalf("made by %d instructions", len(made))
	}
	four := []svm.Meta{{Key: at, Writable: true}, {Key: authority, Signer: true},
		{Key: authority, Signer: true, Writable: true}, {Key: svm.SystemProgram}}
	extend := append([]byte{2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, slices.Concat(holds[0][:], holds[1][:])...)
	for name, c := range map[string]struct {
		got      svm.Instruction
		data     []byte
		accounts []svm.Meta
	}{
		"create":  {made[0], []byte{0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, bump}, four},
		"extend":  {made[1], extend, four},
		"disable": {svm.DisableTable(authority, at), []byte{3, 0, 0, 0}, four[:2]},
		"close":   {svm.CloseTable(authority, at), []byte{4, 0, 0, 0}, four[:3]},
	} {
		want := svm.Instruction{Program: svm.TableProgram, Accounts: c.accounts, Data: c.data}
		if c.got.Program != want.Program || !slices.Equal(c.got.Accounts, want.Accounts) ||
			!bytes.Equal(c.got.Data, want.Data) {
			t.Errorf("%s: %+v, want %+v", name, c.got, want)
		}
	}
}

// TestTablesReadBack: each call comes back with its fields.
func TestTablesReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		authority, slot := keys(t, "authority", 1, 1)[0], rapid.Uint64().Draw(t, "slot")
		at, holds := svm.TableAddress(authority, slot), keys(t, "holds", 0, 20)
		made := svm.MakeTable(authority, slot, holds...)
		for name, c := range map[string]struct {
			in   svm.Instruction
			want svm.TableCall
		}{
			"create":  {made[0], svm.TableCall{Authority: authority, Table: at, Made: true, Slot: slot}},
			"extend":  {made[1], svm.TableCall{Authority: authority, Table: at, Holds: holds}},
			"disable": {svm.DisableTable(authority, at), svm.TableCall{Authority: authority, Table: at, Disabled: true}},
			"close":   {svm.CloseTable(authority, at), svm.TableCall{Authority: authority, Table: at, Closed: true}},
		} {
			got, ok := svm.ParseTable(c.in)
			if len(holds) == 0 {
				c.want.Holds = nil
			}
			if !ok || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("%s comes back as %+v, %v, want %+v", name, got, ok, c.want)
			}
			if longer := c.in; true {
				longer.Data = append(bytes.Clone(longer.Data), 0)
				if got, ok := svm.ParseTable(longer); ok {
					t.Fatalf("%s with a byte more: %+v", name, got)
				}
			}
			for n := range c.in.Data {
				shorter := c.in
				shorter.Data = shorter.Data[:n]
				if got, ok := svm.ParseTable(shorter); ok {
					t.Fatalf("%d bytes of %s: %+v", n, name, got)
				}
			}
		}
		paid := svm.TableRentOf(made[0]) + svm.TableRentOf(made[1])
		if want := svm.TableRent(len(holds)); paid != want || want != svm.Rent(56+32*len(holds)) {
			t.Fatalf("%d addresses: the calls cost %d, the table %d", len(holds), paid, want)
		}
	})
}

// TestParseTableRefuses: other programs, other numbers and lists that are not as long as they say.
func TestParseTableRefuses(t *testing.T) {
	t.Parallel()
	extend := svm.MakeTable(key(1), 5, key(2))[1]
	for name, change := range map[string]func(*svm.Instruction){
		"another program":  func(in *svm.Instruction) { in.Program = key(1) },
		"one account":      func(in *svm.Instruction) { in.Accounts = in.Accounts[:1] },
		"freeze":           func(in *svm.Instruction) { in.Data[0] = 1 },
		"unknown number":   func(in *svm.Instruction) { in.Data[0] = 5 },
		"a high number":    func(in *svm.Instruction) { in.Data[3] = 1 },
		"more than follow": func(in *svm.Instruction) { in.Data[4] = 2 },
		"fewer":            func(in *svm.Instruction) { in.Data[4] = 0 },
		"a count that overflows": func(in *svm.Instruction) {
			binary.LittleEndian.PutUint64(in.Data[4:], 1<<59+1) // times 32 this is 32
		},
		"too many": func(in *svm.Instruction) {
			in.Data = append(binary.LittleEndian.AppendUint64([]byte{2, 0, 0, 0}, svm.MaxTable+1), make([]byte, 32*(svm.MaxTable+1))...)
		},
	} {
		in := svm.Instruction{Program: extend.Program, Accounts: slices.Clone(extend.Accounts), Data: bytes.Clone(extend.Data)}
		change(&in)
		if c, ok := svm.ParseTable(in); ok {
			t.Errorf("%s: %+v", name, c)
		}
		if rent := svm.TableRentOf(in); rent != 0 {
			t.Errorf("%s costs %d lamports", name, rent)
		}
	}
	for _, in := range []svm.Instruction{svm.DisableTable(key(1), key(2)), svm.CloseTable(key(1), key(2))} {
		if rent := svm.TableRentOf(in); rent != 0 {
			t.Errorf("%x costs %d lamports", in.Data, rent)
		}
	}
}

func FuzzTable(f *testing.F) {
	for _, in := range append(svm.MakeTable(key(1), 7, key(2)), svm.DisableTable(key(1), key(2)), svm.CloseTable(key(1), key(2))) {
		f.Add(in.Data)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := svm.Instruction{Program: svm.TableProgram, Data: b, Accounts: []svm.Meta{{Key: key(1)}, {Key: key(2)}}}
		c, ok := svm.ParseTable(in)
		if ok && len(c.Holds) > svm.MaxTable {
			t.Fatalf("%d addresses", len(c.Holds))
		}
		if ok && !c.Made && !c.Disabled && !c.Closed && len(b) != 12+32*len(c.Holds) {
			t.Fatalf("%x adds %d addresses", b, len(c.Holds))
		}
		svm.TableRentOf(in)
	})
}
