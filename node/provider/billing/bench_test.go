package billing

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/provider/providertest"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// unpublished drops receipts.
type unpublished struct{}

func (unpublished) Filed(market.Lease, []market.UnitID, verify.Receipt) {}
func (unpublished) Failed(market.LeaseCore, market.Amount)              {}

// BenchmarkReceipts takes leases from their first voucher to their final receipt, on a journal on disk. It reports the
// receipts in a second and the median time of taking a voucher.
func BenchmarkReceipts(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			g := providertest.Genesis
			disk, err := store.OpenSQLite(b.TempDir() + "/journal")
			if err != nil {
				b.Fatal(err)
			}
			defer disk.Close()
			const hour = 3_600_000 // all is in one slot
			clock := slots.New(&lying{chain.Tip{Confirmed: 1032, Final: 1000}}, hour, time.Second, slog.New(slog.DiscardHandler))
			if err := clock.Sync(b.Context()); err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			seller := sign.NewPrivate([32]byte{1})
			p, err := New(ctx, Config{
				Genesis: g, Domain: g.Domain(), Key: seller, Store: disk, Slots: clock, Filed: unpublished{},
				Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				b.Fatal(err)
			}
			p.Restart(ctx)
			const round = 256
			var made int
			var taken time.Duration
			var vouchers []time.Duration
			for b.Loop() {
				b.StopTimer()
				leases := make(chan paid, round)
				for range round {
					made++
					leases <- newPaid(b, seller.Key(), clock, uint64(made))
				}
				close(leases)
				var mu sync.Mutex
				var wg sync.WaitGroup
				b.StartTimer()
				began := time.Now()
				for range callers {
					wg.Go(func() {
						for l := range leases {
							first, err := l.settle(ctx, p)
							mu.Lock()
							if vouchers = append(vouchers, first); err != nil {
								b.Error(err)
							}
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				taken += time.Since(began)
			}
			cancel()
			p.Wait()
			slices.Sort(vouchers)
			b.ReportMetric(float64(made)/taken.Seconds(), "receipts/s")
			b.ReportMetric(float64(vouchers[len(vouchers)/2].Microseconds()), "µs/voucher")
		})
	}
}

// paid is a lease and its first voucher.
type paid struct {
	rec     lease.Record
	slot    market.Slot
	buyer   sign.Private
	voucher verify.SignedVoucher
}

func newPaid(b *testing.B, provider sign.Key, clock *slots.Clock, n uint64) paid {
	b.Helper()
	g, buyer := providertest.Genesis, sign.NewPrivate([32]byte{2})
	slot, err := clock.Now(time.Now())
	keys, no := market.NewKeySet(1, buyer.Key())
	if err != nil || no != nil {
		b.Fatal(err, no)
	}
	order := market.OrderID(binary.BigEndian.AppendUint64(make([]byte, len(market.OrderID{})-8), n))
	units := []market.UnitID{market.UnitID(binary.BigEndian.AppendUint64(make([]byte, len(market.UnitID{})-8), n))}
	core, err := lease.Draft{
		Order:    market.Order{ID: order, Buyer: buyer.Key(), Slots: 1000, JobTerms: sign.Hash{4}},
		Provider: provider, Payout: sign.Key{9}, SlotMillis: g.SlotMillis, Keys: keys, Units: units, Start: slot,
		ActivateBefore: slot + 100,
	}.Core()
	if err != nil {
		b.Fatal(err)
	}
	payer, err := meter.NewPayer(metering.Terms(g, core, keys, sign.Key{}, providertest.PerUnit, 0))
	if err != nil {
		b.Fatal(err)
	}
	_, effects, err := payer.Step(slot, meter.Started{})
	if err != nil {
		b.Fatal(err)
	}
	at := slices.IndexFunc(effects, func(e meter.Effect) bool { _, ok := e.(meter.IssueVoucher); return ok })
	v, err := verify.SignVoucher(g.Domain(), effects[at].(meter.IssueVoucher).Voucher, keys, buyer)
	if err != nil {
		b.Fatal(err)
	}
	return paid{lease.Record{
		State: lease.Active, Buyer: buyer.Key(), PerUnit: providertest.PerUnit, Units: units, Core: &core, Lease: core.ID(), Keys: keys,
	}, slot, buyer, v}
}

// settle takes the lease to its final receipt, and returns how long its voucher took.
func (l paid) settle(ctx context.Context, p *Meters) (first time.Duration, err error) {
	s, err := p.load(ctx, l.rec, l.slot)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	_, err = s.step(ctx, meter.VoucherReceived{Voucher: l.voucher})
	if first = time.Since(began); err != nil {
		return first, err
	}
	effects, err := s.step(ctx, meter.WorkEnded{})
	if err != nil {
		return first, err
	}
	for _, e := range effects {
		if r, ok := e.(meter.ProposeReceipt); ok {
			sig, err := r.Core.Sign(p.cfg.Domain, l.buyer)
			if err != nil {
				return first, err
			}
			if _, err := s.step(ctx, meter.CosignatureReceived{Seq: r.Core.Seq, Sig: sig}); err != nil {
				return first, err
			}
		}
	}
	if s.Signed() == 0 && s.seller.State() != meter.SellerSettled {
		return first, fmt.Errorf("lease %s: %s, want settled", l.rec.Lease.Short(), s.seller.State())
	}
	return first, nil
}
