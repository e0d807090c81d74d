package escrow

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// The journal form of Claims, little-endian; fleet is that of a deposit. A length of zero stands for a voucher that
// there is not.
//
//	claims  = version u8 (3) ‖ end u8 ‖ flags u8 (bit 0 over, 1 table made) ‖ lease core[296] ‖ key set
//	          ‖ n u16 ‖ funding[n] ‖ owed u64 ‖ earned u64 ‖ paid u64 ‖ flown u64
//	          ‖ landed u64 ‖ newest final slot u64 ‖ flown at u64 ‖ asked u64
//	          ‖ 4 × voucher: best, earned, next, final ‖ n u16 ‖ why lost[n]
//	          ‖ slot of its table u64 ‖ slot in which that was disabled u64 ‖ fleet
//	voucher = n u16 ‖ signed voucher[n]
const claimsVersion = 3

// Marshal gives the journal form. Claims have one.
func (c Claims) Marshal() []byte {
	le := binary.LittleEndian
	core, funding := c.core.Marshal(), c.funding.Marshal()
	b := append([]byte{claimsVersion, byte(c.end), flags(c.over, c.table.made)}, core[:]...)
	b = append(b, c.keys.Marshal()...)
	b = append(le.AppendUint16(b, uint16(len(funding))), funding...)
	for _, v := range []uint64{uint64(c.owed), uint64(c.sure), uint64(c.paid), uint64(c.flown), uint64(c.landed),
		uint64(c.final), uint64(c.flewAt), uint64(c.asked)} {
		b = le.AppendUint64(b, v)
	}
	for _, v := range []*verify.SignedVoucher{c.best, c.earned, c.next, c.closing} {
		if v == nil {
			b = le.AppendUint16(b, 0)
			continue
		}
		raw := v.Marshal()
		b = append(le.AppendUint16(b, uint16(len(raw))), raw...)
	}
	b = append(le.AppendUint16(b, uint16(len(c.lostBy))), c.lostBy...)
	t := c.journalled()
	return c.fleet.append(le.AppendUint64(le.AppendUint64(b, uint64(t.slot)), uint64(t.disabled)))
}

// RestoreClaims parses the journal form. It refuses, with market.ErrMalformed, states that Step cannot reach. The
// vouchers' signatures were checked before they were kept. Send Ticked next.
func RestoreClaims(b []byte, net Net, when When, p Params) (Claims, error) {
	r := newReader(b)
	version, end, bits := r.U8(), ending(r.U8()), r.U8()
	c := Claims{net: net, params: p, when: when, end: end, over: bits&1 != 0}
	var err error
	c.core, err = market.UnmarshalLeaseCore(r.Take(market.LeaseCoreSize))
	r.Fail(err != nil || version != claimsVersion || end > endLost || bits > 3)
	c.keys = r.keys()
	c.funding, err = UnmarshalFunding(r.bytes(int(r.U16()), MaxFunding))
	r.Fail(err != nil)
	c.escrow = net.EscrowOf(c.core, c.funding)
	c.owed, c.sure = market.Amount(r.U64()), market.Amount(r.U64())
	c.paid, c.flown = market.Amount(r.U64()), market.Amount(r.U64())
	c.landed, c.final = market.Slot(r.U64()), market.Slot(r.U64())
	c.flewAt, c.asked = market.Slot(r.U64()), market.Slot(r.U64())
	c.best, c.earned, c.next, c.closing = r.voucher(), r.voucher(), r.voucher(), r.voucher()
	c.lostBy = string(r.bytes(int(r.U16()), maxReason))
	c.retell = true
	c.table = table{slot: market.Slot(r.U64()), made: bits&2 != 0, disabled: market.Slot(r.U64())}
	c.fleet = r.fleet(func(t task) bool { return t.kind >= kindClaim && t.kind < kinds })
	if r.Bad || len(r.Rest) > 0 || c.check() != nil || !c.consistent() {
		return Claims{}, fmt.Errorf("%w: claims of %d bytes, version %d", market.ErrMalformed, len(b), version)
	}
	return c, nil
}

func (r *reader) voucher() *verify.SignedVoucher {
	raw := r.bytes(int(r.U16()), verify.MaxSignedVoucher)
	if len(raw) == 0 {
		return nil
	}
	v, err := verify.UnmarshalSignedVoucher(raw)
	if r.Fail(err != nil); err != nil {
		return nil
	}
	return &v
}

// consistent reports whether the vouchers are of this lease and in order, only a table's end is under way once it is
// over, and a table that is not there has no history.
func (c *Claims) consistent() bool {
	id := c.core.ID()
	for _, v := range []*verify.SignedVoucher{c.best, c.earned, c.next, c.closing} {
		if v != nil &&
			(v.Lease != id || v.Escrow != c.escrow || v.Set.Hash() != c.core.VoucherKeys ||
				v.Final() != (v == c.closing) || len(v.Sigs) < int(c.keys.Threshold)) {
			return false
		}
	}
	return c.tableFits() && (c.earned == nil || c.best != nil && c.earned.Seq < c.best.Seq) &&
		(c.next == nil || c.earned != nil && c.earned.Seq < c.next.Seq && c.next.Seq < c.best.Seq) &&
		(c.end == endNot || !c.claiming())
}
