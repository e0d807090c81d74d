package deposit

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// The journal form of a Deposit, little-endian. Transactions that are being signed are left out: they do not exist yet.
//
//	deposit = version u8 (1) ‖ flags u8 (bit 0 seen, 1 ending, 2 closed, 3 leases name another buyer, 4 a hire)
//	          ‖ opened u64 ‖ deadline u64 ‖ newest final slot u64 ‖ landed u64
//	          ‖ refunded u64 ‖ deal ‖ n u16 ‖ n × batch ‖ transactions (escrow.Queue)
//	deal    = order[32] ‖ buyer[32] ‖ source[32] ‖ refund owner[32] ‖ referrer[32] ‖ key set
//	          ‖ n u8 ‖ n × standby[80] ‖ lease buyer[32]? ‖ hirer[32]?
//	batch   = stage u8 (bit 7 hired) ‖ first tranche u16 ‖ deposit u64 ‖ landed u64 ‖ n u16 ‖ n × lease
//	lease   = flags u8 (bit 0 retired, 1 with a final receipt, 2 void) ‖ activate-before u64
//	          ‖ leaf[136] ‖ ( receipt core[256] ‖ signature[64] )?
const depositVersion = 1

const (
	maxBatches  = MaxLeases + maxHired
	flagSeen    = 1 << 0
	flagEnding  = 1 << 1
	flagClosed  = 1 << 2
	flagOther   = 1 << 3
	flagHire    = 1 << 4
	flagHired   = 1 << 7
	flagRetired = 1 << 0
	flagFinal   = 1 << 1
	flagVoid    = 1 << 2
)

func flags(bits ...bool) (out byte) {
	for i, b := range bits {
		if b {
			out |= 1 << i
		}
	}
	return out
}

// Marshal gives the journal form. A deposit has one.
func (d Deposit) Marshal() []byte {
	le := binary.LittleEndian
	b := []byte{depositVersion, flags(d.seen, d.ending, d.closed, !d.deal.LeaseBuyer.IsZero(), d.hires())}
	for _, v := range []uint64{d.opened, uint64(d.deadline), uint64(d.final), uint64(d.landed), uint64(d.refunded)} {
		b = le.AppendUint64(b, v)
	}
	b = d.deal.append(b)
	if d.hires() {
		b = append(b, d.hirer[:]...)
	}
	b = le.AppendUint16(b, uint16(len(d.batches)))
	for _, x := range d.batches {
		stage := byte(x.stage)
		if x.hired {
			stage |= flagHired
		}
		b = le.AppendUint16(append(b, stage), x.first)
		b = le.AppendUint64(b, uint64(x.deposit))
		b = le.AppendUint64(b, uint64(x.opened))
		b = le.AppendUint16(b, uint16(len(x.leases)))
		for _, e := range x.leases {
			b = append(b, flags(e.retire, e.final != nil, e.void))
			b = le.AppendUint64(b, uint64(e.before))
			leaf := e.leaf.Marshal()
			b = append(b, leaf[:]...)
			if e.final != nil {
				core := e.final.core.Marshal()
				b = append(append(b, core[:]...), e.final.by[:]...)
			}
		}
	}
	return d.queue.Append(b)
}

func (d Deal) append(b []byte) []byte {
	for _, k := range []sign.Key{sign.Key(d.Order), d.Buyer, d.Source, d.RefundOwner, d.Referrer} {
		b = append(b, k[:]...)
	}
	b = append(append(b, d.Keys.Marshal()...), byte(len(d.Standbys)))
	for _, s := range d.Standbys {
		b = append(append(b, s.Provider[:]...), s.Payout[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(s.MaxRate))
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Budget))
	}
	if !d.LeaseBuyer.IsZero() {
		b = append(b, d.LeaseBuyer[:]...)
	}
	return b
}

// Restore parses the journal form. It refuses, with market.ErrMalformed, states that Step cannot reach. Send Ticked
// next.
func Restore(b []byte, net escrow.Net, p escrow.Params) (Deposit, error) {
	return restore(b, net, p, false)
}

func restore(b []byte, net escrow.Net, p escrow.Params, hires bool) (Deposit, error) {
	r := &reader{fields.Reader{Rest: b}}
	version, bits := r.U8(), r.U8()
	d := Deposit{params: p, asked: 1, repeat: true, books: books{calls: calls{terms: terms{net: net}},
		seen: bits&flagSeen != 0, ending: bits&flagEnding != 0, closed: bits&flagClosed != 0}}
	d.opened, d.deadline, d.final = r.U64(), market.Slot(r.U64()), market.Slot(r.U64())
	d.landed, d.refunded = market.Slot(r.U64()), market.Amount(r.U64())
	d.deal = r.deal(bits&flagOther != 0)
	if hires {
		d.hirer = r.Key()
	}
	r.Fail(version != depositVersion || bits >= flagHire<<1 || (bits&flagHire != 0) != hires || r.Bad ||
		d.check() != nil || hires == d.hirer.IsZero())
	for range r.Count(int(r.U16()), maxBatches) {
		d.batches = append(d.batches, r.batch(&d.terms))
	}
	d.queue = escrow.ReadQueue(&r.Reader, func(t escrow.Task) bool {
		return t.Kind >= escrow.TaskOpen && t.Kind <= escrow.TaskCloseEscrow && (t.Kind > escrow.TaskOpen || !hires) &&
			(t.Kind > escrow.TaskAdd || int(t.Tranche) < len(d.batches))
	})
	r.Fail(d.opened == 0 && (d.seen || d.queue.Len() > 0) || d.closed && d.queue.Len() > 0)
	if r.Bad || len(r.Rest) > 0 || !d.batches.fits() {
		return Deposit{}, fmt.Errorf("%w: deposit of %d bytes, version %d", market.ErrMalformed, len(b), version)
	}
	d.calls = d.named(d.opened)
	for _, x := range d.batches {
		d.asked = max(d.asked, x.first+uint16(len(x.trees)))
	}
	return d, nil
}

// reader reads the parts of journals.
type reader struct{ fields.Reader }

func (r *reader) deal(other bool) Deal {
	d := Deal{Order: market.OrderID(r.Key()), Buyer: r.Key(), Source: r.Key(), RefundOwner: r.Key(), Referrer: r.Key(),
		Keys: escrow.ReadKeys(&r.Reader)}
	for range r.Count(int(r.U8()), account.MaxStandbys) {
		d.Standbys = append(d.Standbys, account.Standby{Provider: r.Key(), Payout: r.Key(),
			MaxRate: market.Rate(r.U64()), Budget: market.Amount(r.U64())})
	}
	if other {
		d.LeaseBuyer = r.Key()
		r.Fail(d.LeaseBuyer.IsZero())
	}
	return d
}

func (r *reader) batch(d *terms) batch {
	bits := r.U8()
	b := batch{stage: stage(bits &^ flagHired), hired: bits&flagHired != 0, first: r.U16(),
		deposit: market.Amount(r.U64()), opened: market.Slot(r.U64())}
	n := int(r.U16())
	fit, most := max(1, d.fit(n, b.hired)), d.most()
	if b.hired {
		most = fit
	}
	for i := range r.Count(n, most) {
		b.leases = append(b.leases, r.entry())
		r.Fail(int(b.leases[i].leaf.Index) != i%fit)
	}
	r.Fail(b.hired && b.stage == stageSigned || b.stage < stageWanted || b.stage > stageVoid || len(b.leases) == 0 ||
		b.opened != 0 && b.stage != stageFunded)
	if !r.Bad {
		r.Fail(b.build(fit) != nil)
	}
	return b
}

func (r *reader) entry() entry {
	bits := r.U8()
	r.Fail(bits > flagRetired|flagFinal|flagVoid)
	e := entry{retire: bits&flagRetired != 0, void: bits&flagVoid != 0, before: market.Slot(r.U64())}
	var err error
	e.leaf, err = tranche.UnmarshalLeaf(r.Take(tranche.LeafSize))
	r.Fail(err != nil)
	if bits&flagFinal == 0 || r.Bad {
		return e
	}
	core, err := verify.UnmarshalReceiptCore(r.Take(verify.ReceiptCoreSize))
	r.Fail(err != nil || !core.Final() || core.Lease != e.leaf.Lease || core.Provider != e.leaf.Provider || !e.retire)
	e.final = &finalReceipt{core: core, by: sign.Signature(r.Take(sign.SignatureSize))}
	return e
}
