package claims

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// The journal form of Claims, little-endian; its transactions are an escrow.Queue. A length of zero stands for
// a voucher that there is not.
//
//	claims  = version u8 (3) ‖ end u8 ‖ flags u8 (bit 0 over, 1 table made) ‖ lease core[296] ‖ key set
//	          ‖ n u16 ‖ funding[n] ‖ owed u64 ‖ earned u64 ‖ paid u64 ‖ landed amount u64
//	          ‖ landed u64 ‖ newest final slot u64 ‖ landed at u64 ‖ asked u64
//	          ‖ 4 × voucher: best, earned, next, final ‖ n u16 ‖ why lost[n]
//	          ‖ slot of its table u64 ‖ slot in which that was disabled u64 ‖ transactions
//	voucher = n u16 ‖ signed voucher[n]
const claimsVersion = 3

// Marshal gives the journal form. Claims have one.
func (c Claims) Marshal() []byte {
	le := binary.LittleEndian
	var bits byte
	if c.over {
		bits |= 1
	}
	if c.table.made {
		bits |= 2
	}
	core, funding := c.core.Marshal(), c.funding.Marshal()
	b := append([]byte{claimsVersion, byte(c.end), bits}, core[:]...)
	b = append(b, c.keys.Marshal()...)
	b = append(le.AppendUint16(b, uint16(len(funding))), funding...)
	for _, v := range []uint64{uint64(c.owed), uint64(c.sure), uint64(c.paid), uint64(c.landedAmount), uint64(c.landed),
		uint64(c.final), uint64(c.landedAt), uint64(c.asked)} {
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
	t := c.table.journalled(&c.queue)
	return c.queue.Append(le.AppendUint64(le.AppendUint64(b, uint64(t.slot)), uint64(t.disabled)))
}

// Restore parses the journal form. It refuses, with market.ErrMalformed, states that Step cannot reach. The vouchers'
// signatures were checked before they were kept. Send Ticked next.
func Restore(b []byte, net escrow.Net, when escrow.When, p escrow.Params) (Claims, error) {
	r := &reader{fields.Reader{Rest: b}}
	version, end, bits := r.U8(), ending(r.U8()), r.U8()
	c := Claims{params: p, when: when, end: end, repeat: true}
	c.net, c.over = net, bits&1 != 0
	var err error
	c.core, err = market.UnmarshalLeaseCore(r.Take(market.LeaseCoreSize))
	r.Fail(err != nil || version != claimsVersion || end > endLost || bits > 3)
	c.keys = escrow.ReadKeys(&r.Reader)
	c.funding, err = escrow.UnmarshalFunding(r.Bytes(int(r.U16()), escrow.MaxFunding))
	r.Fail(err != nil)
	c.escrow = net.EscrowOf(c.core, c.funding)
	c.owed, c.sure = market.Amount(r.U64()), market.Amount(r.U64())
	c.paid, c.landedAmount = market.Amount(r.U64()), market.Amount(r.U64())
	c.landed, c.final = market.Slot(r.U64()), market.Slot(r.U64())
	c.landedAt, c.asked = market.Slot(r.U64()), market.Slot(r.U64())
	c.best, c.earned, c.next, c.closing = r.voucher(), r.voucher(), r.voucher(), r.voucher()
	c.lostBy = string(r.Bytes(int(r.U16()), escrow.MaxReason))
	c.table = table{slot: market.Slot(r.U64()), made: bits&2 != 0, disabled: market.Slot(r.U64())}
	c.queue = escrow.ReadQueue(&r.Reader, func(t escrow.Task) bool {
		return t.Kind >= escrow.TaskClaim && t.Kind <= escrow.TaskCloseTable
	})
	if r.Bad || len(r.Rest) > 0 || c.check() != nil || !c.consistent(&c.leaf) || !c.table.consistent(&c.queue) ||
		c.end != endNot && c.queue.Under(claims) {
		return Claims{}, fmt.Errorf("%w: claims of %d bytes, version %d", market.ErrMalformed, len(b), version)
	}
	return c, nil
}

// reader reads the parts of journals.
type reader struct{ fields.Reader }

func (r *reader) voucher() *verify.SignedVoucher {
	raw := r.Bytes(int(r.U16()), verify.MaxSignedVoucher)
	if len(raw) == 0 {
		return nil
	}
	v, err := verify.UnmarshalSignedVoucher(raw)
	if r.Fail(err != nil); err != nil {
		return nil
	}
	return &v
}
