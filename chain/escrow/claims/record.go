package claims

import (
	"fmt"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

const recordVersion = 4

// record is the journal form of Claims. Funding and vouchers are as they are signed or sent.
type record struct {
	Version  uint8              `json:"version"`
	End      ending             `json:"end,omitzero"`
	Over     bool               `json:"over,omitzero"`
	Core     market.LeaseCore   `json:"core"`
	Keys     market.KeySet      `json:"keys"`
	Funding  []byte             `json:"funding"`
	Owed     market.Amount      `json:"owed,omitzero"`
	Earned   market.Amount      `json:"earned,omitzero"` // both sides have signed for it
	Paid     market.Amount      `json:"paid,omitzero"`
	Claimed  market.Amount      `json:"claimed,omitzero"` // by final claims
	Landed   market.Slot        `json:"landed,omitzero"`
	Final    market.Slot        `json:"final,omitzero"`
	LandedAt market.Slot        `json:"landed_at,omitzero"`
	Asked    market.Slot        `json:"asked,omitzero"`
	Vouchers voucherRecords     `json:"vouchers"`
	LostBy   string             `json:"lost_by,omitzero"`
	Table    tableRecord        `json:"table,omitzero"`
	Queue    escrow.QueueRecord `json:"queue"`
}

// voucherRecords are signed vouchers; one that does not exist is empty.
type voucherRecords struct {
	Best    []byte `json:"best,omitempty"`
	Earned  []byte `json:"earned,omitempty"`
	Next    []byte `json:"next,omitempty"`
	Closing []byte `json:"closing,omitempty"`
}

type tableRecord struct {
	Slot     market.Slot `json:"slot,omitzero"`
	Made     bool        `json:"made,omitzero"`
	Disabled market.Slot `json:"disabled,omitzero"`
}

// Marshal returns the journal form. Claims have one.
func (c Claims) Marshal() []byte {
	t := c.table.journalled(&c.queue)
	return escrow.MarshalRecord(record{
		Version: recordVersion, End: c.end, Over: c.over, Core: c.core, Keys: c.keys, Funding: c.funding.Marshal(),
		Owed: c.owed, Earned: c.sure, Paid: c.paid, Claimed: c.landedAmount, Landed: c.landed, Final: c.final,
		LandedAt: c.landedAt, Asked: c.asked,
		Vouchers: voucherRecords{signed(c.best), signed(c.earned), signed(c.next), signed(c.closing)},
		LostBy:   c.lostBy, Table: tableRecord{t.slot, t.made, t.disabled}, Queue: c.queue.Record(),
	})
}

func signed(v *verify.SignedVoucher) []byte {
	if v == nil {
		return nil
	}
	return v.Marshal()
}

// Restore parses the journal form. It refuses, with market.ErrMalformed, states that Step cannot reach. The vouchers'
// signatures were checked before they were kept. Send Ticked next.
func Restore(b []byte, net escrow.Net, when escrow.When, p escrow.Params) (Claims, error) {
	var r record
	if err := escrow.UnmarshalRecord(b, &r); err != nil {
		return Claims{}, fmt.Errorf("claims: %w", err)
	}
	bad := func(what string) (Claims, error) {
		return Claims{}, fmt.Errorf("%w: claims of %d bytes, version %d: %s", market.ErrMalformed, len(b), r.Version,
			what)
	}
	if r.Version != recordVersion || r.Core.Validate() != nil || r.Keys.Validate() != nil || r.End > endLost ||
		len(r.LostBy) > escrow.MaxReason {
		return bad("lease, keys or end")
	}
	c := Claims{
		params: p, when: when, end: r.End, repeat: true, paid: r.Paid, landedAmount: r.Claimed, landed: r.Landed,
		final: r.Final, landedAt: r.LandedAt, asked: r.Asked, lostBy: r.LostBy,
		table: table{slot: r.Table.Slot, made: r.Table.Made, disabled: r.Table.Disabled},
	}
	c.net, c.core, c.keys, c.over, c.owed, c.sure = net, r.Core, r.Keys, r.Over, r.Owed, r.Earned
	var err error
	if c.funding, err = escrow.UnmarshalFunding(r.Funding); err != nil {
		return bad("funding")
	}
	c.escrow = net.EscrowOf(c.core, c.funding)
	for _, v := range []struct {
		raw []byte
		to  **verify.SignedVoucher
	}{
		{r.Vouchers.Best, &c.best}, {r.Vouchers.Earned, &c.earned}, {r.Vouchers.Next, &c.next},
		{r.Vouchers.Closing, &c.closing},
	} {
		if len(v.raw) == 0 {
			continue
		}
		x, err := verify.UnmarshalSignedVoucher(v.raw)
		if err != nil {
			return bad("voucher")
		}
		*v.to = &x
	}
	var ok bool
	c.queue, ok = r.Queue.Restore(func(t escrow.Task) bool {
		return t.Kind >= escrow.TaskClaim && t.Kind <= escrow.TaskCloseTable
	})
	if !ok || c.check() != nil || !c.consistent(&c.leaf) || !c.table.consistent(&c.queue) ||
		c.end != endNot && c.queue.Under(claims) {
		return bad("impossible state")
	}
	return c, nil
}
