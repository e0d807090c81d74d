package provider_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/provider/providertest"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/exclusive"
	"github.com/starling-network/starling/verify/reputation"
)

// bench is a provider with two units of class cpu, and one buyer, in a synctest bubble.
type bench struct {
	*provider.Provider
	*providertest.Buyer
	t      *testing.T
	config provider.Config // of the next process
	module *nodepb.Blob    // a program that runs until it is asked to stop

	mu     sync.Mutex
	offers []market.Offer
	filed  []verify.Receipt
	failed []market.LeaseID
	stop   func()

	gossip  chan market.Order // to the provider
	replied []market.OrderID  // gossiped orders that it answered
}

func newBench(t *testing.T) *bench {
	t.Helper()
	nw := p2ptest.NewNet(t, 2, 2*time.Millisecond) // 0 buys, 1 sells
	nw.ConnectAll()
	key := providertest.KeyOf(t, 1)
	blobs, err := blob.OpenStore(filepath.Join(t.TempDir(), "blobs"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	fake := runtimetest.NewFake("wasm", map[string]guest.Program{"wait": executortest.Wait})
	c, n, err := blobs.Put(t.Context(), strings.NewReader(string(runtimetest.FakeModule("wait"))))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	clock, err := providertest.Clock(ctx, &wg)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, module: &nodepb.Blob{Cid: c.Bytes(), Size: uint64(n)}, stop: func() {},
		gossip: make(chan market.Order)}
	b.config = provider.Config{
		Host: nw.Hosts[1], Genesis: providertest.Genesis, Key: key, Keys: b, Owner: sign.Key{9},
		Lots: []provider.Lot{{
			Class: "cpu", Units: providertest.Units(t, key.Key(), 2), PerUnit: providertest.PerUnit,
		}},
		Region: "eu", Version: "v1", MinSlots: 1, MaxSlots: 100_000, Store: store.NewMemory(), Blobs: blobs, Files: b, Devices: b,
		Runtimes: map[string]runtime.Runtime{"wasm": fake}, Slots: clock, Dir: t.TempDir(),
		Log: slog.New(slog.DiscardHandler), Market: b, Reputation: b, Filed: b.file,
		HoldTTL: 10 * time.Second, Retain: time.Hour,
	}
	b.Buyer = providertest.NewBuyer(t, nw.Hosts[0], clock, key.Key(), b.config.Owner)
	b.start()
	t.Cleanup(func() {
		b.stop()
		cancel()
		wg.Wait()
	})
	return b
}

// start begins a process of the provider on the journal of an earlier one.
func (b *bench) start() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p, err := provider.New(ctx, b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Provider = p
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); err != nil {
			b.t.Error(err)
		}
	})
	b.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	synctest.Wait()
}

func (b *bench) Offer(_ context.Context, offers []market.Offer, _ [][]byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offers = slices.Clone(offers)
	return nil
}

func (b *bench) Failed(c market.LeaseCore, _ market.Amount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = append(b.failed, c.ID())
}

func (b *bench) file(_ market.Lease, _ []market.UnitID, r verify.Receipt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filed = append(b.filed, r)
}

func (b *bench) Order(ctx context.Context) (market.Order, error) {
	select {
	case <-ctx.Done():
		return market.Order{}, ctx.Err()
	case o := <-b.gossip:
		return o, nil
	}
}

func (b *bench) Reply(o market.Order, _, _ []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replied = append(b.replied, o.ID)
	return nil
}

// answered returns the gossiped orders with an answer.
func (b *bench) answered() []market.OrderID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.replied)
}

func (b *bench) Health(context.Context, []market.UnitID) (exclusive.Snapshot, error) {
	return exclusive.Snapshot{}, errors.New("no health")
}

func (b *bench) Names([]market.UnitID) (ids, names []string, err error)        { return nil, nil, nil }
func (b *bench) Obtain(context.Context, workload.Places, cid.Cid, int64) error { return nil }
func (b *bench) Join(peer.ID, []peer.ID, []cid.Cid) func()                     { return func() {} }
func (b *bench) Grant(peer.ID, cid.Cid)                                        {}
func (b *bench) Drop(...cid.Cid)                                               {}
func (b *bench) Evict(context.Context, []market.UnitID) error                  { return nil }
func (b *bench) Member(market.HoldID) cluster.PrivateKey                       { return cluster.PrivateKey{} }
func (b *bench) Open([]byte, market.LeaseID) ([]byte, error)                   { return nil, errors.New("no secrets") }
func (b *bench) Scores(reputation.Role, ...sign.Key) []reputation.Score {
	return make([]reputation.Score, 1)
}

// public returns the published offers.
func (b *bench) public() []market.Offer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.offers)
}

// receipts returns the receipts that both have signed.
func (b *bench) receipts() []verify.Receipt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.filed)
}

// ask requests a quote.
func (b *bench) ask(envelope []byte) (market.Quote, error) {
	tag, to := providertest.Genesis.Tag(), b.config.Host.ID()
	reply, err := protocol.Ask.Call(b.t.Context(), b.Host, tag, to, &marketpb.AskRequest{Order: envelope})
	if err != nil {
		return market.Quote{}, err
	}
	return market.DecodeQuote(providertest.Genesis.Domain(), reply.Quote, time.Now())
}

// step takes a step of a lease.
func (b *bench) step(req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	return protocol.Lease.Call(b.t.Context(), b.Host, providertest.Genesis.Tag(), b.config.Host.ID(), req)
}

// reserve holds a unit for an order.
func (b *bench) reserve(hold byte, envelope []byte) (*marketpb.Held, error) {
	id := market.HoldID{hold}
	reply, err := b.step(&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Reserve{
		Reserve: &marketpb.Reserve{Hold: id[:], Order: envelope, Units: 1},
	}})
	return reply.GetHeld(), err
}

// sign signs the lease of a hold.
func (b *bench) sign(o market.Order, held *marketpb.Held) (providertest.Signed, error) {
	var units []market.UnitID
	for _, u := range held.Units {
		units = append(units, market.UnitID(u))
	}
	l := b.Sign(o, units)
	raw := l.Core.Marshal()
	reply, err := b.step(&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Sign{Sign: &marketpb.Sign{
		Hold: held.Hold, Core: raw[:], Keys: b.Keys.Marshal(), Signature: l.Sig[:],
	}}})
	if err == nil {
		both := market.Lease{Core: l.Core, BuyerSig: l.Sig, ProviderSig: sign.Signature(reply.GetSigned().GetSignature())}
		err = both.Check(providertest.Genesis.Domain())
	}
	return l, err
}

// activate pays the first interval of a lease.
func (b *bench) activate(l providertest.Signed) error {
	_, err := b.step(&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Activate{
		Activate: &marketpb.Activate{Lease: l.ID[:], Voucher: b.First(l)},
	}})
	return err
}

// lease orders, reserves, signs and activates a lease.
func (b *bench) lease(hold byte) providertest.Signed {
	b.t.Helper()
	o, envelope := b.Buyer.Order(nil)
	held, err := b.reserve(hold, envelope)
	if err != nil {
		b.t.Fatal(err)
	}
	l, err := b.sign(o, held)
	if err == nil {
		err = b.activate(l)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// release ends a lease.
func (b *bench) release(l market.LeaseID) error {
	_, err := b.step(&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Release{
		Release: &marketpb.Release{Of: &marketpb.Release_Lease{Lease: l[:]}},
	}})
	return err
}

// exec commands an execution.
func (b *bench) exec(req *nodepb.ExecRequest) (*nodepb.Execution, error) {
	reply, err := protocol.Exec.Call(b.t.Context(), b.Host, providertest.Genesis.Tag(), b.config.Host.ID(), req)
	return reply.GetExecution(), err
}

// run starts a program under a lease.
func (b *bench) run(l market.LeaseID, seq uint64) (*nodepb.Execution, error) {
	return b.exec(&nodepb.ExecRequest{Lease: l[:], Seq: seq, Op: &nodepb.ExecRequest_Start_{
		Start: &nodepb.ExecRequest_Start{Workload: &nodepb.Workload{Runtime: "wasm", Module: b.module}},
	}})
}

func wantRefused(t *testing.T, what string, err error, code string) {
	t.Helper()
	var no *stream.Refused
	if !errors.As(err, &no) || no.Code != code {
		t.Errorf("%s: %v, want a refusal with code %q", what, err, code)
	}
}
