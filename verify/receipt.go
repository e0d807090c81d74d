package verify

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Sizes of the receipt layouts, in bytes.
const (
	ReceiptCoreSize = 256
	ReceiptSize     = ReceiptCoreSize + 2*sign.SignatureSize
)

// ReceiptVersion is the version of the receipt written and read here.
const ReceiptVersion = 1

// ReceiptFinal marks the last receipt of a lease. With it the provider waives any voucher amount beyond its cumulative
// amount, and the buyer accepts the output.
const ReceiptFinal uint8 = 1 << 0

// ReceiptCore is one metering interval as provider and buyer sign it, each over Domain.Preimage(TagReceipt, layout).
// Layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  flags: bit 0 final
//	     2     2  units
//	     4     4  rank epoch
//	     8    32  lease id
//	    40     8  seq, from 1
//	    48    32  prev: hash of the core before; of the first, the lease id
//	    80    32  provider
//	   112    32  buyer
//	   144    32  units root
//	   176     8  supervision epoch of the job
//	   184     8  from slot
//	   192     8  to slot, exclusive
//	   200     8  CPU milliseconds used in the interval
//	   208     8  amount, base units, for the interval
//	   216     8  cumulative, base units since the lease began
//	   224    32  output: digest of the result in a final receipt, else free for checkpoints, zero if none
//
// Amounts: with o(s) = ⌊rate·s/10⁶⌋ and s counted from the first receipt's from slot, cumulative = o(to), amount =
// o(to) − o(from). Rounding is of the sum, so it never adds up.
type ReceiptCore struct {
	Version     uint8          `json:"version"`
	Flags       uint8          `json:"flags"`
	Units       uint16         `json:"units"`
	RankEpoch   uint32         `json:"rank_epoch"`
	Lease       market.LeaseID `json:"lease"`
	Seq         uint64         `json:"seq"`
	Prev        sign.Hash      `json:"prev"`
	Provider    sign.Key       `json:"provider"`
	Buyer       sign.Key       `json:"buyer"`
	UnitsRoot   sign.Hash      `json:"units_root"`
	Supervision uint64         `json:"supervision"`
	From        market.Slot    `json:"from"`
	To          market.Slot    `json:"to"`
	CPUMillis   uint64         `json:"cpu_millis"`
	Amount      market.Amount  `json:"amount"`
	Cumulative  market.Amount  `json:"cumulative"`
	Output      sign.Hash      `json:"output"`
}

// Final reports whether this receipt ends its lease.
func (c ReceiptCore) Final() bool { return c.Flags&ReceiptFinal != 0 }

// Marshal returns the layout.
func (c ReceiptCore) Marshal() [ReceiptCoreSize]byte {
	var b [ReceiptCoreSize]byte
	le := binary.LittleEndian
	b[0], b[1] = c.Version, c.Flags
	le.PutUint16(b[2:], c.Units)
	le.PutUint32(b[4:], c.RankEpoch)
	copy(b[8:], c.Lease[:])
	le.PutUint64(b[40:], c.Seq)
	copy(b[48:], c.Prev[:])
	copy(b[80:], c.Provider[:])
	copy(b[112:], c.Buyer[:])
	copy(b[144:], c.UnitsRoot[:])
	le.PutUint64(b[176:], c.Supervision)
	le.PutUint64(b[184:], uint64(c.From))
	le.PutUint64(b[192:], uint64(c.To))
	le.PutUint64(b[200:], c.CPUMillis)
	le.PutUint64(b[208:], uint64(c.Amount))
	le.PutUint64(b[216:], uint64(c.Cumulative))
	copy(b[224:], c.Output[:])
	return b
}

// UnmarshalReceiptCore decodes the layout without trailing bytes.
func UnmarshalReceiptCore(b []byte) (ReceiptCore, error) {
	switch {
	case len(b) != ReceiptCoreSize:
		return ReceiptCore{}, malformed("receipt core", "%d bytes, want %d", len(b), ReceiptCoreSize)
	case b[0] != ReceiptVersion:
		return ReceiptCore{}, malformed("receipt core", "version %d, this peer reads %d", b[0], ReceiptVersion)
	case b[1]&^ReceiptFinal != 0:
		return ReceiptCore{}, malformed("receipt core", "unknown flags %#x", b[1])
	}
	le := binary.LittleEndian
	return ReceiptCore{
		Version: b[0], Flags: b[1], Units: le.Uint16(b[2:]), RankEpoch: le.Uint32(b[4:]),
		Lease: market.LeaseID(b[8:40]), Seq: le.Uint64(b[40:]), Prev: sign.Hash(b[48:80]),
		Provider: sign.Key(b[80:112]), Buyer: sign.Key(b[112:144]), UnitsRoot: sign.Hash(b[144:176]),
		Supervision: le.Uint64(b[176:]), From: market.Slot(le.Uint64(b[184:])), To: market.Slot(le.Uint64(b[192:])),
		CPUMillis: le.Uint64(b[200:]), Amount: market.Amount(le.Uint64(b[208:])),
		Cumulative: market.Amount(le.Uint64(b[216:])), Output: sign.Hash(b[224:256]),
	}, nil
}

// Hash is SHA-256 of "starling/receipt/v1" ‖ layout. The next receipt carries it as prev.
func (c ReceiptCore) Hash() sign.Hash {
	b := c.Marshal()
	return hashReceipt(&b)
}

func hashReceipt(b *[ReceiptCoreSize]byte) sign.Hash {
	return sign.Sum([]byte("starling/receipt/v1"), b[:])
}

// Sign signs the core as provider or buyer.
func (c ReceiptCore) Sign(d sign.Domain, s sign.Signer) (sign.Signature, error) {
	b := c.Marshal()
	sig, err := s.Sign(d.Preimage(sign.TagReceipt, b[:]))
	if err != nil {
		return sig, fmt.Errorf("signing receipt: %w", err)
	}
	return sig, nil
}

// VerifyBy checks that key signed the core. market.ErrBadSignature otherwise.
func (c ReceiptCore) VerifyBy(d sign.Domain, key sign.Key, sig sign.Signature) error {
	b := c.Marshal()
	if err := sign.Verify(key, d.Preimage(sign.TagReceipt, b[:]), sig); err != nil {
		return fmt.Errorf("%w: receipt: %w", market.ErrBadSignature, err)
	}
	return nil
}

// Receipt is a core that both have signed. Layout: core[256] ‖ provider signature[64] ‖ buyer signature[64]. A batch of
// receipts is anchored as the market/merkle root over their SignedHash.
type Receipt struct {
	ReceiptCore
	ProviderSig sign.Signature `json:"provider_sig"`
	BuyerSig    sign.Signature `json:"buyer_sig"`
}

// Marshal returns the layout.
func (r Receipt) Marshal() []byte {
	core := r.ReceiptCore.Marshal()
	out := make([]byte, 0, ReceiptSize)
	out = append(out, core[:]...)
	out = append(out, r.ProviderSig[:]...)
	return append(out, r.BuyerSig[:]...)
}

// SignedHash names the receipt with both its signatures: SHA-256 of "starling/signed-receipt/v1" ‖ layout.
func (r Receipt) SignedHash() sign.Hash {
	return sign.Sum([]byte("starling/signed-receipt/v1"), r.Marshal())
}

// UnmarshalReceipt decodes the layout without trailing bytes. It verifies no signature; CheckChain and CheckSignatures
// do.
func UnmarshalReceipt(b []byte) (Receipt, error) {
	if len(b) != ReceiptSize {
		return Receipt{}, malformed("receipt", "%d bytes, want %d", len(b), ReceiptSize)
	}
	core, err := UnmarshalReceiptCore(b[:ReceiptCoreSize])
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{
		ReceiptCore: core,
		ProviderSig: sign.Signature(b[ReceiptCoreSize : ReceiptCoreSize+64]),
		BuyerSig:    sign.Signature(b[ReceiptCoreSize+64:]),
	}, nil
}

// CheckSignatures verifies both signatures by the keys that the core names: rules provider-signature, buyer-signature.
func (r Receipt) CheckSignatures(d sign.Domain) error {
	b := r.ReceiptCore.Marshal()
	if err := r.checkSignatures(d.Preimage(sign.TagReceipt, b[:]), sign.NewVerifier(r.Provider),
		sign.NewVerifier(r.Buyer)); err != nil {
		return err
	}
	return nil
}

// checkSignatures takes verifiers of the keys that the core names.
func (r Receipt) checkSignatures(preimage []byte, provider, buyer *sign.Verifier) *RuleError {
	if err := provider.Verify(preimage, r.ProviderSig); err != nil {
		return &RuleError{Rule: RuleProvider, Detail: err.Error(), Err: err}
	}
	if err := buyer.Verify(preimage, r.BuyerSig); err != nil {
		return &RuleError{Rule: RuleBuyer, Detail: err.Error(), Err: err}
	}
	return nil
}
