package rewards_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mr-tron/base58"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	counting "github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	facts "github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/rewards"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/tranche"
)

// The network of these tests, in slots of 20 ms.
const (
	windowSlots = 50
	epochSlots  = 8 * windowSlots
	pooled      = 30 << 15 // all of it is divisible
)

// town is a network on a local chain, of peers who register, put up stake and bond it.
type town struct {
	*testing.T
	net   *localnet.Chain
	g     market.Genesis
	peers []*citizen
	byKey map[sign.Key]*citizen
}

// citizen is one peer.
type citizen struct {
	t      *town
	key    sign.Private
	unit   market.UnitID
	ledger *solana.Ledger
	sight  *facts.Public
	store  store.Store
	*rewards.Service
	log  said
	shut atomic.Bool

	mu      sync.Mutex
	wards   []sign.Key
	records []audit.Record
	lies    map[rewards.Document][]byte // what it answers, whatever it has
}

// gated is a chain that a peer can only read until it may do more.
type gated struct {
	*solana.Ledger
	shut *atomic.Bool
}

func (g gated) Run(ctx context.Context, calls []svm.Instruction, others ...sign.Signer) (chain.TxID, error) {
	if g.shut.Load() {
		return "", errShut
	}
	return g.Ledger.Run(ctx, calls, others...)
}

var errShut = errors.New("not yet")

// said is what a peer logs.
type said struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Read implements rewards.Peers among the town.
func (t *town) Read(ctx context.Context, from sign.Key, d rewards.Document, most int) ([]byte, error) {
	c := t.byKey[from]
	if c == nil {
		return nil, errors.New("nobody is there")
	}
	c.mu.Lock()
	b, lies := c.lies[d]
	c.mu.Unlock()
	if !lies {
		var err error
		if b, err = c.Document(ctx, d); err != nil {
			return nil, err
		}
	}
	if len(b) > most {
		return nil, fmt.Errorf("%d bytes, at most %d are read", len(b), most)
	}
	return b, nil
}

// newTown founds it; the first has a fifth of what is bonded, and nobody a third of it but the second.
func newTown(test *testing.T) *town {
	t := &town{T: test, net: localnettest.Start(test, localnet.Config{}), byKey: map[sign.Key]*citizen{}}
	var err error
	t.g, err = t.net.EscrowGenesis(t.Context(), "town", 10, func(p *account.Params) {
		p.AuditSlots = windowSlots
		p.Votes.VotingSlots, p.Votes.EpochSlots, p.Votes.EpochsOfMonth = 1600, epochSlots, 1000
	})
	if err != nil {
		t.Fatal(err)
	}
	t.g.AuditSlots, t.g.AuditOneIn = windowSlots, 1
	for i, stake := range []market.Amount{20_000_000, 40_000_000, 20_000_000, 20_000_000} {
		t.join(i, stake)
	}
	return t
}

func (t *town) join(i int, stake market.Amount) {
	t.Helper()
	c := &citizen{t: t, key: sign.NewPrivate(sha256.Sum256([]byte{byte(i)})), unit: market.UnitID{byte(i + 1)}, store: store.NewMemory(), lies: map[rewards.Document][]byte{}}
	if err := t.net.FundKey(t.Context(), c.key.Key(), stake, 10_000_000_000); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.ledger, err = solana.New(solana.ConfigOf([]string{t.net.URL()}, t.g, c.key)); err != nil {
		t.Fatal(err)
	}
	k, at := c.key.Key(), c.address()
	vault := account.StakeAddress(t.g.Program, at)
	for _, call := range []program.Call{
		program.Register{Payer: k, Owner: k, Peer: k, Network: t.g.Escrow, Provider: at, Vault: vault, Mint: t.g.Mint, Payout: k},
		program.Stake{Authority: k, Source: svm.TokenAccount(k, t.g.Mint), Provider: at, Vault: vault, Mint: t.g.Mint, Amount: uint64(stake)},
		program.Bond{Owner: k, Network: t.g.Escrow, Provider: at, Amount: uint64(stake)},
	} {
		if _, err := c.ledger.Run(t.Context(), []svm.Instruction{call.Instruction(t.g.Program)}); err != nil {
			t.Fatal(err)
		}
	}
	c.sight, err = facts.NewPublic(facts.PublicConfig{Genesis: t.g, Blocks: c.ledger,
		Slot: func() (market.Slot, error) { return c.ledger.Slot(t.Context()) }, Roster: c.roster})
	if err != nil {
		t.Fatal(err)
	}
	c.Service = rewards.New(rewards.Config{Genesis: t.g, Key: k, Chain: gated{c.ledger, &c.shut}, Sight: c.sight, Peers: t, Store: c.store, Every: 100 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&c.log, nil)), Records: func() []audit.Record {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.records
		}, Wards: func() []sign.Key {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.wards
		}})
	t.peers, t.byKey[k] = append(t.peers, c), c
}

func (c *citizen) address() sign.Key {
	return account.ProviderAddress(c.t.g.Program, c.t.g.Escrow, c.key.Key())
}

func (c *citizen) roster(ctx context.Context, _ audit.Window) (audit.Roster, error) {
	all, err := c.ledger.Providers(ctx)
	var r audit.Roster
	for _, p := range all {
		if p.Bonded > 0 { // whenever: the town judges from its first window on
			r = append(r, audit.Member{Key: p.Peer, Owner: p.Owner, Weight: p.Bonded})
		}
	}
	return r, err
}

func (t *town) until(what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 5*time.Minute || t.Context().Err() != nil {
			for i, c := range t.peers {
				t.Logf("peer %d: %+v\n%s", i, c.Status(), c.log.String())
			}
			t.Fatalf("in vain: %s", what)
		}
	}
}

// beacon is that of a window, once its first block is final.
func (c *citizen) beacon(w audit.Window) audit.Beacon {
	b, err := c.sight.Block(c.t.Context(), w)
	again := func() bool { return errors.Is(err, chain.ErrNotFound) || errors.Is(err, chain.ErrDown) }
	for ; again() && c.t.Context().Err() == nil; b, err = c.sight.Block(c.t.Context(), w) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		c.t.Error(err)
	}
	return b
}

// inTime reports whether a window's first block came before its audits begin. Where the chain stood still nobody is audited.
func (c *citizen) inTime(w audit.Window) bool {
	b := c.beacon(w)
	return b.Slot <= audit.NewInstants(c.t.g).Of(w)
}

// audited makes the record of a peer's unit in a window, which took so long.
func (c *citizen) audited(w audit.Window, took uint64) {
	c.t.Helper()
	roster, err := c.roster(c.t.Context(), w)
	if err != nil {
		c.t.Fatal(err)
	}
	x := audittest.New(0)
	x.Window, x.Slots, x.Provider, x.Unit, x.Roster, x.In = w, windowSlots, c.key, c.unit, roster, c.t.g.Domain()
	for _, p := range c.t.peers {
		x.Members[p.key.Key()] = p.key
	}
	x.Beacons = c.beacon
	x.Verdict = func(v *audit.Verdict) { v.Product, v.Walk = took, took }
	r, err := x.Make()
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.records = append(c.records, r)
	c.mu.Unlock()
}

// balance is what a wallet has of the token.
func (t *town) balance(k sign.Key) uint64 {
	t.Helper()
	n, err := t.peers[0].ledger.Balance(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(n)
}

// An epoch from its audits to the last claim, on a chain: those who have four fifths of what is bonded refuse a table that has one
// unit too many, confirm one of their own, and each is paid to the last unit what the certificates show. Of the pool guardians are
// paid for what was claimed under their word, and the rest is divided by verdicts. Who was away claims later by what others keep, and a peer that starts again is not paid twice.
func TestEpoch(test *testing.T) {
	test.Parallel()
	t := newTown(test)
	votes := func() account.Votes {
		n, err := t.peers[0].ledger.Network(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n.Params.Votes
	}()
	if err := t.net.MintInto(t.Context(), account.PoolAddress(t.g.Program, t.g.Escrow, t.g.Mint), pooled); err != nil {
		t.Fatal(err)
	}
	attacker, honest := t.peers[0], t.peers[1:]
	claim := t.guard(attacker, honest)
	number := (uint64(claim.Slot) - votes.FirstSlot) / votes.EpochSlots
	e, err := counting.EpochOf(votes, windowSlots, number)
	if err != nil || e.Windows() != 8 {
		t.Fatalf("%+v, %v", e, err)
	}
	// The units of the first three are audited: in all windows that can be, in these, and in every other of them, the second half as fast.
	var windows []audit.Window
	for w := e.From; w < e.To; w++ {
		if attacker.inTime(w) {
			windows = append(windows, w)
		}
	}
	windows = windows[:len(windows)&^1]
	if len(windows) == 0 {
		t.Fatal("no window's first block came before its instant")
	}
	for i, w := range windows {
		attacker.audited(w, 1_000_000)
		honest[0].audited(w, 2_000_000)
		if i%2 == 0 {
			honest[1].audited(w, 1_000_000)
		}
	}
	own := make([]uint64, len(t.peers))
	for i, c := range t.peers {
		c.shut.Store(true)
		t.until("a peer has looked", func() bool { // what it showed is kept and given to others
			err := c.Look(t.Context())
			return err == nil || errors.Is(err, errShut)
		})
		c.shut.Store(false)
		own[i] = t.balance(c.key.Key())
	}
	inflated, false_ := t.inflate(attacker, e, votes)
	// Each looks at it while it is the only one: who has confirmed another has nothing to say of it.
	t.until("the epoch is counted", func() bool {
		now, err := honest[0].ledger.Slot(t.Context())
		return err == nil && uint64(now) >= votes.EpochEnd(number)+windowSlots
	})
	for _, c := range honest {
		c.shut.Store(true)
		t.until("an honest peer sees what is wrong with the inflated table", func() bool { return errors.Is(c.Look(t.Context()), counting.ErrCertificates) })
		c.shut.Store(false)
	}
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer func() { stop(); wg.Wait() }()
	for _, c := range honest {
		wg.Go(func() { _ = c.Run(ctx) })
	}

	t.until("the honest are paid", func() bool {
		for i, c := range t.peers {
			if i != 0 && i != 3 && t.balance(c.key.Key()) == own[i] {
				return false
			}
		}
		for _, source := range []uint8{0, 1} {
			if p, _, err := honest[0].ledger.Payout(t.Context(), source, number); err != nil || p.Claims < p.Count-1 {
				return false
			}
		}
		return true
	})
	p, _, err := honest[0].ledger.Payout(t.Context(), 0, number)
	if err != nil || p.Root == false_.Root {
		t.Fatalf("the inflated table was accepted: %+v, %v", p, err)
	}
	if b, _, err := honest[0].ledger.Ballot(t.Context(), inflated); err == nil && (b.For != 0 || b.Done) {
		t.Errorf("the inflated table was confirmed by %d of %d", b.For, b.Total)
	}
	// Weights 8, 8/2, 4: the emission is divided 2:1:1, rounded down.
	allowance := votes.Allowance(number)
	if p.Sum > allowance || allowance-p.Sum > 3 || p.Count != 3 {
		t.Errorf("%d of %d is given to %d", p.Sum, allowance, p.Count)
	}
	if err := attacker.Look(t.Context()); err != nil {
		t.Logf("the attacker looks: %v", err)
	}
	t.until("everybody was paid", func() bool {
		for _, source := range []uint8{0, 1} {
			if p, _, err := honest[0].ledger.Payout(t.Context(), source, number); err != nil || p.Claims != p.Count || p.Paid != p.Sum {
				_ = attacker.Look(t.Context())
				return false
			}
		}
		return true
	})
	pool, _, err := honest[0].ledger.Payout(t.Context(), 1, number)
	if err != nil || pool.Sum > pooled || pooled-pool.Sum > 4 || pool.Count != 4 {
		t.Errorf("of the pool: %+v, %v", pool, err)
	}
	var got uint64
	for i, c := range t.peers {
		got += t.balance(c.key.Key()) - own[i]
	}
	if got != p.Sum+pool.Sum {
		t.Errorf("the wallets have %d more, %d was accepted", got, p.Sum+pool.Sum)
	}
	// Five verdicts in two windows, by who is not the provider: in eight windows 20, which is what the fourth gave, and so on; each wallet has
	// its exact share. The two that signed the voucher have half of what its claim brings the pool: 2 % of eight millions, of that a quarter.
	if claim.Net != 7_840_000 || len(claim.Keys) != 2 {
		t.Errorf("claimed %+v", claim)
	}
	const wages = 8_000_000 * 2 / 100 / 4 / 2 / 2
	for i, points := range []uint64{2, 1, 1, 0} {
		judged := []uint64{3, 3, 4, 5}[i]
		// Capacity is rounded down once for each unit, so what it earns is within one point in six of its share; the pool is exact.
		share := (pooled - 2*wages) * judged / 15
		if slices.Contains(claim.Keys, t.peers[i].key.Key()) {
			share += wages
		}
		rest := t.balance(t.peers[i].key.Key()) - own[i] - share
		if want := allowance * points / 4; rest > want+want/5 || rest < want-want/5 || points == 0 && rest != 0 {
			t.Errorf("peer %d has %d beside its share of the pool, of %d", i, rest, want)
		}
	}
	// A peer that lost its journal looks again: it is told what it was paid, and is not paid again.
	stop()
	wg.Wait()
	again := rewards.New(rewards.Config{Genesis: t.g, Key: honest[0].key.Key(), Chain: honest[0].ledger, Sight: honest[0].sight, Peers: t, Store: store.NewMemory(),
		Every: time.Second, Log: slog.New(slog.DiscardHandler)})
	before := t.balance(honest[0].key.Key())
	if err := again.Look(t.Context()); err != nil {
		t.Logf("a look with nothing: %v", err)
	}
	if after := t.balance(honest[0].key.Key()); after != before {
		t.Errorf("paid again: %d, then %d", before, after)
	}
	if guardian := t.byKey[claim.Keys[0]].Status(); !slices.ContainsFunc(guardian.Epochs, func(x rewards.Past) bool {
		return x.Epoch == number && x.Source == 1 && x.Claims == 1 && x.Wage == wages && x.Amount > wages
	}) {
		t.Errorf("a guardian does not know what it did: %+v", guardian)
	}
	paid := false
	for _, x := range again.Status().Epochs {
		paid = paid || x.Epoch == number && x.Source == 0 && x.Paid && x.Amount > 0 && x.State == "accepted"
	}
	if !paid {
		t.Errorf("it does not know that it was paid: %+v", again.Status())
	}
}

// inflate has a peer put a table to the vote in which it has one unit more than it has, in its turn.
func (t *town) inflate(c *citizen, e counting.Epoch, v account.Votes) (ballot sign.Key, r account.Rewards) {
	t.Helper()
	t.until("it is the attacker's turn", func() bool {
		now, err := c.ledger.Slot(t.Context())
		if err != nil {
			return false
		}
		block, err := c.ledger.Block(t.Context(), market.Slot(v.EpochEnd(e.Number)))
		if err != nil {
			return false
		}
		all, err := c.ledger.Providers(t.Context())
		turns := counting.NewTurns(v, e.Number, 0, v.EpochEnd(e.Number)+windowSlots, block.Hash, all, func(p account.Provider) sign.Key {
			return account.ProviderAddress(t.g.Program, t.g.Escrow, p.Peer)
		})
		turn, begun := turns.At(uint64(now))
		whose, _ := turns.Of(turn)
		return err == nil && begun && whose == c.address()
	})
	var ts []counting.Tally
	for _, p := range t.peers[:3] {
		p.mu.Lock()
		var cs []audit.Certificate
		for _, r := range p.records {
			cs = append(cs, r.Certificate())
		}
		p.mu.Unlock()
		x, err := counting.Count(e, counting.UnitKey{Provider: p.key.Key(), Unit: p.unit}, cs)
		if err != nil {
			t.Fatal(err)
		}
		ts = append(ts, x)
	}
	more := ts[0]
	more.Unit[5] = 77
	ts = append(ts, more)
	table := counting.NewTable(e.Number, [counting.Sources]uint64{v.Allowance(e.Number)}, ts)
	a, err := table.Divide(0, ts, counting.Guards{}, func(k sign.Key) (sign.Key, bool) { return k, true })
	if err != nil {
		t.Fatal(err)
	}
	r = a.Rewards()
	r.Table = table.Hash()
	c.mu.Lock()
	c.lies[rewards.Document{Kind: rewards.Table, Epoch: e.Number, Root: r.Table}] = table.Marshal()
	// For the unit that is not there it shows the certificates of the one that is.
	cs, err := c.Document(t.Context(), rewards.Document{Kind: rewards.Certificates, Epoch: e.Number, Provider: c.key.Key(), Unit: c.unit})
	c.lies[rewards.Document{Kind: rewards.Certificates, Epoch: e.Number, Provider: c.key.Key(), Unit: more.Unit}] = cs
	c.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	now, err := c.ledger.Slot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ballot = account.BallotAddress(t.g.Program, t.g.Escrow, c.address(), uint64(now))
	if _, err := c.ledger.Run(t.Context(), []svm.Instruction{program.ProposeRewards{Payer: c.key.Key(), Signer: c.key.Key(), Network: t.g.Escrow, Provider: c.address(),
		Ballot: ballot, Opened: uint64(now), Rewards: r}.Instruction(t.g.Program)}); err != nil {
		t.Fatal(err)
	}
	return ballot, r
}

// guard opens an order whose vouchers two of three peers sign, has its guardians know of it, and its provider claim eight millions.
func (t *town) guard(provider *citizen, by []*citizen) counting.Guarded {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	buyer := sign.NewPrivate(sha256.Sum256([]byte("buyer")))
	must(t.net.FundKey(t.Context(), buyer.Key(), 10_000_000, 10_000_000_000))
	ledger, err := solana.New(solana.ConfigOf([]string{t.net.URL()}, t.g, buyer))
	must(err)
	now, err := ledger.Slot(t.Context())
	must(err)
	var signers []sign.Signer
	var keys []sign.Key
	for _, c := range by {
		signers, keys = append(signers, c.key), append(keys, c.key.Key())
	}
	set, err := market.NewKeySet(2, keys...)
	must(err)
	k, order := buyer.Key(), market.OrderID{1}
	at := account.EscrowAddress(t.g.Program, t.g.Escrow, k, sign.Hash(order), uint64(now))
	vault, first := account.VaultAddress(t.g.Program, at), account.TrancheAddress(t.g.Program, at, 0)
	leaf := tranche.Leaf{Version: tranche.LeafVersion, Provider: provider.key.Key(), Lease: market.LeaseID{3}, Payout: sign.Key{7}, Rate: 9_000_000 * market.RateScale,
		Cap: 9_000_000, Start: now - 1, End: now + 100_000}
	tree, err := tranche.Build([]tranche.Leaf{leaf})
	must(err)
	proof, err := tree.Prove(0)
	must(err)
	_, err = ledger.Run(t.Context(), []svm.Instruction{
		program.OpenEscrow{Payer: k, Buyer: k, Source: svm.TokenAccount(k, t.g.Mint), Authority: k, Escrow: at, Vault: vault, Mint: t.g.Mint, Network: t.g.Escrow,
			Order: order, Opened: uint64(now), Deadline: uint64(now) + 1_000_000, Deposit: 9_000_000, RefundOwner: k, Keys: set}.Instruction(t.g.Program),
		program.AddTranche{Payer: k, Buyer: k, Escrow: at, Vault: vault, Tranche: first, Root: tree.Root()}.Instruction(t.g.Program)}, signers...)
	must(err)
	for _, c := range by {
		c.wards = []sign.Key{at}
	}
	v, err := verify.SignVoucher(t.g.Domain(), verify.Voucher{Version: verify.VoucherVersion, Lease: leaf.Lease, Escrow: at, Seq: 1, Cumulative: 8_000_000,
		Horizon: leaf.End}, set, signers[:2]...)
	must(err)
	id, err := provider.ledger.Run(t.Context(), []svm.Instruction{
		svm.OpenTokenAccount(provider.key.Key(), leaf.Payout, t.g.Mint), program.VoucherSigned(t.g.Domain(), v).Instruction(),
		program.Claim{Escrow: at, Tranche: first, Vault: vault, Destination: svm.TokenAccount(leaf.Payout, t.g.Mint), Mint: t.g.Mint, Network: t.g.Escrow, Ed: 1,
			Leaf: leaf, Proof: proof}.Instruction(t.g.Program)})
	must(err)
	raw, err := base58.Decode(string(id))
	must(err)
	var g counting.Guarded
	t.until("the claim is final", func() bool {
		g, err = ledger.Guarded(t.Context(), sign.Signature(raw))
		if err != nil && !errors.Is(err, chain.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	return g
}
