package escrow

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// The journal form of a Deposit, little-endian. Transactions that are being signed are left out: they do not exist yet.
//
//	deposit = version u8 (1) ‖ flags u8 (bit 0 seen, 1 ending, 2 closed, 3 leases name another buyer, 4 a hire)
//	          ‖ opened u64 ‖ deadline u64 ‖ newest final slot u64 ‖ landed u64
//	          ‖ refunded u64 ‖ deal ‖ n u16 ‖ n × batch ‖ fleet
//	deal    = order[32] ‖ buyer[32] ‖ source[32] ‖ refund owner[32] ‖ referrer[32] ‖ key set
//	          ‖ n u8 ‖ n × standby[80] ‖ lease buyer[32]? ‖ hirer[32]?
//	batch   = stage u8 (bit 7 hired) ‖ first tranche u16 ‖ deposit u64 ‖ landed u64 ‖ n u16 ‖ n × lease
//	lease   = flags u8 (bit 0 retired, 1 with a final receipt, 2 void) ‖ activate-before u64
//	          ‖ leaf[136] ‖ ( receipt core[256] ‖ signature[64] )?
//	fleet   = next number u32 ‖ n u8 ‖ n × flight
//	flight  = number u32 ‖ kind u8 ‖ tranche u16 ‖ leaf u16 ‖ amount u64 ‖ state u8 ‖ last valid u64 ‖ since u64
//	          ‖ n u8 ‖ txid[n] ‖ n u16 ‖ raw[n]
const depositVersion = 1

const (
	maxBatches  = 4096
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
	return d.fleet.append(b)
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

func (f fleet) append(b []byte) []byte {
	le := binary.LittleEndian
	signed := slices.DeleteFunc(slices.Clone(f.flights), func(x flight) bool { return x.tx.ID == "" })
	b = append(le.AppendUint32(b, f.number), byte(len(signed)))
	for _, x := range signed {
		b = append(le.AppendUint32(b, x.no), byte(x.task.kind))
		b = le.AppendUint16(b, x.task.tranche)
		b = le.AppendUint16(b, x.task.leaf)
		b = le.AppendUint64(b, uint64(x.task.amount))
		b = append(b, byte(x.state))
		b = le.AppendUint64(b, x.tx.LastValid)
		b = le.AppendUint64(b, uint64(x.tx.Since))
		b = append(append(b, byte(len(x.tx.ID))), x.tx.ID...)
		b = append(le.AppendUint16(b, uint16(len(x.tx.Raw))), x.tx.Raw...)
	}
	return b
}

// RestoreDeposit parses the journal form. It refuses, with market.ErrMalformed, states that Step cannot reach. Send
// Ticked next.
func RestoreDeposit(b []byte, net Net, p Params) (Deposit, error) { return restore(b, net, p, false) }

func restore(b []byte, net Net, p Params, hires bool) (Deposit, error) {
	r := newReader(b)
	version, bits := r.U8(), r.U8()
	d := Deposit{net: net, params: p, seen: bits&flagSeen != 0, ending: bits&flagEnding != 0,
		closed: bits&flagClosed != 0, opened: r.U64(), deadline: market.Slot(r.U64()), final: market.Slot(r.U64()),
		landed: market.Slot(r.U64()), refunded: market.Amount(r.U64())}
	d.deal = r.deal(bits&flagOther != 0)
	if hires {
		d.hirer = r.Key()
	}
	r.Fail(version != depositVersion || bits >= flagHire<<1 || (bits&flagHire != 0) != hires || r.Bad ||
		d.check() != nil || hires == d.hirer.IsZero())
	for range r.count(int(r.U16()), maxBatches) {
		d.batches = append(d.batches, r.batch(&d))
	}
	d.fleet = r.fleet(func(t task) bool {
		return t.kind >= kindOpen && t.kind <= kindCloseEscrow && (t.kind > kindOpen || !hires) &&
			(t.kind > kindAdd || int(t.tranche) < len(d.batches))
	})
	r.Fail(d.opened == 0 && (d.seen || len(d.fleet.flights) > 0) || d.closed && len(d.fleet.flights) > 0)
	if r.Bad || len(r.Rest) > 0 || !d.fits() {
		return Deposit{}, fmt.Errorf("%w: deposit of %d bytes, version %d", market.ErrMalformed, len(b), version)
	}
	d = d.named(d.opened)
	d.asked, d.retell = 1, true
	for _, x := range d.batches {
		d.asked = max(d.asked, x.first+uint16(len(x.trees)))
	}
	return d, nil
}

// fits reports whether no lease stands twice and nothing overflows.
func (d *Deposit) fits() bool {
	seen := map[market.LeaseID]bool{}
	for _, b := range d.batches {
		var sum market.Amount
		var err error
		for _, e := range b.leases {
			if sum, err = sum.Add(e.leaf.Cap); err != nil || seen[e.leaf.Lease] {
				return false
			}
			seen[e.leaf.Lease] = true
		}
		if int(b.first)+len(b.trees) > math.MaxUint16 {
			return false
		}
	}
	return len(seen) <= MaxLeases
}

// reader reads the parts of journals.
type reader struct{ fields.Reader }

func newReader(b []byte) *reader { return &reader{fields.Reader{Rest: b}} }

// count bounds how many follow; when it is too many, none do.
func (r *reader) count(n, limit int) int {
	if r.Fail(n > limit); r.Bad {
		return 0
	}
	return n
}

// bytes reads a length and that many bytes.
func (r *reader) bytes(n, limit int) []byte { return r.Take(r.count(n, limit)) }

func (r *reader) keys() market.KeySet {
	head := r.Take(2)
	raw := append(slices.Clone(head), r.Take(sign.KeySize*r.count(int(head[1]), market.MaxVoucherKeys))...)
	ks, err := market.UnmarshalKeySet(raw)
	r.Fail(err != nil)
	return ks
}

func (r *reader) deal(other bool) Deal {
	d := Deal{Order: market.OrderID(r.Key()), Buyer: r.Key(), Source: r.Key(), RefundOwner: r.Key(), Referrer: r.Key(),
		Keys: r.keys()}
	for range r.count(int(r.U8()), program.MaxStandbys) {
		d.Standbys = append(d.Standbys, program.Standby{Provider: r.Key(), Payout: r.Key(),
			MaxRate: market.Rate(r.U64()), Budget: market.Amount(r.U64())})
	}
	if other {
		d.LeaseBuyer = r.Key()
		r.Fail(d.LeaseBuyer.IsZero())
	}
	return d
}

func (r *reader) batch(d *Deposit) batch {
	bits := r.U8()
	b := batch{stage: stage(bits &^ flagHired), hired: bits&flagHired != 0, first: r.U16(),
		deposit: market.Amount(r.U64()), opened: market.Slot(r.U64())}
	n := int(r.U16())
	fit, most := max(1, d.fit(n, b.hired)), d.most()
	if b.hired {
		most = fit
	}
	for i := range r.count(n, most) {
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

func (r *reader) fleet(is func(task) bool) fleet {
	f := fleet{number: r.U32()}
	for range r.count(int(r.U8()), maxFlights) {
		x := flight{no: r.U32(), task: task{kind: kind(r.U8()), tranche: r.U16(), leaf: r.U16(),
			amount: market.Amount(r.U64())}, state: chain.TxState(r.U8())}
		x.tx = chain.Prepared{LastValid: r.U64(), Since: market.Slot(r.U64())}
		x.tx.ID = chain.TxID(r.bytes(int(r.U8()), maxTxID))
		x.tx.Raw = slices.Clone(r.bytes(int(r.U16()), chain.MaxRaw))
		r.Fail(!is(x.task) || x.state.Final() || x.state > chain.Expired || x.tx.ID == "" || len(x.tx.Raw) == 0 ||
			x.no >= f.number && f.number != 0 || slices.ContainsFunc(f.flights, func(y flight) bool {
			return y.task == x.task || y.no == x.no
		}))
		f.flights = append(f.flights, x)
	}
	return f
}
