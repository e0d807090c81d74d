package guardiantest

import (
	"encoding/json"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Paying is a lease with the parts of both machines that matter: the payer, and a provider that signs its receipts.
type Paying struct {
	Signed market.Lease
	Payer  meter.Payer

	t     testing.TB
	chain verify.Chain
	began market.Slot
}

// Terms are the meter's terms of a lease of 1,000 milliCPU under an epoch.
func Terms(c guardian.Charter, l market.Lease, epoch uint64) meter.Terms {
	return metering.Terms(Network, l.Core, c.Keys, sign.Key{}, market.Resources{MilliCPU: 1000}, epoch)
}

// StartPaying begins to pay a new lease in slot now.
func StartPaying(t testing.TB, c guardian.Charter, n byte, now market.Slot, epoch uint64) *Paying {
	t.Helper()
	l := NewLease(c, n, now)
	payer, err := meter.NewPayer(Terms(c, l, epoch))
	if err != nil {
		t.Fatal(err)
	}
	p := &Paying{t: t, Signed: l, Payer: payer, chain: verify.NewChain(l.Core), began: now}
	p.Step(now, meter.Started{})
	return p
}

// Resume is the lease as another supervisor found it.
func Resume(t testing.TB, c guardian.Charter, l guardian.Lease, epoch uint64) *Paying {
	t.Helper()
	payer, err := meter.RestorePayer(Terms(c, l.Signed, epoch), l.Payer)
	if err != nil {
		t.Fatal(err)
	}
	return &Paying{
		t: t, Signed: l.Signed, Payer: payer, began: payer.Began(),
		chain: verify.NewChain(l.Signed.Core).Resume(payer.Last(), payer.Began()),
	}
}

// Step is an event of the payer.
func (p *Paying) Step(now market.Slot, ev meter.Event) {
	p.t.Helper()
	next, _, err := p.Payer.Step(now, ev)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Payer = next
}

// Receipt has the provider bill up to slot to, in slot now.
func (p *Paying) Receipt(now, to market.Slot, final bool) {
	p.t.Helper()
	from := p.began
	if last := p.chain.Last(); last.Seq > 0 {
		from = last.To
	}
	core, err := p.chain.Next(from, to, func(r *verify.ReceiptCore) {
		if final {
			r.Flags |= verify.ReceiptFinal
		}
	})
	if err != nil {
		p.t.Fatal(err)
	}
	sig, err := core.Sign(Network.Domain(), Provider)
	if err != nil {
		p.t.Fatal(err)
	}
	before := p.Payer.Last().Seq
	p.Step(now, meter.ReceiptProposed{Core: core, Sig: sig})
	if p.Payer.Last().Seq != before+1 {
		p.t.Fatalf("the payer refused receipt %d", core.Seq)
	}
	if p.chain, err = p.chain.Follow(core); err != nil {
		p.t.Fatal(err)
	}
}

// Handed is the lease as its supervisor hands it in.
func (p *Paying) Handed() guardian.Lease {
	p.t.Helper()
	state, err := p.Payer.Marshal()
	if err != nil {
		p.t.Fatal(err)
	}
	return guardian.Lease{Signed: p.Signed, Record: []byte("record"), Payer: state, MilliCPU: 1000}
}

// PayerState is a payer's state, to be forged.
type PayerState struct {
	Lease     market.LeaseID      `json:"lease"`
	State     meter.PayerState    `json:"state"`
	Started   market.Slot         `json:"started"`
	First     market.Slot         `json:"first"`
	Last      *verify.ReceiptCore `json:"last,omitempty"`
	LastSig   sign.Signature      `json:"last_sig"`
	Voucher   *verify.Voucher     `json:"voucher,omitempty"`
	StoppedAt market.Slot         `json:"stopped_at,omitempty"`
	Reason    meter.Reason        `json:"reason,omitempty"`
	Detail    string              `json:"detail,omitempty"`
	Settled   market.Amount       `json:"settled"`
	Agreed    bool                `json:"agreed"`
}

// Bytes is the state as Lease.Payer has it.
func (p PayerState) Bytes(t interface{ Fatal(...any) }) []byte {
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ParsePayer reads the state of a lease's payer.
func ParsePayer(t testing.TB, l guardian.Lease) PayerState {
	t.Helper()
	var p PayerState
	Must(t, json.Unmarshal(l.Payer, &p))
	return p
}
