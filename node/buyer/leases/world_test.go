package leases

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

var (
	genesis  = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10, Free: true}
	buyer    = sign.NewPrivate([32]byte{1})
	provider = sign.NewPrivate([32]byte{2})
)

// clock has the slot that a test sets.
type clock struct{ slot atomic.Uint64 }

func (c *clock) Now(time.Time) (market.Slot, error) { return market.Slot(c.slot.Load()), nil }

// alone is a principal that signs with the buyer's key.
type alone struct {
	set     market.KeySet
	epoch   uint64
	refuses error
	changes chan market.LeaseID
}

func (a *alone) Key() sign.Signer { return buyer }
func (a *alone) Epoch() uint64    { return a.epoch }
func (a *alone) Alone() bool      { return a.epoch == 0 }

func (a *alone) Voucher(_ context.Context, _ *Lease, v verify.Voucher) (verify.SignedVoucher, error) {
	if a.refuses != nil {
		return verify.SignedVoucher{}, a.refuses
	}
	return verify.SignVoucher(genesis.Domain(), v, a.set, buyer)
}

func (a *alone) Changed(_ context.Context, l *Lease) { a.changes <- l.ID }

// full is a store on a disk that is full for so many writes.
type full struct {
	store.Store
	left int
}

func (f *full) Write(ctx context.Context, puts ...store.Put) error {
	if f.left--; f.left >= 0 {
		return store.ErrFull
	}
	return f.Store.Write(ctx, puts...)
}

// world is a book with the journal that outlives it.
type world struct {
	t     *testing.T
	book  *Book
	as    *alone
	clock *clock
	store store.Store
	host  *p2p.Host

	mu      sync.Mutex
	filed   []uint64 // numbers of receipts
	settled chan *Lease
}

func newWorld(t *testing.T) *world {
	t.Helper()
	set, err := market.NewKeySet(1, buyer.Key())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, as: &alone{set: set, changes: make(chan market.LeaseID, 99)}, clock: &clock{}, store: store.NewMemory(),
		host: p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1)}), settled: make(chan *Lease, 9),
	}
	w.clock.slot.Store(100)
	w.restart()
	return w
}

// restart begins a new process: a book without leases.
func (w *world) restart() {
	var tasks sync.WaitGroup
	ctx, cancel := context.WithCancel(w.t.Context())
	w.book = New(Config{
		Host: w.host, Genesis: genesis, Store: w.store, Clock: w.clock, Observer: w, Tasks: &tasks, Log: p2ptest.Quiet(),
	})
	stop := w.book.Start(ctx)
	w.t.Cleanup(func() {
		stop()
		cancel()
		tasks.Wait()
	})
}

func (w *world) Filed(_ market.Lease, _ []market.UnitID, r verify.Receipt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.filed = append(w.filed, r.Seq)
}

func (w *world) Settled(l *Lease) { w.settled <- l }

// core is a lease of slots 100 to 500.
func (w *world) core(change func(*market.LeaseCore)) market.LeaseCore {
	c := market.LeaseCore{
		Version: market.LeaseVersion, Units: 1, Order: market.OrderID{1}, Buyer: buyer.Key(), Provider: provider.Key(),
		Payout: sign.Key{7}, UnitsRoot: market.UnitsRoot([]market.UnitID{{9}}), Terms: sign.Hash{3},
		VoucherKeys: w.as.set.Hash(), Rate: 2_500_000, Cap: 1000, Start: 100, ActivateBefore: 120, End: 500,
		Nonce: market.Nonce{5},
	}
	if change != nil {
		change(&c)
	}
	return c
}

func (w *world) sign(c market.LeaseCore) market.Lease {
	w.t.Helper()
	mine, err := c.Sign(genesis.Domain(), buyer)
	theirs, no := c.Sign(genesis.Domain(), provider)
	if err = errors.Join(err, no); err != nil {
		w.t.Fatal(err)
	}
	return market.Lease{Core: c, ProviderSig: theirs, BuyerSig: mine}
}

func (w *world) open(c market.LeaseCore) *Lease {
	w.t.Helper()
	rec := Record{
		Job: "j1", Units: []market.UnitID{{9}}, Route: "gossip",
		PerUnit: market.Resources{MilliCPU: 1000, DiskMiB: 512},
	}
	l, err := w.book.Open(w.sign(c), w.as.set, rec, w.as)
	if err == nil {
		err = l.Ready(sign.Key{}, nil)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// begin takes a lease to its first voucher.
func (w *world) begin(l *Lease) *seller {
	w.t.Helper()
	if !w.book.Add(l) || w.book.Add(l) {
		w.t.Fatal("a lease is added once")
	}
	w.book.Watch(l)
	if _, err := l.Prepay(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	terms := metering.Terms(genesis, l.Core, l.Keys, sign.Key{}, l.Record().PerUnit, 0)
	m, err := meter.NewSeller(terms, w.now(), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &seller{w: w, l: l, m: m}
	a, err := l.Prepay(w.t.Context()) // again, with the same result
	if err != nil {
		w.t.Fatal(err)
	}
	s.voucher(a.Voucher)
	return s
}

func (w *world) now() market.Slot { return market.Slot(w.clock.slot.Load()) }

// seller is the provider of a lease, whose machine is the real one.
type seller struct {
	w *world
	l *Lease
	m meter.Seller
}

func (s *seller) step(ev meter.Event) (out []verify.ReceiptCore) {
	s.w.t.Helper()
	m, effects, err := s.m.Step(s.w.now(), ev)
	if err != nil {
		s.w.t.Fatal(err)
	}
	s.m = m
	for _, e := range effects {
		if p, ok := e.(meter.ProposeReceipt); ok {
			out = append(out, p.Core)
		}
	}
	return out
}

func (s *seller) voucher(raw []byte) {
	s.w.t.Helper()
	v, err := verify.UnmarshalSignedVoucher(raw)
	if err == nil {
		err = v.Check(genesis.Domain(), s.l.Core)
	}
	if err != nil {
		s.w.t.Fatal(err)
	}
	s.step(meter.VoucherReceived{Voucher: v})
}

// request is the message that proposes a receipt.
func (s *seller) request(c verify.ReceiptCore) *nodepb.MeterRequest {
	sig, err := c.Sign(genesis.Domain(), provider)
	if err != nil {
		s.w.t.Fatal(err)
	}
	raw := c.Marshal()
	return &nodepb.MeterRequest{Lease: s.l.ID[:], Receipt: raw[:], ProviderSignature: sig[:]}
}

// propose has the buyer sign receipts.
func (s *seller) propose(cores []verify.ReceiptCore) {
	s.w.t.Helper()
	for _, c := range cores {
		reply, err := s.w.book.meter(s.w.t.Context(), s.l.Peer, s.request(c))
		if err != nil {
			s.w.t.Fatalf("receipt %d: %v", c.Seq, err)
		}
		s.step(meter.CosignatureReceived{Seq: c.Seq, Sig: sign.Signature(reply.BuyerSignature)})
		if len(reply.Voucher) > 0 {
			s.voucher(reply.Voucher)
		}
	}
}

// work lets slots pass, one by one.
func (s *seller) work(slots int) {
	s.w.t.Helper()
	for range slots {
		s.w.clock.slot.Add(1)
		s.propose(s.step(meter.Ticked{}))
	}
}

func (s *seller) finish() {
	s.w.t.Helper()
	s.propose(s.step(meter.WorkEnded{Output: sign.Hash{1}}))
}

// await waits for a channel.
func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
	}
	return v
}

func numbers(all []verify.Receipt) (out []uint64) {
	for _, r := range all {
		out = append(out, r.Seq)
	}
	return out
}

func upTo(n int) (out []uint64) {
	for i := range n {
		out = append(out, uint64(i+1))
	}
	return out
}

func stranger(t *testing.T) peer.ID {
	t.Helper()
	id, err := p2p.PeerIDFromKey(sign.NewPrivate([32]byte{3}).Key())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func is(t *testing.T, name string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

func same(t *testing.T, name string, got, want []uint64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", name, got, want)
	}
}
