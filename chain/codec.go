package chain

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// The journal form of a Settlement, little-endian. What is being prepared is left out: nothing of it was signed.
//
//	settlement = version u8 (1) ‖ id[32] ‖ next number u32 ‖ root[32] ‖ receipts u64
//	             ‖ n u16 ‖ n × account ‖ n u16 ‖ n × batch in flight ‖ n u16 ‖ n × settled batch
//	account    = lease[32] ‖ to[32] ‖ owed u64 ‖ paid u64 ‖ fails u8
//	batch      = number u32 ‖ state u8 ‖ slot u64 ‖ root[32] ‖ receipts u64 ‖ last valid u64 ‖ since u64
//	             ‖ n u8 ‖ txid[n] ‖ n u16 ‖ raw[n] ‖ n u16 ‖ error[n] ‖ n u8 ‖ n × (account number u16 ‖ amount u64)
const settlementVersion = 1

// maxTxID bounds a transaction id: 64 bytes in base58.
const maxTxID = 88

// Marshal gives the journal form. A settlement has one.
func (s Settlement) Marshal() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, 128+96*len(s.accounts)+1024*len(s.batches)+256*len(s.history))
	b = append(b, settlementVersion)
	b = append(b, s.id[:]...)
	b = le.AppendUint32(b, s.number)
	b = append(b, s.root[:]...)
	b = le.AppendUint64(b, s.receipts)
	b = le.AppendUint16(b, uint16(len(s.accounts)))
	index := make(map[market.LeaseID]uint16, len(s.accounts))
	for i, a := range s.accounts {
		index[a.Lease] = uint16(i)
		b = append(b, a.Lease[:]...)
		b = append(b, a.To[:]...)
		b = le.AppendUint64(b, uint64(a.Owed))
		b = le.AppendUint64(b, uint64(a.Paid))
		b = append(b, a.Fails)
	}
	signed := slices.DeleteFunc(slices.Clone(s.batches), func(b Batch) bool { return b.State == Preparing })
	for _, list := range [][]Batch{signed, s.history} {
		b = le.AppendUint16(b, uint16(len(list)))
		for i := range list {
			b = appendBatch(b, &list[i], index)
		}
	}
	return b
}

func appendBatch(b []byte, x *Batch, index map[market.LeaseID]uint16) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, x.No)
	b = append(b, byte(x.State))
	b = le.AppendUint64(b, uint64(x.Slot))
	b = append(b, x.Anchor.Root[:]...)
	b = le.AppendUint64(b, x.Anchor.Count)
	b = le.AppendUint64(b, x.Tx.LastValid)
	b = le.AppendUint64(b, uint64(x.Tx.Since))
	b = append(append(b, byte(len(x.Tx.ID))), x.Tx.ID...)
	b = append(le.AppendUint16(b, uint16(len(x.Tx.Raw))), x.Tx.Raw...)
	b = append(le.AppendUint16(b, uint16(len(x.Err))), x.Err...)
	b = append(b, byte(len(x.Payouts)))
	for _, p := range x.Payouts {
		b = le.AppendUint16(b, index[p.Lease])
		b = le.AppendUint64(b, uint64(p.Amount))
	}
	return b
}

// Restore reads the journal form. It refuses, with ErrMalformed, any state that Step could not have reached: an amount
// in flight that is not owed, a payout to nobody, a number used twice. Send Ticked next.
func Restore(b []byte, p Params) (Settlement, error) {
	r := reader{rest: b}
	s := Settlement{params: p}
	version := r.u8()
	s.id = sign.Hash(r.take(32))
	s.number = r.u32()
	s.root = sign.Hash(r.take(32))
	s.receipts = r.u64()
	for range r.count(MaxAccounts) {
		s.accounts = append(s.accounts, Account{Lease: market.LeaseID(r.take(32)), To: sign.Key(r.take(32)),
			Owed: market.Amount(r.u64()), Paid: market.Amount(r.u64()), Fails: r.u8()})
	}
	for _, list := range []*[]Batch{&s.batches, &s.history} {
		for range r.count(MaxBatches) {
			*list = append(*list, r.batch(&s))
		}
	}
	if r.bad || len(r.rest) > 0 || version != settlementVersion {
		return Settlement{}, fmt.Errorf("settlement of %d bytes, version %d: %w", len(b), version, ErrMalformed)
	}
	if err := s.check(); err != nil {
		return Settlement{}, err
	}
	s.told = s.Done()
	return s, nil
}

func (s *Settlement) check() error {
	bad := func(what string) error { return fmt.Errorf("settlement: %s: %w", what, ErrMalformed) }
	if !sumFits(s.accounts) {
		return bad("sum owed")
	}
	free := make(map[market.LeaseID]market.Amount, len(s.accounts))
	for _, a := range s.accounts {
		if _, twice := free[a.Lease]; twice || a.To.IsZero() || a.Paid > a.Owed {
			return bad("account")
		}
		free[a.Lease] = a.Owed - a.Paid
	}
	inFlight := map[uint32]bool{}
	for i, b := range s.batches {
		if b.State < BatchPrepared || b.State > BatchConfirmed || b.No >= s.number && s.number != 0 ||
			i > 0 && s.batches[i-1].No >= b.No || checkPrepared(b.Tx, len(b.Payouts)) != nil {
			return bad("batch in flight")
		}
		inFlight[b.No] = true
		for _, p := range b.Payouts {
			if p.Amount == 0 || p.Amount > free[p.Lease] {
				return bad("amount in flight")
			}
			free[p.Lease] -= p.Amount
		}
	}
	settled := map[uint32]bool{}
	for _, b := range s.history {
		if b.State != BatchSettled || inFlight[b.No] || settled[b.No] || b.No >= s.number && s.number != 0 ||
			b.Tx.ID == "" || len(b.Tx.Raw) > 0 || len(b.Payouts) == 0 {
			return bad("settled batch")
		}
		settled[b.No] = true
	}
	return nil
}

// reader takes fields off the front. After the first that is missing, all are zero and bad is set.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if r.bad || len(r.rest) < n {
		r.bad = true
		return make([]byte, n)
	}
	out := r.rest[:n:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// count reads how many follow. More than the limit is malformed, and none follow.
func (r *reader) count(limit int) int {
	if n := int(r.u16()); n <= limit && !r.bad {
		return n
	}
	r.bad = true
	return 0
}

func (r *reader) batch(s *Settlement) Batch {
	b := Batch{No: r.u32(), State: BatchState(r.u8()), Slot: market.Slot(r.u64())}
	b.Anchor = Anchor{Root: sign.Hash(r.take(32)), Count: r.u64(), Ref: RefOf(s.id, b.No)}
	b.Tx = Prepared{LastValid: r.u64(), Since: market.Slot(r.u64())}
	id := r.take(min(int(r.u8()), maxTxID+1))
	raw := r.take(min(int(r.u16()), MaxRaw+1))
	text := r.take(min(int(r.u16()), MaxReason+1))
	n := int(r.u8())
	if len(id) > maxTxID || len(raw) > MaxRaw || len(text) > MaxReason || n > maxAsk {
		r.bad = true
		return b
	}
	b.Tx.ID, b.Err = TxID(id), string(text)
	if len(raw) > 0 {
		b.Tx.Raw = slices.Clone(raw)
	}
	b.Tx.Count = n
	for range n {
		i, amount := int(r.u16()), market.Amount(r.u64())
		if i >= len(s.accounts) {
			r.bad = true
			return b
		}
		a := s.accounts[i]
		b.Payouts = append(b.Payouts, Payout{To: a.To, Amount: amount, Lease: a.Lease})
	}
	return b
}
