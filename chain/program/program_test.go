package program_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
)

const sol = 1_000_000_000

// receipts makes n hashes.
func receipts(n int) []sign.Hash {
	out := make([]sign.Hash, n)
	for i := range out {
		out[i] = sign.Sum([]byte(fmt.Sprintf("receipt %d", i)))
	}
	return out
}

// bench is an engine with the program and a wallet. It keeps what every transaction did, to compare engines.
type bench struct {
	testing.TB
	programtest.Engine
	program sign.Key
	wallet  sign.Private
	units   map[string]uint64 // of every transaction, by name and error
	spent   map[string]uint64 // by those that the program took, by name
}

// run runs one transaction and checks its error.
func (b *bench) run(name, want string, in []svm.Instruction, signers ...sign.Signer) programtest.Result {
	b.Helper()
	r, err := b.Run(b.Context(), in, signers...)
	if err != nil {
		b.Fatalf("%s: %v", name, err)
	}
	if r.Err != want {
		b.Errorf("%s: error %s, want %s\n%s", name, r.Err, want, strings.Join(r.Logs, "\n"))
	}
	b.units[name+" "+r.Err] = r.Units
	if r.Err == "" && slices.ContainsFunc(in, func(i svm.Instruction) bool { return i.Program == b.program }) {
		b.spent[name] = max(b.spent[name], r.Units)
		if most := program.Units(b.program, in); r.Units > uint64(most) {
			b.Errorf("%s takes %d units, and may take %d", name, r.Units, most)
		}
	}
	return r
}

func (b *bench) anchorAt(authority sign.Key, root sign.Hash) sign.Key {
	address, _, err := solana.ProgramAddress(b.program, account.AnchorSeeds(authority, root)...)
	if err != nil {
		b.Fatal(err)
	}
	return address
}

func (b *bench) anchor(at sign.Key, root sign.Hash, count uint64) svm.Instruction {
	return program.Anchor{Authority: b.wallet.Key(), Anchor: at, Root: root, Count: count}.Instruction(b.program)
}

func proveData(receipt sign.Hash, index uint64, path merkle.Proof) []byte {
	return program.Prove{Receipt: receipt, Index: index, Path: path}.Instruction(sign.Key{}).Data
}

func (b *bench) prove(at sign.Key, data []byte) svm.Instruction {
	return svm.Instruction{Program: b.program, Data: data, Accounts: []svm.Meta{{Key: at}}}
}

// TestEnginesAgree runs the same transactions on both engines and compares what they did and what it cost.
func TestEnginesAgree(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	units := map[string]map[string]uint64{}
	t.Run("engines", func(t *testing.T) {
		programtest.Each(t, program.ELF, func(t *testing.T, e programtest.Engine, id sign.Key) {
			b := newBench(t, e, id, "anchorer", 10*sol)
			b.anchorAndProve()
			b.refusals()
			mu.Lock()
			units[e.Name()] = b.units
			mu.Unlock()
		})
	})
	if len(units) < 2 {
		t.Skipf("%d engines ran: nothing to compare", len(units))
	}
	one, other := units["LiteSVM"], units["Surfpool"]
	for _, name := range slices.Sorted(maps.Keys(one)) {
		t.Logf("%6d CU  %s", one[name], name)
		if one[name] != other[name] {
			t.Errorf("%s: %d CU in LiteSVM, %d in Surfpool", name, one[name], other[name])
		}
	}
	if len(one) != len(other) {
		t.Errorf("%d transactions in LiteSVM, %d in Surfpool", len(one), len(other))
	}
}

// anchorAndProve: batches of every awkward shape, all of whose paths the program follows as Go does.
func (b *bench) anchorAndProve() {
	for _, n := range []int{1, 2, 3, 5, 8, 13, 1024} {
		batch := receipts(n)
		root := chain.RootOf(batch)
		at := b.anchorAt(b.wallet.Key(), root)
		before, err := b.Slot(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.run(fmt.Sprintf("anchor %d", n), "", []svm.Instruction{b.anchor(at, root, uint64(n))}, b.wallet)
		after, err := b.Slot(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		found, err := b.Account(b.Context(), at)
		if err != nil || found == nil {
			b.Fatalf("anchor of %d: %v, %v", n, found, err)
		}
		got, err := account.UnmarshalAnchored(found.Data)
		want := account.Anchored{Authority: b.wallet.Key(), Root: root, Count: uint64(n), Slot: got.Slot}
		if err != nil || got != want || found.Owner != b.program || got.Slot < before || got.Slot > after+1 {
			b.Errorf("anchor of %d between slots %d and %d: %+v of %s, %v", n, before, after, got, found.Owner, err)
		}
		for _, i := range slices.Compact([]int{0, n / 2, n - 1}) {
			data := proveData(batch[i], uint64(i), chain.ProofOf(batch, i))
			name := fmt.Sprintf("prove %d of %d", i, n)
			r := b.run(name, "", []svm.Instruction{b.prove(at, data)}, b.wallet)
			if n == 1024 && r.Units > 5000 {
				b.Errorf("%s: %d CU, at most 5,000", name, r.Units)
			}
		}
		b.run(fmt.Sprintf("anchor %d again", n), programtest.Custom(0, uint32(program.ErrExists)), []svm.Instruction{b.anchor(at, root, uint64(n))}, b.wallet)
	}
}

// refusals: each thing that can be wrong has its own number.
func (b *bench) refusals() {
	batch := receipts(7)
	root := chain.RootOf(batch)
	at := b.anchorAt(b.wallet.Key(), root)
	other := programtest.Wallet(b.TB, b.Engine, "somebody else", sol)

	b.refuse("no instruction", program.ErrData, svm.Instruction{Program: b.program})
	b.refuse("unknown instruction", program.ErrInstruction, svm.Instruction{Program: b.program, Data: []byte{255}})
	good := b.anchor(at, root, 7)
	edit := func(change func(*svm.Instruction)) svm.Instruction {
		in := svm.Instruction{Program: good.Program, Data: slices.Clone(good.Data), Accounts: slices.Clone(good.Accounts)}
		change(&in)
		return in
	}
	b.refuse("anchor cut off", program.ErrData, edit(func(in *svm.Instruction) { in.Data = in.Data[:40] }))
	b.refuse("anchor with more", program.ErrData, edit(func(in *svm.Instruction) { in.Data = append(in.Data, 0) }))
	b.refuse("anchor of nothing", program.ErrIndex, edit(func(in *svm.Instruction) { binary.LittleEndian.PutUint64(in.Data[33:], 0) }))
	b.refuse("anchor of too many", program.ErrIndex, edit(func(in *svm.Instruction) { binary.LittleEndian.PutUint64(in.Data[33:], 1<<20+1) }))
	b.refuse("anchor with two accounts", program.ErrAccountCount, edit(func(in *svm.Instruction) { in.Accounts = in.Accounts[:2] }))
	b.refuse("anchor with four accounts", program.ErrAccountCount, edit(func(in *svm.Instruction) { in.Accounts = append(in.Accounts, in.Accounts[0]) }))
	b.refuse("anchor at another address", program.ErrAddress, edit(func(in *svm.Instruction) { in.Accounts[1].Key = b.anchorAt(other.Key(), root) }))
	b.refuse("anchor at the wallet itself", program.ErrAddress, edit(func(in *svm.Instruction) { in.Accounts[1] = in.Accounts[0] }))
	b.refuse("anchor that is read-only", program.ErrNotWritable, edit(func(in *svm.Instruction) { in.Accounts[1].Writable = false }))
	b.refuse("anchor with another system program", program.ErrAddress, edit(func(in *svm.Instruction) { in.Accounts[2].Key = svm.TokenProgram }))
	unsigned := edit(func(in *svm.Instruction) { in.Accounts[0] = svm.Meta{Key: b.wallet.Key(), Writable: true} })
	b.run("anchor without signature", programtest.Custom(0, uint32(program.ErrNotSigner)), []svm.Instruction{unsigned}, other)
	readOnly := edit(func(in *svm.Instruction) { in.Accounts[0] = svm.Meta{Key: b.wallet.Key(), Signer: true} })
	b.run("anchor by one who cannot pay", programtest.Custom(0, uint32(program.ErrNotWritable)), []svm.Instruction{readOnly}, other, b.wallet)

	b.prefunded()
	b.run("anchor 7", "", []svm.Instruction{good}, b.wallet)
	path := chain.ProofOf(batch, 3)
	b.refuse("prove another receipt", program.ErrRoot, b.prove(at, proveData(batch[2], 3, path)))
	b.refuse("prove another index", program.ErrRoot, b.prove(at, proveData(batch[3], 2, path)))
	b.refuse("prove an index past the end", program.ErrIndex, b.prove(at, proveData(batch[3], 7, path)))
	b.refuse("prove the last index there is", program.ErrIndex, b.prove(at, proveData(batch[3], 1<<64-1, path)))
	b.refuse("prove by a path too short", program.ErrPath, b.prove(at, proveData(batch[3], 3, path[:2])))
	b.refuse("prove by a path too long", program.ErrPath, b.prove(at, proveData(batch[3], 3, append(merkle.Proof{}, path[0], path[1], path[2], path[0]))))
	b.refuse("prove by no path", program.ErrPath, b.prove(at, proveData(batch[3], 3, nil)))
	b.refuse("prove cut off", program.ErrData, b.prove(at, proveData(batch[3], 3, path)[:100]))
	b.refuse("prove with more", program.ErrData, b.prove(at, append(proveData(batch[3], 3, path), 0)))
	proof := proveData(batch[3], 3, path)
	b.refuse("prove under a wallet", program.ErrOwner, b.prove(other.Key(), proof))
	b.refuse("prove under the program", program.ErrOwner, b.prove(b.program, proof))
	two := b.prove(at, proof)
	two.Accounts = append(two.Accounts, two.Accounts[0])
	b.refuse("prove under an account twice", program.ErrAccountCount, two)
	many := b.prove(at, proof)
	for range 64 {
		many.Accounts = append(many.Accounts, many.Accounts[0])
	}
	b.refuse("prove under 65 accounts", program.ErrTooManyAccounts, many)
	writable := b.prove(at, proof)
	writable.Accounts[0].Writable = true
	b.run("prove 3 of 7 under a writable account", "", []svm.Instruction{writable}, b.wallet)
}

func (b *bench) refuse(name string, number program.Code, in svm.Instruction) {
	b.Helper()
	b.run(name, programtest.Custom(0, uint32(number)), []svm.Instruction{in}, b.wallet)
}

// prefunded: lamports sent to an address before it is used change nothing but who pays the rent.
func (b *bench) prefunded() {
	const rent = (128 + account.AnchorSize) * 6960
	for i, held := range []uint64{900_000, rent - 1, rent, rent + 5} {
		batch := receipts(20 + i)
		root := chain.RootOf(batch)
		at := b.anchorAt(b.wallet.Key(), root)
		if err := b.Fund(b.Context(), at, held); err != nil {
			b.Fatal(err)
		}
		b.run(fmt.Sprintf("anchor with %d lamports there", held), "", []svm.Instruction{b.anchor(at, root, uint64(len(batch)))}, b.wallet)
		found, err := b.Account(b.Context(), at)
		if err != nil || found == nil || found.Owner != b.program || found.Lamports != max(held, rent) || len(found.Data) != account.AnchorSize {
			b.Errorf("%d lamports there before: %+v, %v", held, found, err)
		}
		b.run(fmt.Sprintf("prove 9 of %d", len(batch)), "", []svm.Instruction{b.prove(at, proveData(batch[9], 9, chain.ProofOf(batch, 9)))}, b.wallet)
	}
}
