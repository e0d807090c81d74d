package trades

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/meter"
)

// A lease of the games: slots, and base units a slot.
const (
	leaseInterval = 10
	leaseGrace    = 4
	leaseSkew     = 2
	leaseSlots    = 60
	leaseRate     = 25
	leaseStart    = market.Slot(100)
)

// deal is a lease between both machines of verify/meter, with one cheating side. Messages arrive at once, or a slot
// later.
type deal struct {
	w               *play.World
	terms           meter.Terms
	provider, buyer sign.Private
	seller          meter.Seller
	payer           meter.Payer
	now             market.Slot

	receipt func(c *verify.ReceiptCore) // a cheating provider's change of a receipt before it signs it
	voucher func(v *verify.Voucher) bool
	cosigns func() bool // a cheating buyer's action; false: it sends nothing

	working  bool
	worked   int           // slots
	promised market.Amount // by the best voucher
	refusals int           // receipts or vouchers refused by a rule
	cheated  bool          // data was changed or omitted
	stopped  bool          // a side ended the lease early
}

func newDeal(w *play.World) (*deal, error) {
	d := &deal{w: w, provider: audittest.Key("provider"), buyer: audittest.Key("buyer")}
	keys, err := market.NewKeySet(1, d.buyer.Key())
	if err != nil {
		return nil, err
	}
	domain := audittest.Domain()
	domain.Program = sign.Key{} // settled directly
	d.terms = meter.Terms{
		Domain: domain, Keys: keys, IntervalSlots: leaseInterval, GraceSlots: leaseGrace, SkewSlots: leaseSkew,
		SlotMillis: 400, MilliCPU: 1000, Core: market.LeaseCore{
			Version: market.LeaseVersion, Units: 1, Order: market.OrderID{1}, Buyer: d.buyer.Key(),
			Provider: d.provider.Key(), Payout: sign.Key{7}, UnitsRoot: market.UnitsRoot([]market.UnitID{{9}}),
			Terms: sign.Hash{3}, VoucherKeys: keys.Hash(), Rate: leaseRate * market.RateScale,
			Cap: leaseRate * leaseSlots, Start: leaseStart, ActivateBefore: leaseStart + 10,
			End: leaseStart + leaseSlots, Nonce: market.Nonce{5},
		},
	}
	if d.payer, err = meter.NewPayer(d.terms); err != nil {
		return nil, err
	}
	d.seller, err = meter.NewSeller(d.terms, leaseStart, 0)
	return d, err
}

// toSeller and toPayer pass an event to a side and carry out its effects. A message that breaks a rule is counted.
func (d *deal) toSeller(e meter.Event) error {
	next, fx, err := d.seller.Step(d.now, e)
	if r := (*verify.RuleError)(nil); errors.As(err, &r) {
		d.refusals++
		return nil
	}
	if err != nil {
		return err
	}
	d.seller = next
	for _, f := range fx {
		switch f := f.(type) {
		case meter.StartWork:
			d.working = true
		case meter.StopWork:
			d.working = false
			d.stopped = d.stopped || d.now < d.terms.Core.End-1
			if err := d.toSeller(meter.WorkEnded{}); err != nil {
				return err
			}
		case meter.ProposeReceipt:
			core := f.Core
			if d.receipt != nil {
				d.receipt(&core)
				d.cheated = d.cheated || core != f.Core
			}
			sig, err := core.Sign(d.terms.Domain, d.provider)
			if err == nil {
				err = d.toPayer(meter.ReceiptProposed{Core: core, Sig: sig})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *deal) toPayer(e meter.Event) error {
	next, fx, err := d.payer.Step(d.now, e)
	if err != nil {
		return err
	}
	d.payer = next
	for _, f := range fx {
		switch f := f.(type) {
		case meter.Cosign:
			if d.cosigns != nil && !d.cosigns() {
				d.cheated = true
				continue
			}
			sig, err := f.Core.Sign(d.terms.Domain, d.buyer)
			if err == nil {
				err = d.toSeller(meter.CosignatureReceived{Seq: f.Core.Seq, Sig: sig})
			}
			if err != nil {
				return err
			}
		case meter.IssueVoucher:
			v := f.Voucher
			if d.voucher != nil {
				send := d.voucher(&v)
				d.cheated = d.cheated || !send || v != f.Voucher
				if !send {
					continue
				}
			}
			d.promised = max(d.promised, v.Cumulative)
			signed, err := verify.SignVoucher(d.terms.Domain, v, d.terms.Keys, d.buyer)
			if err == nil {
				err = d.toSeller(meter.VoucherReceived{Voucher: signed})
			}
			if err != nil {
				return err
			}
		case meter.Refuse:
			d.refusals++
		case meter.StopPaying:
			d.stopped = d.stopped || f.Reason != meter.ReasonLeaseEnded && f.Reason != meter.ReasonCapReached
		}
	}
	return nil
}

// play runs the lease to its end, and computes the cheat's gain beyond the work and the payment.
func (d *deal) play() error {
	d.now = leaseStart
	if err := d.toPayer(meter.Started{}); err != nil {
		return err
	}
	for ; d.now <= d.terms.Core.End+8*leaseInterval; d.now++ {
		if d.working && d.now < d.terms.Core.End {
			d.worked++
		}
		if err := d.toSeller(meter.UsageSampled{CPUMillis: uint64(d.worked) * 400}); err != nil {
			return err
		}
		if err := errors.Join(d.toSeller(meter.Ticked{}), d.toPayer(meter.Ticked{})); err != nil {
			return err
		}
	}
	return nil
}

// interval is the price of an interval, base units.
const interval = leaseRate * leaseInterval

// from is the first slot of a cheat.
func cheatsFrom(w *play.World) market.Slot {
	return leaseStart + market.Slot(1+w.R.IntN(leaseSlots-leaseInterval))
}

// inflates is a provider that overstates its work, in one of five ways. It works as long as it is paid.
func inflates(w *play.World) (play.Trial, error) {
	d, err := newDeal(w)
	if err != nil {
		return play.Trial{}, err
	}
	from, way := cheatsFrom(w), w.R.IntN(5)
	var last verify.ReceiptCore
	d.receipt = func(c *verify.ReceiptCore) {
		if d.now < from {
			last = *c
			return
		}
		switch way {
		case 0: // a higher price
			c.Amount, c.Cumulative = c.Amount+c.Amount/10, c.Cumulative+c.Amount/10
		case 1: // a longer interval
			c.To += leaseInterval
			c.Amount, c.Cumulative = 2*c.Amount, c.Cumulative+c.Amount
		case 2: // a beginning before it began
			c.From -= min(c.From, leaseInterval)
			c.Amount, c.Cumulative = 2*c.Amount, c.Cumulative+c.Amount
		case 3: // more processors than it has
			c.CPUMillis = 400*leaseInterval*4 + 1
		case 4: // the same number for another state, or a chain that begins again
			if last.Seq > 0 {
				c.Seq, c.Prev = last.Seq, last.Prev
			} else {
				c.Prev[0]++
			}
		}
	}
	if err := d.play(); err != nil {
		return play.Trial{}, err
	}
	paid := max(d.promised, d.payer.Owed())
	return play.Trial{
		Checks: 1, First: d.cheated && d.refusals > 0, Caught: d.cheated && d.refusals > 0 && d.stopped,
		Gain: (float64(paid) - leaseRate*float64(d.worked)) / interval,
	}, nil
}

// owes is a buyer that does not pay for finished work, in one of five ways.
func owes(w *play.World) (play.Trial, error) {
	d, err := newDeal(w)
	if err != nil {
		return play.Trial{}, err
	}
	from, way := cheatsFrom(w), w.R.IntN(5)
	d.cosigns = func() bool { return way != 0 || d.now < from }
	d.voucher = func(v *verify.Voucher) bool {
		if d.now < from {
			return true
		}
		switch way {
		case 0, 1: // no further ones, with or without a signature under the receipt
			return false
		case 2: // for a smaller amount
			v.Cumulative = 1
		case 3: // of another lease
			v.Lease[0]++
		case 4: // of another escrow
			v.Escrow[0]++
		}
		return true
	}
	if err := d.play(); err != nil {
		return play.Trial{}, err
	}
	claim := d.seller.Claim(d.now)
	return play.Trial{
		Checks: 1, First: d.cheated && d.stopped,
		Caught: d.cheated && d.stopped && d.seller.State() == meter.SellerSettled,
		Gain:   (leaseRate*float64(d.worked) - float64(claim)) / interval,
	}, nil
}

// honestDeal checks that an honest lease ends with both sides agreed and everything paid: the simulation itself is no
// cheat.
func honestDeal(i int) error {
	d, err := newDeal(play.NewWorld(uint64(i), "deal", i))
	if err == nil {
		err = d.play()
	}
	if err != nil {
		return err
	}
	if owed := d.payer.Owed(); d.worked != leaseSlots || owed != leaseRate*leaseSlots ||
		d.seller.Claim(d.now) != owed || d.refusals != 0 || d.stopped {
		return fmt.Errorf("an honest lease: %d slots worked, %d owed, %d claimed, %d refused",
			d.worked, owed, d.seller.Claim(d.now), d.refusals)
	}
	return nil
}

// Both sides sign each interval, so that each side risks at most one interval.
var meteringKinds = []play.Kind{
	{
		Name: "inflated", Threat: 16, What: "a provider's receipts overstate its work", Try: inflates,
		Real: honestDeal,
		Gain: play.Gain{What: "intervals that a provider was promised beyond its work, at most",
			Most: 1 + float64(leaseSkew)/leaseInterval, Worst: true},
	},
	{
		Name: "unpaid", Threat: 16, What: "a buyer gets work done and stops signing", Try: owes,
		Gain: play.Gain{What: "intervals that a provider worked without payment, at most",
			Most: 1 + float64(leaseGrace)/leaseInterval, Worst: true},
	},
}
