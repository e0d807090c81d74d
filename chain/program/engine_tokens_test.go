package program_test

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
)

// What the token program refuses, by its numbers.
const (
	tokenFunds = 1 // too few tokens
	tokenMint  = 3 // of another mint
	tokenOwner = 4 // the authority is not the owner
)

const mintSize = 82

// named makes a key from a name, the same in every engine.
func named(name string) sign.Private { return sign.NewPrivate(sign.Sum([]byte("key "), []byte(name))) }

func u64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

// must runs instructions that have to succeed; the bench's wallet pays.
func (b *bench) must(name string, in []svm.Instruction, signers ...sign.Signer) uint64 {
	b.Helper()
	return b.run(name, "", in, append([]sign.Signer{b.wallet}, signers...)...).Units
}

// create makes an account of the token program.
func (b *bench) create(account sign.Key, size int) svm.Instruction {
	data := u64(u64([]byte{0, 0, 0, 0}, svm.Rent(size)), uint64(size))
	return svm.Instruction{Program: svm.SystemProgram, Data: append(data, svm.TokenProgram[:]...), Accounts: []svm.Meta{
		{Key: b.wallet.Key(), Signer: true, Writable: true}, {Key: account, Signer: true, Writable: true}}}
}

// mint makes a token, which the bench's wallet makes more of.
func (b *bench) mint(name string, decimals uint8) sign.Key {
	b.Helper()
	mint, authority := named("mint "+name), b.wallet.Key()
	initialize := append(append([]byte{20, decimals}, authority[:]...), 0)
	b.must("mint "+name, []svm.Instruction{b.create(mint.Key(), mintSize),
		{Program: svm.TokenProgram, Data: initialize, Accounts: []svm.Meta{{Key: mint.Key(), Writable: true}}}}, mint)
	return mint.Key()
}

// tokens opens an owner's associated token account, and puts so many in.
func (b *bench) tokens(name string, mint, owner sign.Key, amount uint64) sign.Key {
	b.Helper()
	account := svm.TokenAccount(owner, mint)
	b.must("tokens "+name, []svm.Instruction{svm.OpenTokenAccount(b.wallet.Key(), owner, mint),
		{Program: svm.TokenProgram, Data: u64([]byte{7}, amount), Accounts: []svm.Meta{
			{Key: mint, Writable: true}, {Key: account, Writable: true}, {Key: b.wallet.Key(), Signer: true}}}})
	return account
}

// aside makes another token account of an owner, with so many.
func (b *bench) aside(name string, mint, owner sign.Key, amount uint64) sign.Key {
	b.Helper()
	account := named("tokens " + name)
	b.must("tokens "+name, []svm.Instruction{b.create(account.Key(), svm.TokenSize),
		{Program: svm.TokenProgram, Data: append([]byte{18}, owner[:]...), Accounts: []svm.Meta{{Key: account.Key(), Writable: true}, {Key: mint}}},
		{Program: svm.TokenProgram, Data: u64([]byte{7}, amount), Accounts: []svm.Meta{
			{Key: mint, Writable: true}, {Key: account.Key(), Writable: true}, {Key: b.wallet.Key(), Signer: true}}}}, account)
	return account.Key()
}

// lend lets another spend from the account; theirs lets another close it.
func (b *bench) lend(account sign.Key, owner sign.Private, to sign.Key) {
	b.Helper()
	b.must("lend", []svm.Instruction{{Program: svm.TokenProgram, Data: u64([]byte{4}, 1000), Accounts: []svm.Meta{
		{Key: account, Writable: true}, {Key: to}, {Key: owner.Key(), Signer: true}}}}, owner)
}

func (b *bench) theirs(account sign.Key, owner sign.Private, to sign.Key) {
	b.Helper()
	b.must("let close", []svm.Instruction{{Program: svm.TokenProgram, Data: append([]byte{6, 3, 1}, to[:]...), Accounts: []svm.Meta{
		{Key: account, Writable: true}, {Key: owner.Key(), Signer: true}}}}, owner)
}

func (b *bench) number(account sign.Key, offset int) uint64 {
	b.Helper()
	a, err := b.Account(b.Context(), account)
	if err != nil || a == nil || len(a.Data) < offset+8 {
		b.Fatalf("account %s: %+v, %v", account, a, err)
	}
	return binary.LittleEndian.Uint64(a.Data[offset:])
}

func (b *bench) balance(account sign.Key) uint64 { b.Helper(); return b.number(account, 64) }
func (b *bench) supply(mint sign.Key) uint64     { b.Helper(); return b.number(mint, 36) }

// edit is a changed copy of an instruction.
func edit(in svm.Instruction, change func(*svm.Instruction)) svm.Instruction {
	in.Data, in.Accounts = slices.Clone(in.Data), slices.Clone(in.Accounts)
	change(&in)
	return in
}

// with is the instruction with another account in a place.
func with(in svm.Instruction, place int, k sign.Key) svm.Instruction {
	return edit(in, func(in *svm.Instruction) { in.Accounts[place].Key = k })
}

// until has the clock stand at a slot at least, on an engine whose clock can be set exactly there.
func (b *bench) until(slot uint64) {
	b.Helper()
	if w, ok := b.Engine.(programtest.Warper); ok {
		if err := w.Warp(b.Context(), slot); err != nil {
			b.Fatal(err)
		}
		return
	}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		now, err := b.Slot(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if now >= slot {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("slot %d after five minutes, waiting for %d", now, slot)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-b.Context().Done():
			b.Fatal(b.Context().Err())
		}
	}
}

func (b *bench) now() uint64 {
	b.Helper()
	slot, err := b.Slot(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return slot
}
