// Package providertest has a buyer's hand on a free network, for tests of the selling rooms.
package providertest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Genesis is the free network of a bench.
var Genesis = market.Genesis{
	Network: "test", Chain: sign.Hash{1}, Symbol: "FREE", SlotMillis: 400, IntervalSlots: 10, Free: true,
}

// PerUnit is the resources of each unit.
var PerUnit = market.Resources{MilliCPU: 1000, MemoryMiB: 64, DiskMiB: 16}

// KeyOf returns the key of a host of p2ptest.
func KeyOf(t *testing.T, i int) sign.Private {
	t.Helper()
	raw, err := p2ptest.Key(i).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return sign.NewPrivate([32]byte(raw[:32]))
}

// tips is a chain with slots that pass with time.
type tips struct{ began time.Time }

func (c tips) Tip(context.Context) (chain.Tip, error) {
	s := market.Slot(1000 + time.Since(c.began)/(400*time.Millisecond))
	return chain.Tip{Confirmed: s, Final: s - 32}, nil
}

// Clock returns a clock of a chain with slots that pass with time. Sync is called until ctx ends.
func Clock(ctx context.Context, wg *sync.WaitGroup) (*slots.Clock, error) {
	c := slots.New(tips{time.Now()}, Genesis.SlotMillis, time.Second, slog.New(slog.DiscardHandler))
	if err := c.Sync(ctx); err != nil {
		return nil, err
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
				_ = c.Sync(ctx)
			}
		}
	})
	return c, nil
}

// Units returns n units of class cpu.
func Units(t *testing.T, owner sign.Key, n int) (out []market.Unit) {
	t.Helper()
	for i := range uint32(n) {
		u, err := market.NewUnit(owner, "cpu", "a model", "serial", i, PerUnit)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// Buyer orders units, signs leases, co-signs receipts and pays.
type Buyer struct {
	T        *testing.T
	Host     *p2p.Host
	Key      sign.Private
	Keys     market.KeySet
	Slots    *slots.Clock
	Provider sign.Key
	Payout   sign.Key

	mu     sync.Mutex
	silent bool // it co-signs nothing
	slow   time.Duration
	nonce  byte
	payers map[market.LeaseID]meter.Payer
}

// NewBuyer returns the buyer with the first host of p2ptest. It serves protocol.Meter until the test ends.
func NewBuyer(t *testing.T, host *p2p.Host, clock *slots.Clock, provider, payout sign.Key) *Buyer {
	t.Helper()
	b := &Buyer{
		T: t, Host: host, Key: KeyOf(t, 0), Slots: clock, Provider: provider, Payout: payout,
		payers: map[market.LeaseID]meter.Payer{},
	}
	var err error
	if b.Keys, err = market.NewKeySet(1, b.Key.Key()); err != nil {
		t.Fatal(err)
	}
	served := protocol.Meter.Handle(host, Genesis.Tag(), b.meter, stream.Limits{Logger: p2ptest.Quiet()})
	t.Cleanup(served.Close)
	return b
}

// SetSilent has the buyer answer nothing, or answer again.
func (b *Buyer) SetSilent(silent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent = silent
}

// SetSlow delays the buyer's answers by d from now on.
func (b *Buyer) SetSlow(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow = d
}

// Order seals an order of one unit.
func (b *Buyer) Order(change func(*market.Order)) (market.Order, []byte) {
	b.T.Helper()
	b.nonce++
	o := market.Order{
		Buyer: b.Key.Key(), Nonce: market.Nonce{b.nonce}, Class: "cpu",
		Count: 1, UnitsPer: 1, Runtime: "wasm", Slots: 1000, Expires: time.Now().Add(time.Minute),
		ReplyKey: market.ReplyKey{1}, Draw: 1<<32 - 1, JobTerms: sign.Hash{4},
	}
	if change != nil {
		change(&o)
	}
	o, envelope, err := market.SealOrder(Genesis.Domain(), o, b.Key)
	if err != nil {
		b.T.Fatal(err)
	}
	return o, envelope
}

// Signed is a lease that the buyer has signed.
type Signed struct {
	Core market.LeaseCore
	Sig  sign.Signature
	ID   market.LeaseID
}

// Sign signs a lease of units for an order.
func (b *Buyer) Sign(o market.Order, units []market.UnitID) Signed {
	b.T.Helper()
	now, err := b.Slots.Now(time.Now())
	if err != nil {
		b.T.Fatal(err)
	}
	core, err := lease.Draft{
		Order: o, Provider: b.Provider, Payout: b.Payout, SlotMillis: Genesis.SlotMillis, Keys: b.Keys, Units: units,
		Start: now, ActivateBefore: now + 100, Nonce: [16]byte{b.nonce},
	}.Core()
	if err != nil {
		b.T.Fatal(err)
	}
	sig, err := core.Sign(Genesis.Domain(), b.Key)
	if err != nil {
		b.T.Fatal(err)
	}
	return Signed{core, sig, core.ID()}
}

// First returns the voucher for the first interval of a lease.
func (b *Buyer) First(l Signed) []byte {
	b.T.Helper()
	payer, err := meter.NewPayer(metering.Terms(Genesis, l.Core, b.Keys, sign.Key{}, PerUnit, 0))
	if err != nil {
		b.T.Fatal(err)
	}
	b.mu.Lock()
	b.payers[l.ID] = payer
	b.mu.Unlock()
	reply, err := b.pay(l.ID, meter.Started{})
	if err != nil {
		b.T.Fatal(err)
	}
	return reply.Voucher
}

// Payer returns the state of the payments for a lease.
func (b *Buyer) Payer(l market.LeaseID) meter.Payer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.payers[l]
}

// meter co-signs a receipt and pays on.
func (b *Buyer) meter(_ context.Context, _ peer.ID, req *nodepb.MeterRequest) (*nodepb.MeterReply, error) {
	b.mu.Lock()
	silent, slow := b.silent, b.slow
	b.mu.Unlock()
	defer func() { time.Sleep(slow) }()
	if silent {
		return nil, stream.Refuse(stream.CodeBusy, "not now")
	}
	core, err := verify.UnmarshalReceiptCore(req.Receipt)
	if err != nil {
		return nil, err
	}
	ev := meter.ReceiptProposed{Core: core, Sig: sign.Signature(req.ProviderSignature)}
	return b.pay(market.LeaseID(req.Lease), ev)
}

// pay passes an event to the payer of a lease, and signs the resulting messages.
func (b *Buyer) pay(id market.LeaseID, ev meter.Event) (*nodepb.MeterReply, error) {
	now, err := b.Slots.Now(time.Now())
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	payer, ok := b.payers[id]
	if !ok {
		return nil, stream.Refuse("lease", "no such lease")
	}
	next, effects, err := payer.Step(now, ev)
	if err != nil {
		return nil, err
	}
	b.payers[id] = next
	reply := &nodepb.MeterReply{}
	for _, e := range effects {
		switch e := e.(type) {
		case meter.Cosign:
			sig, err := e.Core.Sign(Genesis.Domain(), b.Key)
			if err != nil {
				return nil, err
			}
			reply.BuyerSignature = sig[:]
		case meter.IssueVoucher:
			v, err := verify.SignVoucher(Genesis.Domain(), e.Voucher, b.Keys, b.Key)
			if err != nil {
				return nil, err
			}
			reply.Voucher = v.Marshal()
		}
	}
	return reply, nil
}
