package escrow

import (
	"encoding/binary"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Append adds the journal form, little-endian. Transactions that are being signed are left out: they do not exist yet.
//
//	queue = next number u32 ‖ n u8 ‖ n × tx
//	tx    = number u32 ‖ kind u8 ‖ tranche u16 ‖ leaf u16 ‖ amount u64 ‖ state u8 ‖ last valid u64 ‖ since u64
//	        ‖ n u8 ‖ txid[n] ‖ n u16 ‖ raw[n]
func (q Queue) Append(b []byte) []byte {
	le := binary.LittleEndian
	signed := slices.DeleteFunc(slices.Clone(q.txs), func(x QueuedTx) bool { return !x.signed() })
	b = append(le.AppendUint32(b, q.number), byte(len(signed)))
	for _, x := range signed {
		b = append(le.AppendUint32(b, x.No), byte(x.Task.Kind))
		b = le.AppendUint16(b, x.Task.Tranche)
		b = le.AppendUint16(b, x.Task.Leaf)
		b = le.AppendUint64(b, uint64(x.Task.Amount))
		b = append(b, byte(x.State))
		b = le.AppendUint64(b, x.Prepared.LastValid)
		b = le.AppendUint64(b, uint64(x.Prepared.Since))
		b = append(append(b, byte(len(x.Prepared.ID))), x.Prepared.ID...)
		b = append(le.AppendUint16(b, uint16(len(x.Prepared.Raw))), x.Prepared.Raw...)
	}
	return b
}

// ReadQueue reads the journal form. It fails for states that a queue cannot be in, and for tasks that are not the
// machine's.
func ReadQueue(r *fields.Reader, is func(Task) bool) Queue {
	q := Queue{number: r.U32()}
	for range r.Count(int(r.U8()), MaxTxs) {
		x := QueuedTx{No: r.U32(), Task: Task{Kind: TaskKind(r.U8()), Tranche: r.U16(), Leaf: r.U16(),
			Amount: market.Amount(r.U64())}, State: chain.TxState(r.U8())}
		x.Prepared = chain.Prepared{LastValid: r.U64(), Since: market.Slot(r.U64())}
		x.Prepared.ID = chain.TxID(r.Bytes(int(r.U8()), maxTxID))
		x.Prepared.Raw = slices.Clone(r.Bytes(int(r.U16()), chain.MaxRaw))
		r.Fail(!is(x.Task) || x.State.Final() || x.State > chain.Expired || !x.signed() || len(x.Prepared.Raw) == 0 ||
			x.No >= q.number && q.number != 0 || slices.ContainsFunc(q.txs, func(y QueuedTx) bool {
			return y.Task == x.Task || y.No == x.No
		}))
		q.txs = append(q.txs, x)
	}
	return q
}

// ReadKeys reads the form of market.KeySet.Marshal. It fails for a set that market refuses.
func ReadKeys(r *fields.Reader) market.KeySet {
	head := r.Take(2)
	raw := append(slices.Clone(head), r.Take(sign.KeySize*r.Count(int(head[1]), market.MaxVoucherKeys))...)
	ks, err := market.UnmarshalKeySet(raw)
	r.Fail(err != nil)
	return ks
}
