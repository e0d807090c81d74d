// Package modeltest makes random sequences of calls of Starling's program: mostly valid ones, some that just break a
// rule, and some with one corrupted field. They test the model's own properties, and the program against the model.
package modeltest

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// Step is one transaction: its call and the signatures beside it.
type Step struct {
	Slot   uint64
	Call   program.Call
	Beside []svm.Signed
}

// Instructions are the step's, in order.
func (s Step) Instructions(at sign.Key) []svm.Instruction {
	var out []svm.Instruction
	for _, b := range s.Beside {
		out = append(out, b.Instruction())
	}
	return append(out, s.Call.Instruction(at))
}

// Sizes of a world. Windows are short, so that a few steps cross them.
const (
	People    = 10
	Decimals  = 6
	firstSlot = 1000
	margin    = 20
	response  = 15
	evidence  = 60
	unbonding = 80
	minStake  = 500
	Wealth    = 1 << 40 // of each wallet, in each token
	Past      = 160     // slots that a chain must have behind it: leases and receipts of them are made up
)

// World is a chain's model with owners of tokens. It keeps their private data: leaves of tranches.
type World struct {
	*model.State
	Slot  uint64
	Mints []sign.Key // two to pay with; the second is also staked
	// Land is optional. It runs a step on a chain with its own slots, not before the step's, and returns the slot in
	// which it landed, with or without an effect. If nil, a step lands in its own slot.
	Land   func(Step) uint64
	people []sign.Private
	trees  map[sign.Key]tree // by tranche
	made   int               // counter for values that must differ
	// Together: the next step is made in the slot of the last.
	Together bool
	t        *rapid.T
	roots    map[sign.Key]batch   // by anchor
	paid     map[sign.Hash]payees // by root of rewards
	shown    map[sign.Key]shown   // by statement
}

type tree struct {
	leaves []tranche.Leaf
	tree   *tranche.Tree
}

type batch struct{ receipts [][]byte }

// New returns a new world.
func New(t *rapid.T, at sign.Key) *World {
	w := &World{State: model.New(at), Slot: firstSlot, t: t, trees: map[sign.Key]tree{}, roots: map[sign.Key]batch{},
		paid: map[sign.Hash]payees{}, shown: map[sign.Key]shown{}}
	for i := range 2 {
		mint := named("mint", i)
		w.Mints = append(w.Mints, mint)
		w.State.Mints[mint] = model.Mint{Decimals: Decimals, Supply: People * Wealth}
	}
	for i := range People {
		p := sign.NewPrivate(sign.Sum([]byte("person"), []byte{byte(i)}))
		w.people = append(w.people, p)
		for _, mint := range w.Mints {
			w.Tokens[Account(p.Key(), mint)] = svm.Token{Mint: mint, Owner: p.Key(), Amount: Wealth, Plain: true}
		}
	}
	return w
}

func private(what string, i int) sign.Private {
	return sign.NewPrivate(sign.Sum([]byte(what), []byte{byte(i), byte(i >> 8)}))
}

func named(what string, i int) sign.Key { return private(what, i).Key() }

// MintKey is the private half of Mints[i], with which a chain makes the mint.
func MintKey(i int) sign.Private { return private("mint", i) }

// accounts caches addresses that take long to find.
var accounts sync.Map

// Account is where a person keeps tokens of a mint.
func Account(owner, mint sign.Key) sign.Key {
	type pair struct{ owner, mint sign.Key }
	at, ok := accounts.Load(pair{owner, mint})
	if !ok {
		at, _ = accounts.LoadOrStore(pair{owner, mint}, svm.TokenAccount(owner, mint))
	}
	return at.(sign.Key)
}

// People have keys.
func (w *World) People() []sign.Private { return w.people }

// Wallets returns all wallets.
func (w *World) Wallets() []sign.Key {
	out := make([]sign.Key, len(w.people))
	for i, p := range w.people {
		out[i] = p.Key()
	}
	return out
}

// draws

func (w *World) upTo(most uint64) uint64 { return rapid.Uint64Range(0, most).Draw(w.t, "n") }
func (w *World) between(a, b uint64) uint64 {
	return rapid.Uint64Range(a, max(a, b)).Draw(w.t, "n")
}

// choice is one of n, all equally likely (rapid's own numbers are more often small) and with some spare so that they
// nearly are.
func (w *World) choice(n int) int {
	v := 0
	for bits := 1; bits < 8*n; bits *= 2 {
		v *= 2
		if rapid.Bool().Draw(w.t, "bit") {
			v++
		}
	}
	return v % n
}

func (w *World) oneIn(n int) bool { return w.choice(n) == n-1 }

func one[V any](w *World, of []V) V { return of[w.choice(len(of))] }

// any picks an address of a map; ok is false if it is empty.
func pick[V any](w *World, of map[sign.Key]V) (at sign.Key, v V, ok bool) {
	if len(of) == 0 {
		return at, v, false
	}
	at = one(w, sorted(of))
	return at, of[at], true
}

func sorted[V any](of map[sign.Key]V) []sign.Key {
	keys := make([]sign.Key, 0, len(of))
	for k := range of {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b sign.Key) int { return bytes.Compare(a[:], b[:]) })
	return keys
}

func (w *World) person() sign.Key { return one(w, w.people).Key() }

func (w *World) signer(k sign.Key) sign.Private {
	for _, p := range w.people {
		if p.Key() == k {
			return p
		}
	}
	return w.people[0]
}

// next returns a new number, for values that must differ.
func (w *World) next() sign.Hash {
	w.made++
	return sign.Sum([]byte("made"), []byte{byte(w.made), byte(w.made >> 8)})
}

// amount is a random part of most, often a round one.
func (w *World) amount(most uint64) uint64 {
	switch w.choice(6) {
	case 0:
		return most
	case 1:
		return most / 2
	case 2:
		return w.upTo(most)
	case 3:
		return min(most, w.upTo(20))
	case 4:
		return most/3 + 1
	}
	return w.upTo(min(most, 5000))
}

// Begin runs the initial steps of every world, which all succeed: two networks, one without an authority; their pools;
// a provider with stake; an escrow with a claim and a sweep; two contradictory receipts. See receives each step and the
// state before it.
func (w *World) Begin(see func(before *model.State, s Step)) {
	do := func(c program.Call, beside ...svm.Signed) {
		before, s := w.State.Clone(), w.land(Step{Slot: w.Slot, Call: c, Beside: beside})
		if err := w.Apply(s.Slot, s.Call, s.Beside...); err != nil {
			w.t.Fatalf("%T in the beginning: %v", c, err)
		}
		see(before, s)
	}
	for _, p := range []account.Params{w.params("ruled", w.people[7].Key(), w.people[8].Key()),
		w.params("free", sign.Key{}, sign.Key{})} {
		network := account.NetworkAddress(w.Program, p)
		do(program.InitNetwork{Payer: w.people[0].Key(), Network: network, Params: p})
		if p.Authority.IsZero() {
			continue
		}
		for i, m := range p.Mints {
			do(program.InitPool{Payer: w.people[0].Key(), Network: network, Mint: m.Mint,
				Pool: account.PoolAddress(w.Program, network, m.Mint), Index: uint8(i)})
		}
		do(w.registration(network, w.people[4].Key(), w.people[3].Key()))
		provider := account.ProviderAddress(w.Program, network, w.people[4].Key())
		do(w.stakeOf(provider, w.people[3].Key(), 1001))
		w.firstEscrow(network, do)
		voteCalls{w}.firstVote(network, provider, do)
		auditCalls{w}.firstLie(network, provider, do)
		for i, units := range unitSets {
			core := verify.ReceiptCore{Version: verify.ReceiptVersion, Units: uint16(len(units)),
				Lease: market.LeaseID{byte(i)}, Seq: 1, Provider: w.people[4].Key(), Buyer: w.people[i].Key(),
				UnitsRoot: market.UnitsRoot(units), From: market.Slot(w.Slot - 20), To: market.Slot(w.Slot),
				Cumulative: 100}
			layout := core.Marshal()
			do(program.Attest{Reporter: w.people[0].Key(), Network: network,
				Attested: program.AttestedAddress(w.Program, network, w.people[0].Key(), core.Hash())},
				w.signed(w.Networks[network].Params.Domain(w.Program), sign.TagReceipt, layout[:], core.Provider,
					core.Buyer))
		}
	}
}

// firstEscrow is opened, a tranche added, something of it claimed, and the fees swept.
func (w *World) firstEscrow(network sign.Key, do func(program.Call, ...svm.Signed)) {
	buyer, mint := w.people[0].Key(), w.Mints[0]
	open := program.OpenEscrow{Payer: w.people[9].Key(), Buyer: buyer, Source: Account(buyer, mint), Authority: buyer,
		Mint: mint, Network: network, Opened: w.Slot, Deadline: w.Slot + 400, Deposit: 50_000, RefundOwner: buyer,
		Referrer: w.people[6].Key(), Keys: w.guardians(), Standbys: []account.Standby{
			{Provider: w.people[4].Key(), Payout: w.people[3].Key(), MaxRate: 50_000_000, Budget: 9000}}}
	open.Escrow = account.EscrowAddress(w.Program, network, buyer, sign.Hash{}, w.Slot)
	open.Vault = account.VaultAddress(w.Program, open.Escrow)
	do(open)
	var leaves []tranche.Leaf
	for i := range 3 {
		leaves = append(leaves, tranche.Leaf{Version: tranche.LeafVersion, Index: uint16(i),
			Provider: w.people[4].Key(), Lease: market.LeaseID(w.next()), Payout: w.people[3].Key(), Rate: 40_000_000,
			Cap: 10_000, Start: market.Slot(w.Slot - 100), End: market.Slot(w.Slot + 100)})
	}
	built, err := tranche.Build(leaves)
	if err != nil {
		w.t.Fatal(err)
	}
	add := program.AddTranche{Payer: buyer, Buyer: buyer, Escrow: open.Escrow, Vault: open.Vault,
		Tranche: account.TrancheAddress(w.Program, open.Escrow, 0), Root: built.Root()}
	w.trees[add.Tranche] = tree{leaves, built}
	do(add)
	v := verify.Voucher{Version: verify.VoucherVersion, Lease: leaves[1].Lease, Escrow: open.Escrow, Seq: 1,
		Cumulative: 3999}
	layout := v.Marshal()
	path, err := built.Prove(1)
	if err != nil {
		w.t.Fatal(err)
	}
	do(program.Claim{Escrow: open.Escrow, Tranche: add.Tranche, Vault: open.Vault,
		Destination: Account(leaves[1].Payout, mint), Mint: mint, Network: network, Leaf: leaves[1], Proof: path},
		w.signed(w.Networks[network].Params.Domain(w.Program), sign.TagVoucher, layout[:], open.Keys.Keys[:2]...))
	do(program.Sweep{Escrow: open.Escrow, Vault: open.Vault, Mint: mint, Network: network,
		Pool: account.PoolAddress(w.Program, network, mint), Treasury: Account(w.people[8].Key(), mint),
		Referrer: Account(open.Referrer, mint)})
}

func (w *World) params(name string, authority, treasury sign.Key) account.Params {
	p := account.Params{
		Network: name, Chain: sign.Hash{1}, Authority: authority, Treasury: treasury, StakeMint: w.Mints[1],
		MarginSlots: margin, ResponseSlots: response, UnbondingSlots: unbonding, EvidenceSlots: evidence,
		MinStake: minStake, Mints: []account.MintTerms{
			{Mint: w.Mints[0], FeeBps: 250, BurnBps: 4000, PoolBps: 3000, TreasuryBps: 2000, ReferrerBps: 1000,
				Decimals: Decimals},
			{Mint: w.Mints[1], FeeBps: 10, BurnBps: 2000, PoolBps: 1, TreasuryBps: 7999, Decimals: Decimals},
		},
	}
	if !authority.IsZero() {
		p.Votes, p.AuditSlots = votes, auditSlots
	}
	return p
}

// Next is one more step, after some time. It was applied: the error is the model's.
func (w *World) Next() (Step, error) {
	if !w.Together {
		w.Slot += w.wait()
	}
	var call program.Call
	var beside []svm.Signed
	for call == nil || !w.signable(call) {
		call, beside = one(w, makers)(w)
	}
	if w.oneIn(6) {
		if changed, ok := w.corrupt(call); ok &&
			(Step{Call: changed, Beside: beside}).size(w.Program) <= MaxTransaction {
			call = changed
		}
	}
	s := w.land(Step{Slot: w.Slot, Call: call, Beside: beside})
	return s, w.Apply(s.Slot, s.Call, s.Beside...)
}

// land sets the slot in which a step lands.
func (w *World) land(s Step) Step {
	if w.Land != nil {
		w.Slot = w.Land(s)
		s.Slot = w.Slot
	}
	return s
}

// MaxTransaction is the most bytes of a transaction.
const MaxTransaction = 1232

// size is the length of the step's transaction with a separate payer.
func (s Step) size(at sign.Key) int { return Size(s.Instructions(at)) }

// Size is the length of a transaction of these instructions with a separate payer.
func Size(all []svm.Instruction) int {
	n, signers, seen := 64+32+3+1+32+1, map[sign.Key]bool{}, map[sign.Key]bool{}
	for _, in := range all {
		n += 1 + 2 + len(in.Accounts) + 2 + len(in.Data)
		seen[in.Program] = true
		for _, m := range in.Accounts {
			seen[m.Key] = true
			signers[m.Key] = signers[m.Key] || m.Signer
		}
	}
	for _, signs := range signers {
		if signs {
			n += 64
		}
	}
	return n + 32*len(seen)
}

func (w *World) wait() uint64 {
	switch w.choice(13) {
	case 0:
		return w.between(1, 40)
	case 1:
		return w.between(1, 3)
	case 2:
		return margin
	case 3:
		return response + 1
	case 4:
		if w.oneIn(4) {
			return account.OpeningSlots + 1
		}
	}
	return 0
}

// Describe is a step for people.
func (s Step) Describe() string { return fmt.Sprintf("slot %d: %T%+v", s.Slot, s.Call, s.Call) }

func amountOf(v uint64) market.Amount { return market.Amount(v) }
