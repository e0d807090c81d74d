package guardian

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian/rules"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Lease is a lease of a job, as a supervisor hands it to the guardians with each request for a voucher's signature.
type Lease struct {
	Signed   market.Lease `json:"lease"`
	Escrow   sign.Key     `json:"escrow,omitzero"`
	Record   []byte       `json:"record"` // the supervisor's data to resume the lease
	Payer    []byte       `json:"payer"`  // meter.Payer.Marshal
	MilliCPU uint32       `json:"milli_cpu,omitempty"`
}

// ID names the lease.
func (l Lease) ID() market.LeaseID { return l.Signed.Core.ID() }

// Size is the bytes of a lease that count against a job's bound.
func (l Lease) Size() int { return len(l.Record) + len(l.Payer) }

func (l Lease) hash() sign.Hash {
	tail := binary.LittleEndian.AppendUint32(nil, l.MilliCPU)
	tail = binary.LittleEndian.AppendUint64(tail, uint64(len(l.Record)))
	return sign.Sum([]byte("starling/ward/lease/v1"), l.Signed.Marshal(), l.Escrow[:], tail, l.Record, l.Payer)
}

// SignedLease is a lease with the word of the supervisor that handed it in, and its payer.
type SignedLease struct {
	Lease
	Word
	payer meter.Payer
}

// SignLease signs a lease for the guardians, as the supervisor by under the epoch of grant. Its payer is that of an
// earlier epoch, if any.
func (c Charter) SignLease(
	g market.Genesis, by sign.Signer, epoch uint64, grant []byte, l Lease,
) (SignedLease, error) {
	payer, err := meter.RestorePayer(c.terms(g, l, 0), l.Payer)
	if err != nil {
		return SignedLease{}, err
	}
	w, err := c.word(g.Domain(), by, epoch, grant, wordLease, l.hash())
	return SignedLease{l, w, payer}, err
}

// PB returns the message.
func (k SignedLease) PB() *nodepb.GuardedLease {
	out := &nodepb.GuardedLease{
		Lease: k.Signed.Marshal(), Record: k.Record, Payer: k.Lease.Payer, MilliCpu: k.MilliCPU, Word: k.Word.pb(),
	}
	if !k.Escrow.IsZero() {
		out.Escrow = k.Escrow[:]
	}
	return out
}

// ParseLease parses the message. Its result has no payer before CheckLease.
func ParseLease(pb *nodepb.GuardedLease) (SignedLease, error) {
	if len(pb.GetRecord()) > MaxRecord {
		return SignedLease{}, fmt.Errorf("a record of %d bytes, at most %d", len(pb.GetRecord()), MaxRecord)
	}
	signed, err := market.UnmarshalLease(pb.GetLease())
	if err != nil {
		return SignedLease{}, err
	}
	word, err := wordOf(pb.Word)
	if err != nil {
		return SignedLease{}, err
	}
	l := Lease{Signed: signed, Record: pb.Record, Payer: pb.Payer, MilliCPU: pb.MilliCpu}
	switch len(pb.Escrow) {
	case 0:
	case sign.KeySize:
		if l.Escrow = sign.Key(pb.Escrow); l.Escrow.IsZero() {
			return SignedLease{}, fmt.Errorf("an escrow that is no address")
		}
	default:
		return SignedLease{}, fmt.Errorf("an escrow of %d bytes", len(pb.Escrow))
	}
	return SignedLease{Lease: l, Word: word}, nil
}

// VerifyLease checks that the supervisor of an epoch that was granted handed the lease in.
func (c Charter) VerifyLease(d sign.Domain, k SignedLease) error {
	return c.checkWord(d, k.Word, wordLease, k.Lease.hash())
}

// ReloadLease restores a lease from this peer's own records.
func (c Charter) ReloadLease(g market.Genesis, l Lease, w Word) (SignedLease, error) {
	payer, err := meter.RestorePayer(c.terms(g, l, w.Epoch), l.Payer)
	return SignedLease{l, w, payer}, err
}

// CheckLease checks that a lease is of its job: signed by the job's key and its provider, for these terms, paid by
// these guardians, and with a payer state that the machine can reach. known is the earlier record of the lease, nil if
// there is none. It returns the lease with its payer.
func (c Charter) CheckLease(g market.Genesis, k SignedLease, known *SignedLease) (SignedLease, error) {
	core, d := k.Signed.Core, g.Domain()
	id := core.ID().Short()
	switch {
	case core.Buyer != c.Buyer || core.Terms != c.Job || core.VoucherKeys != c.Keys.Hash():
		return SignedLease{}, Refuse(CodeVoucher, "lease %s is of another job", id)
	case known != nil && known.Signed == k.Signed && (known.Escrow != k.Escrow || known.MilliCPU != k.MilliCPU):
		return SignedLease{}, Refuse(CodeVoucher, "lease %s is paid from another escrow than it was", id)
	case known == nil || known.Signed != k.Signed:
		if err := k.Signed.Check(d); err != nil {
			return SignedLease{}, Refuse(CodeVoucher, "lease %s: %v", id, err)
		}
	}
	k, err := c.ReloadLease(g, k.Lease, k.Word)
	if err != nil {
		return SignedLease{}, Refuse(CodeVoucher, "lease %s: %v", id, err)
	}
	payer := k.payer
	checked := known != nil && known.payer.Last() == payer.Last() && known.payer.LastSig() == payer.LastSig()
	if payer.Last().Seq > 0 && !checked {
		if err := rules.Last(d, core, payer); err != nil {
			return SignedLease{}, Refuse(CodeVoucher, "%v", err)
		}
	}
	return k, nil
}

// CheckVoucher checks that a lease's voucher may be signed in slot now.
func (c Charter) CheckVoucher(g market.Genesis, now market.Slot, k SignedLease) (verify.Voucher, error) {
	v := k.payer.Voucher()
	if v == nil {
		return verify.Voucher{}, malformed("lease %s has no voucher", k.ID().Short())
	}
	if err := rules.Voucher(c.terms(g, k.Lease, k.Epoch), now, k.payer); err != nil {
		return *v, Refuse(CodeVoucher, "%v", err)
	}
	return *v, nil
}

func (c Charter) terms(g market.Genesis, l Lease, epoch uint64) meter.Terms {
	return metering.Terms(g, l.Signed.Core, c.Keys, l.Escrow, market.Resources{MilliCPU: l.MilliCPU}, epoch)
}

// Last is the newest receipt that the payer holds; its Seq is 0 if there is none.
func (k SignedLease) Last() verify.ReceiptCore { return k.payer.Last() }

// Receipt completes the newest receipt with the signature of the job's key, which is always the same.
func (k SignedLease) Receipt(d sign.Domain, job sign.Private) (verify.Receipt, error) {
	last := k.payer.Last()
	sig, err := last.Sign(d, job)
	return verify.Receipt{ReceiptCore: last, ProviderSig: k.payer.LastSig(), BuyerSig: sig}, err
}

// Newer reports whether k replaces o: the later receipt, which its provider signed; then the word of the later
// supervisor; then the later voucher, the further state.
func (k SignedLease) Newer(o *SignedLease) bool {
	if o == nil {
		return true
	}
	states := []meter.PayerState{meter.PayerIdle, meter.PayerPaying, meter.PayerStopping, meter.PayerSettled}
	seq := func(k *SignedLease) uint64 {
		if v := k.payer.Voucher(); v != nil {
			return v.Seq
		}
		return 0
	}
	for _, at := range [][2]uint64{
		{k.payer.Last().Seq, o.payer.Last().Seq}, {k.Epoch, o.Epoch}, {seq(&k), seq(o)},
		{uint64(slices.Index(states, k.payer.State())), uint64(slices.Index(states, o.payer.State()))},
	} {
		if at[0] != at[1] {
			return at[0] > at[1]
		}
	}
	return false
}

// Follows checks that k may replace o: nothing decreases, and no voucher has two forms.
func (k SignedLease) Follows(o *SignedLease) error {
	if o == nil {
		return nil
	}
	id := k.ID().Short()
	v, before := k.payer.Voucher(), o.payer.Voucher()
	switch {
	case before.Final() && *v != *before:
		return Refuse(CodeVoucher, "lease %s has its final voucher", id)
	case o.Newer(&k):
		return Refuse(CodeVoucher, "lease %s stands at receipt %d and voucher %d", id, o.payer.Last().Seq, before.Seq)
	case v.Seq == before.Seq && *v != *before && v.Supervision <= before.Supervision:
		return Refuse(CodeVoucher, "voucher %d of lease %s was another one", v.Seq, id)
	}
	return nil
}

// Starved reports whether a lease's voucher is overdue: for silent slots after the payer's deadline, the supervisor
// neither paid nor reported a stop.
func (k SignedLease) Starved(now market.Slot, silent uint64) bool {
	return k.payer.State() == meter.PayerPaying && now > rules.After(k.payer.Wake(), silent)
}
