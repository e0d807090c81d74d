package chaintest

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// transfer is a transaction of this chain:
//
//	owner[32] ‖ last valid u64 ‖ since u64 ‖ n u16 ‖ memo[n] ‖ n u8 ‖ n × (to[32] ‖ amount u64 ‖ lease[32])
//
// little-endian. It is not signed: whoever has the Chain may spend for everybody.
type transfer struct {
	owner     sign.Key
	lastValid uint64
	since     market.Slot
	memo      []byte
	payouts   []chain.Payout
}

const (
	transferHead  = 32 + 8 + 8 + 2
	transferEntry = 32 + 8 + 32
)

func (t transfer) marshal() []byte {
	le := binary.LittleEndian
	b := append([]byte(nil), t.owner[:]...)
	b = le.AppendUint64(b, t.lastValid)
	b = le.AppendUint64(b, uint64(t.since))
	b = append(le.AppendUint16(b, uint16(len(t.memo))), t.memo...)
	b = append(b, byte(len(t.payouts)))
	for _, p := range t.payouts {
		b = append(b, p.To[:]...)
		b = le.AppendUint64(b, uint64(p.Amount))
		b = append(b, p.Lease[:]...)
	}
	return b
}

func unmarshalTransfer(b []byte) (transfer, error) {
	le := binary.LittleEndian
	bad := fmt.Errorf("chaintest: transaction of %d bytes: %w", len(b), chain.ErrMalformed)
	if len(b) < transferHead+1 {
		return transfer{}, bad
	}
	t := transfer{owner: sign.Key(b[:32]), lastValid: le.Uint64(b[32:]), since: market.Slot(le.Uint64(b[40:]))}
	memo := int(le.Uint16(b[48:]))
	if memo > chain.MaxMemo || len(b) < transferHead+memo+1 {
		return transfer{}, bad
	}
	t.memo = b[transferHead : transferHead+memo]
	n, rest := int(b[transferHead+memo]), b[transferHead+memo+1:]
	if len(rest) != n*transferEntry {
		return transfer{}, bad
	}
	for ; len(rest) > 0; rest = rest[transferEntry:] {
		t.payouts = append(t.payouts, chain.Payout{To: sign.Key(rest[:32]), Amount: market.Amount(le.Uint64(rest[32:])),
			Lease: market.LeaseID(rest[40:transferEntry])})
	}
	return t, nil
}
