package guardian_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// earned asks for a voucher as a guardian does.
func earned(c guardian.Charter, now market.Slot, l guardian.Lease) (verify.Voucher, error) {
	k, err := c.CheckLease(guardiantest.Network, guardian.SignedLease{Lease: l, Word: guardian.Word{Epoch: 1}}, nil)
	if err != nil {
		return verify.Voucher{}, err
	}
	return c.CheckVoucher(guardiantest.Network, now, k)
}

// Only a voucher that is earned is signed.
func TestVoucherRules(t *testing.T) {
	t.Parallel()
	c, _ := guardiantest.CharterOf(t, 3, 2)
	fresh := func(receipts int) (*guardiantest.Paying, market.Slot) {
		p, now := guardiantest.StartPaying(t, c, 1, guardiantest.FirstSlot, 1), market.Slot(guardiantest.FirstSlot)
		for range receipts {
			now += 10
			p.Receipt(now, now, false)
		}
		return p, now
	}
	for receipts := range 3 {
		p, now := fresh(receipts)
		if v, err := earned(c, now, p.Handed()); err != nil || v != *p.Payer.Voucher() {
			t.Fatalf("after %d receipts: %v", receipts, err)
		}
		p.Step(now, meter.Stopped{})
		if _, err := earned(c, now, p.Handed()); err != nil {
			t.Fatalf("stopped after %d receipts: %v", receipts, err)
		}
		p.Receipt(now+5, now+5, true)
		if v, err := earned(c, now+5, p.Handed()); err != nil || !v.Final() {
			t.Fatalf("final after %d receipts: %v", receipts, err)
		}
	}
	resigned := func(l *guardian.Lease, change func(*market.LeaseCore)) {
		change(&l.Signed.Core)
		l.Signed.ProviderSig, _ = l.Signed.Core.Sign(guardiantest.Network.Domain(), guardiantest.Provider)
		l.Signed.BuyerSig, _ = l.Signed.Core.Sign(guardiantest.Network.Domain(), guardiantest.JobKey)
	}
	for name, change := range map[string]func(l *guardian.Lease, p *guardiantest.PayerState, now *market.Slot){
		"another job": func(l *guardian.Lease, _ *guardiantest.PayerState, _ *market.Slot) {
			resigned(l, func(c *market.LeaseCore) { c.Terms[0]++ })
		},
		"other guardians": func(l *guardian.Lease, _ *guardiantest.PayerState, _ *market.Slot) {
			resigned(l, func(c *market.LeaseCore) { c.VoucherKeys[0]++ })
		},
		"another buyer": func(l *guardian.Lease, _ *guardiantest.PayerState, _ *market.Slot) {
			resigned(l, func(c *market.LeaseCore) { c.Buyer = guardiantest.PeerKey(0).Key() })
		},
		"not signed by provider": func(l *guardian.Lease, _ *guardiantest.PayerState, _ *market.Slot) { l.Signed.ProviderSig[3]++ },
		"not signed by buyer":    func(l *guardian.Lease, _ *guardiantest.PayerState, _ *market.Slot) { l.Signed.BuyerSig[3]++ },
		"an escrow":              func(l *guardian.Lease, _ *guardiantest.PayerState, _ *market.Slot) { l.Escrow = sign.Key{1} },
		"payer of another lease": func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) { p.Lease[0]++ },
		"no voucher": func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) {
			p.Voucher, p.Last, p.State = nil, nil, meter.PayerIdle
		},
		"voucher elsewhere": func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) { p.Voucher.Escrow[0]++ },
		"one more":          func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) { p.Voucher.Cumulative++ },
		"over the cap":      func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) { p.Voucher.Cumulative = 5001 },
		"far horizon":       func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) { p.Voucher.Horizon += 100 },
		"number 0":          func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) { p.Voucher.Seq = 0 },
		"epoch to come":     func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) { p.Voucher.Supervision = 2 },
		"final before the end": func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) {
			p.Voucher.Flags, p.Voucher.Cumulative = 1, p.Last.Cumulative
		},
		"in the future":      func(_ *guardian.Lease, _ *guardiantest.PayerState, now *market.Slot) { *now -= 31 },
		"receipt not signed": func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) { p.LastSig[3]++ },
		"receipt of more time": func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) {
			p.Last.To += 10
			p.Last.Cumulative += 25
		},
		"began earlier": func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) { p.First -= 10 },
		"began too late": func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) {
			p.Last, p.Started, p.Voucher.Cumulative = nil, guardiantest.FirstSlot+21, 25
		},
		"nothing received": func(_ *guardian.Lease, p *guardiantest.PayerState, _ *market.Slot) { p.Last = nil },
	} {
		p, now := fresh(2)
		l := p.Handed()
		state := guardiantest.ParsePayer(t, l)
		change(&l, &state, &now)
		l.Payer = state.Bytes(t)
		var refusal *stream.Refused
		var bad *stream.Malformed
		if _, err := earned(c, now, l); !errors.As(err, &refusal) && !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Safety: whatever a supervisor that lies makes up, together with a provider that signs whatever it likes, what is signed is
// within the cap and the rate for the time that passed, an interval more and twice the skew.
func TestNeverMoreThanTimeAllows(t *testing.T) {
	t.Parallel()
	c, _ := guardiantest.CharterOf(t, 3, 2)
	lease := guardiantest.NewLease(c, 1, guardiantest.FirstSlot)
	terms := guardiantest.Terms(c, lease, 1)
	signed := 0
	rapid.Check(t, func(t *rapid.T) {
		off := func(label string) market.Slot { // most of it is right, so that some is signed
			if rapid.IntRange(0, 7).Draw(t, label+" is wrong") > 0 {
				return 0
			}
			return market.Slot(rapid.OneOf(rapid.Uint64Range(1, 60), rapid.Just(^uint64(0)), rapid.Just(^uint64(30)), rapid.Uint64()).Draw(t, label))
		}
		core := lease.Core
		began := guardiantest.FirstSlot + market.Slot(rapid.Uint64Range(0, 20).Draw(t, "began")) + off("began")
		until := began
		p := guardiantest.PayerState{Lease: core.ID(), State: rapid.SampledFrom([]meter.PayerState{meter.PayerPaying, meter.PayerStopping, meter.PayerSettled}).Draw(t, "state"), Started: began}
		v := &verify.Voucher{Version: 1, Lease: p.Lease, Seq: rapid.Uint64Range(0, 5).Draw(t, "seq"), Supervision: rapid.Uint64Range(0, 2).Draw(t, "epoch")}
		p.Voucher = v
		if rapid.Bool().Draw(t, "receipt") {
			until = began + market.Slot(rapid.Uint64Range(0, 1000).Draw(t, "billed")) + off("to")
			p.First = began
			owed, _ := core.Rate.Owed(uint64(until - began))
			p.Last = &verify.ReceiptCore{Version: 1, Units: 1, Lease: p.Lease, Seq: rapid.Uint64Range(1, 5).Draw(t, "number"), Provider: core.Provider, Buyer: core.Buyer,
				UnitsRoot: core.UnitsRoot, From: max(began, until-10), To: until, Cumulative: owed + market.Amount(off("owed"))}
			p.LastSig, _ = p.Last.Sign(guardiantest.Network.Domain(), guardiantest.Provider)
		}
		now := until + off("now")
		most, _ := core.Rate.Owed(uint64(min(until+10, core.End)-began) + uint64(off("ahead")))
		v.Cumulative, v.Horizon = min(most, core.Cap)+market.Amount(off("amount")), min(until+10, core.End)+off("further")
		_, err := earned(c, now, guardian.Lease{Signed: lease, Payer: p.Bytes(t), MilliCPU: 1000})
		if err != nil {
			return
		}
		signed++
		passed := uint64(0)
		if now > lease.Core.Start {
			passed = uint64(now - lease.Core.Start)
		}
		allowed, err := lease.Core.Rate.Owed(passed + terms.IntervalSlots + 2*terms.SkewSlots)
		if err != nil {
			allowed = lease.Core.Cap
		}
		if v.Cumulative > min(allowed, lease.Core.Cap) || v.Horizon > lease.Core.End {
			t.Fatalf("safety: signed %d in slot %d, allowed are %d", v.Cumulative, now, min(allowed, lease.Core.Cap))
		}
	})
	if signed == 0 {
		t.Error("nothing was signed, so that nothing was tested")
	}
}

// Of one lease, nothing goes back, and no number is two vouchers.
func TestLeaseNeverGoesBack(t *testing.T) {
	t.Parallel()
	c, _ := guardiantest.CharterOf(t, 3, 2)
	at := func(receipts int, epoch uint64, change func(*guardiantest.PayerState)) *guardian.SignedLease {
		p, now := guardiantest.StartPaying(t, c, 1, guardiantest.FirstSlot, epoch), market.Slot(guardiantest.FirstSlot)
		for range receipts {
			now += 10
			p.Receipt(now, now, false)
		}
		l := p.Handed()
		if change != nil {
			state := guardiantest.ParsePayer(t, l)
			change(&state)
			l.Payer = state.Bytes(t)
		}
		k, err := c.CheckLease(guardiantest.Network, guardian.SignedLease{Lease: l, Word: guardian.Word{Epoch: epoch}}, nil)
		guardiantest.Must(t, err)
		return &k
	}
	if err := at(2, 1, nil).Follows(at(2, 1, nil)); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := at(3, 1, nil).Follows(at(2, 1, nil)); err != nil {
		t.Errorf("the next: %v", err)
	}
	if err := at(2, 1, func(p *guardiantest.PayerState) { p.State = meter.PayerStopping }).Follows(at(2, 1, nil)); err != nil {
		t.Errorf("stopped: %v", err)
	}
	for name, k := range map[string]*guardian.SignedLease{
		"an earlier receipt": at(1, 1, nil),
		"another voucher":    at(2, 1, func(p *guardiantest.PayerState) { p.Voucher.Cumulative-- }),
		"an earlier voucher": at(2, 1, func(p *guardiantest.PayerState) { p.Voucher.Seq-- }),
	} {
		if err := k.Follows(at(2, 1, nil)); !guardian.Refused(err, guardian.CodeVoucher) {
			t.Errorf("%s: %v", name, err)
		}
	}
	final := at(2, 1, nil)
	p := guardiantest.Resume(t, c, final.Lease, 1)
	p.Receipt(guardiantest.FirstSlot+25, guardiantest.FirstSlot+25, true)
	done, err := c.CheckLease(guardiantest.Network, guardian.SignedLease{Lease: p.Handed(), Word: guardian.Word{Epoch: 1}}, nil)
	guardiantest.Must(t, err)
	if err := done.Follows(final); err != nil {
		t.Errorf("the final one: %v", err)
	}
	if err := final.Follows(&done); !guardian.Refused(err, guardian.CodeVoucher) {
		t.Errorf("after the final one: %v", err)
	}
	if later := at(2, 4, nil); !later.Newer(at(2, 1, nil)) || !at(3, 1, nil).Newer(later) {
		t.Error("the order is receipt, epoch")
	}
}
