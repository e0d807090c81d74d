package program_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-network/starling/chain/program/sbpf"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
)

const (
	wrong      = 1000 // the probe's: what was done is not what was asked for
	badOwner   = 12
	badAddress = 13
	exists     = 15
	overflow   = 20
	noSuch     = 40
	precomp    = 41
	badPrefix  = 42
	tokenSize  = 165
)

var le = binary.LittleEndian

// TestSubstrate runs what the program stands on, in a program made for that, on both engines: copies, arithmetic,
// accounts, calls of the token program, signatures that the precompile checked.
func TestSubstrate(t *testing.T) {
	t.Parallel()
	elf, err := compiler(t).Build(t.Context(), filepath.Join("testdata", "probe"), sbpf.V0)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	units := map[string]map[string]uint64{}
	t.Run("engines", func(t *testing.T) {
		programtest.Each(t, elf, func(t *testing.T, e programtest.Engine, id sign.Key) {
			b := newBench(t, e, id, "prober", 10*sol)
			b.plain()
			b.ownAccount()
			b.vaults()
			b.signatures()
			mu.Lock()
			units[e.Name()] = b.units
			mu.Unlock()
		})
	})
	if one, other := units["LiteSVM"], units["Surfpool"]; one != nil && other != nil && !maps.Equal(one, other) {
		t.Errorf("compute units differ:\nLiteSVM  %v\nSurfpool %v", one, other)
	}
}

func (b *bench) probe(data []byte, accounts ...svm.Meta) svm.Instruction {
	return svm.Instruction{Program: b.program, Data: data, Accounts: accounts}
}

// plain: copies, arithmetic, a panic, a log.
func (b *bench) plain() {
	for _, n := range []uint16{1, 8, 33, 600, 1199} {
		b.run(fmt.Sprintf("copy %d", n), "", []svm.Instruction{b.probe(le.AppendUint16([]byte{4}, n))}, b.wallet)
	}
	b.refuse("copy too much", 16, b.probe(le.AppendUint16([]byte{4}, 1201)))
	for _, c := range []struct {
		a, b, c, d uint64
		want       uint32
	}{
		{7, 6, 5, 8, 0}, {1 << 40, 1 << 40, 1 << 20, 1 << 60, 0}, {1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 0},
		{1<<64 - 1, 999_999, 1_000_000, 18_446_725_626_965_477_905, 0}, {1<<63 + 1, 1 << 33, 1<<34 + 1, 4611686018158952448, 0}, {1 << 40, 1 << 40, 1, 0, overflow}, {1, 1, 0, 0, overflow}, {7, 6, 5, 9, wrong},
	} {
		data := []byte{5}
		for _, v := range []uint64{c.a, c.b, c.c, c.d} {
			data = le.AppendUint64(data, v)
		}
		want := ""
		if c.want != 0 {
			want = programtest.Custom(0, c.want)
		}
		b.run(fmt.Sprintf("%d * %d / %d", c.a, c.b, c.c), want, []svm.Instruction{b.probe(data)}, b.wallet)
	}
	b.run("index in a table", "", []svm.Instruction{b.probe([]byte{7, 0})}, b.wallet)
	b.run("index outside of a table", `{"InstructionError":[0,"ProgramFailedToComplete"]}`, []svm.Instruction{b.probe([]byte{7, 2})}, b.wallet)
	r := b.run("say", "", []svm.Instruction{b.probe([]byte("\x08return"), svm.Meta{Key: b.wallet.Key()})}, b.wallet)
	if text := strings.Join(r.Logs, "\n"); !strings.Contains(text, "hello from the probe") || !strings.Contains(text, "0x1, 0x2, 0x3, 0x4, 0x1") ||
		!strings.Contains(text, "cmV0dXJu") {
		b.Errorf("log: %s", text)
	}
}

// ownAccount makes, fills and closes one.
func (b *bench) ownAccount() {
	at, _, err := solana.ProgramAddress(b.program, []byte("state"))
	if err != nil {
		b.Fatal(err)
	}
	do := func(step byte) svm.Instruction {
		return b.probe([]byte{6, step}, svm.Meta{Key: b.wallet.Key(), Signer: true, Writable: true}, svm.Meta{Key: at, Writable: true}, svm.Meta{Key: svm.SystemProgram})
	}
	for range 2 { // the address is free again after it was closed
		b.run("make", "", []svm.Instruction{do(1)}, b.wallet)
		b.refuse("make again", exists, do(1))
		b.run("fill", "", []svm.Instruction{do(2)}, b.wallet)
		if a, err := b.Account(b.Context(), at); err != nil || a == nil || a.Owner != b.program || len(a.Data) != 100 || a.Data[90] != 0 || a.Data[91] != 5 || a.Data[99] != 5 {
			b.Fatalf("filled: %+v, %v", a, err)
		}
		b.run("close", "", []svm.Instruction{do(3)}, b.wallet)
		if a, err := b.Account(b.Context(), at); err != nil || a != nil {
			b.Fatalf("closed: %+v, %v", a, err)
		}
	}
	b.refuse("fill what is closed", badOwner, do(2))
}

// vaults that own themselves are opened, paid from, burnt from and closed.
func (b *bench) vaults() {
	mint := sign.NewPrivate(sign.Sum([]byte("mint")))
	if err := b.Fund(b.Context(), mint.Key(), 1461600); err != nil {
		b.Fatal(err)
	}
	owner := b.wallet.Key()
	writable := func(k sign.Key) svm.Meta { return svm.Meta{Key: k, Writable: true} }
	allocate := le.AppendUint64([]byte{8, 0, 0, 0}, mintSize)
	assign := append([]byte{1, 0, 0, 0}, svm.TokenProgram[:]...)
	key := mint.Key()
	b.run("make a mint", "", []svm.Instruction{
		{Program: svm.SystemProgram, Data: allocate, Accounts: []svm.Meta{{Key: key, Signer: true, Writable: true}}},
		{Program: svm.SystemProgram, Data: assign, Accounts: []svm.Meta{{Key: key, Signer: true, Writable: true}}},
		{Program: svm.TokenProgram, Data: append(append([]byte{20, 6}, owner[:]...), 0), Accounts: []svm.Meta{writable(key)}},
	}, b.wallet, mint)
	var vaults [2]sign.Key
	for i := range vaults {
		var err error
		if vaults[i], _, err = solana.ProgramAddress(b.program, key[:], []byte{byte(i)}); err != nil {
			b.Fatal(err)
		}
		if i == 1 { // somebody was there before with lamports
			if err := b.Fund(b.Context(), vaults[i], 1_000_000); err != nil {
				b.Fatal(err)
			}
		}
		b.run(fmt.Sprintf("open vault %d", i), "", []svm.Instruction{b.probe([]byte{0, byte(i)}, svm.Meta{Key: owner, Signer: true, Writable: true},
			writable(vaults[i]), svm.Meta{Key: key}, svm.Meta{Key: svm.SystemProgram}, svm.Meta{Key: svm.TokenProgram})}, b.wallet)
	}
	amount := func(v sign.Key) uint64 {
		a, err := b.Account(b.Context(), v)
		if err != nil || a == nil || a.Owner != svm.TokenProgram || len(a.Data) != tokenSize {
			b.Fatalf("vault %s: %+v, %v", v.Short(), a, err)
		}
		return le.Uint64(a.Data[64:])
	}
	b.run("mint", "", []svm.Instruction{{Program: svm.TokenProgram, Data: append(le.AppendUint64([]byte{14}, 1000), 6),
		Accounts: []svm.Meta{writable(key), writable(vaults[0]), {Key: owner, Signer: true}}}}, b.wallet)
	spend := func(n uint64) svm.Instruction {
		return b.probe(le.AppendUint64([]byte{1}, n), writable(vaults[0]), writable(vaults[1]), writable(key), svm.Meta{Key: svm.TokenProgram})
	}
	b.run("spend", "", []svm.Instruction{spend(300)}, b.wallet)
	if a, c := amount(vaults[0]), amount(vaults[1]); a != 400 || c != 300 {
		b.Errorf("after 1000 - 2 * 300: %d and %d", a, c)
	}
	b.refuse("spend more than there is", 1, spend(401)) // the token program's own number, as a failed call ends the transaction
	shut := b.probe([]byte{2}, writable(vaults[0]), writable(owner), svm.Meta{Key: key}, svm.Meta{Key: svm.TokenProgram})
	b.refuse("close what is not empty", 11, shut) // likewise
	b.run("spend the rest", "", []svm.Instruction{spend(200)}, b.wallet)
	b.run("close", "", []svm.Instruction{shut}, b.wallet)
	if a, err := b.Account(b.Context(), vaults[0]); err != nil || a != nil || amount(vaults[1]) != 500 {
		b.Errorf("closed: %+v, %v", a, err)
	}
	foreign := b.probe(le.AppendUint64([]byte{1}, 1), writable(vaults[1]), writable(vaults[1]), writable(key), svm.Meta{Key: svm.TokenProgram})
	b.run("spend from a vault without its seeds", `{"InstructionError":[0,"PrivilegeEscalation"]}`, []svm.Instruction{foreign}, b.wallet)
}

// signatures: what the precompile checked is found, and nothing else is taken for it.
func (b *bench) signatures() {
	message := bytes.Repeat([]byte("prefix, "), 14) // 96 bytes and then 16
	var signed svm.Signed
	for i := range 2 {
		k := sign.NewPrivate(sign.Sum([]byte{byte(i)}))
		s, err := k.Sign(message)
		if err != nil {
			b.Fatal(err)
		}
		signed.Keys, signed.Signatures = append(signed.Keys, k.Key()), append(signed.Signatures, s)
	}
	signed.Message = message
	checked, keys := signed.Instruction(), signed.Keys
	look := func(at uint16, message []byte, keys ...sign.Key) svm.Instruction {
		data := append(le.AppendUint16([]byte{3}, at), byte(len(keys)))
		for _, k := range keys {
			data = append(data, k[:]...)
		}
		return b.probe(append(data, message...), svm.Meta{Key: svm.InstructionsSysvar})
	}
	run := func(name string, number uint32, in ...svm.Instruction) {
		b.Helper()
		want := ""
		if number != 0 {
			want = programtest.Custom(slices.IndexFunc(in, func(i svm.Instruction) bool { return i.Program == b.program }), number)
		}
		b.run(name, want, in, b.wallet)
	}
	other, prefix := slices.Clone(message), slices.Clone(message)
	other[111]++
	prefix[95]++
	run("signed", 0, checked, look(0, message, keys...))
	run("signed, checked afterwards", 0, look(1, message, keys...), checked)
	run("signed by another", wrong, checked, look(0, message, keys[0], keys[0]))
	run("signed by fewer", wrong, checked, look(0, message, keys[0]))
	run("another message", wrong, checked, look(0, other, keys...))
	run("another prefix", badPrefix, checked, look(0, prefix, keys...))
	run("no such instruction", noSuch, checked, look(2, message, keys...))
	run("not the precompile", precomp, checked, look(1, message, keys...))
	fake := look(0, message, keys...)
	fake.Accounts[0].Key = b.wallet.Key()
	run("not the sysvar", badAddress, checked, fake)
	// The precompile may be told to look into another instruction: here into its own by number, which would be as good, and
	// into a copy of its data that stands elsewhere.
	for i, at := range []int{4, 8, 14, 18, 22, 28} {
		elsewhere := svm.Instruction{Program: checked.Program, Data: slices.Clone(checked.Data)}
		le.PutUint16(elsewhere.Data[at:], 0)
		run(fmt.Sprintf("pointer %d by number", i), precomp, elsewhere, look(0, message, keys...))
		le.PutUint16(elsewhere.Data[at:], 1)
		run(fmt.Sprintf("pointer %d into another", i), precomp, elsewhere, checked, look(0, message, keys...))
	}
}
