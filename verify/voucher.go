package verify

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// VoucherSize is the size of the voucher layout, in bytes.
const VoucherSize = 104

// MaxSignedVoucher is the largest signed voucher: 16 of 16 keys.
const MaxSignedVoucher = VoucherSize + 2 + market.MaxVoucherKeys*sign.KeySize + 1 + market.MaxVoucherKeys*indexedSize

// VoucherVersion is the version of the voucher written and read here.
const VoucherVersion = 1

// VoucherFinal marks the voucher that closes a lease, issued for the cumulative amount of its final receipt. It
// replaces every earlier one, also one for more: up to an interval is prepaid. On chain, the provider's signature of
// the final receipt waives the rest, so earlier vouchers have no effect.
const VoucherFinal uint8 = 1 << 0

// Voucher is the payer's word for a cumulative amount. Layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  flags: bit 0 final
//	     2     6  reserved: 0
//	     8    32  lease id
//	    40    32  escrow address, zero on a free network
//	    72     8  seq, from 1
//	    80     8  cumulative, base units since the lease began
//	    88     8  horizon: the slot until which the lease is paid, exclusive
//	    96     8  supervision epoch of the job
type Voucher struct {
	Version     uint8          `json:"version"`
	Flags       uint8          `json:"flags"`
	Lease       market.LeaseID `json:"lease"`
	Escrow      sign.Key       `json:"escrow"`
	Seq         uint64         `json:"seq"`
	Cumulative  market.Amount  `json:"cumulative"`
	Horizon     market.Slot    `json:"horizon"`
	Supervision uint64         `json:"supervision"`
}

// Final reports whether this voucher closes the lease.
func (v Voucher) Final() bool { return v.Flags&VoucherFinal != 0 }

// Marshal returns the layout.
func (v Voucher) Marshal() [VoucherSize]byte {
	var b [VoucherSize]byte
	b[0], b[1] = v.Version, v.Flags
	copy(b[8:], v.Lease[:])
	copy(b[40:], v.Escrow[:])
	binary.LittleEndian.PutUint64(b[72:], v.Seq)
	binary.LittleEndian.PutUint64(b[80:], uint64(v.Cumulative))
	binary.LittleEndian.PutUint64(b[88:], uint64(v.Horizon))
	binary.LittleEndian.PutUint64(b[96:], v.Supervision)
	return b
}

// UnmarshalVoucher decodes the layout without trailing bytes.
func UnmarshalVoucher(b []byte) (Voucher, error) {
	if len(b) != VoucherSize {
		return Voucher{}, malformed("voucher", "%d bytes, want %d", len(b), VoucherSize)
	}
	if b[0] != VoucherVersion {
		return Voucher{}, malformed("voucher", "version %d, this peer reads %d", b[0], VoucherVersion)
	}
	if b[1]&^VoucherFinal != 0 || !zero(b[2:8]) {
		return Voucher{}, malformed("voucher", "unknown flags or reserved bytes are set")
	}
	return Voucher{
		Version: b[0], Flags: b[1], Lease: market.LeaseID(b[8:40]), Escrow: sign.Key(b[40:72]),
		Seq:        binary.LittleEndian.Uint64(b[72:]),
		Cumulative: market.Amount(binary.LittleEndian.Uint64(b[80:])),
		Horizon:    market.Slot(binary.LittleEndian.Uint64(b[88:])), Supervision: binary.LittleEndian.Uint64(b[96:]),
	}, nil
}

// SignedVoucher is a voucher and the signatures of the lease's voucher keys, each over Domain.Preimage(TagVoucher,
// voucher layout). Layout: voucher[104] ‖ Signatures.
type SignedVoucher struct {
	Voucher
	Signatures
}

// SignVoucher signs v with the signers' keys that are in set. The result may be below the threshold; With adds more.
func SignVoucher(d sign.Domain, v Voucher, set market.KeySet, signers ...sign.Signer) (SignedVoucher, error) {
	out := SignedVoucher{Voucher: v, Signatures: Signatures{Set: set}}
	var err error
	for _, s := range signers {
		if out, err = out.With(d, s); err != nil {
			return out, err
		}
	}
	return out, nil
}

// With adds the signature of one more key of the set.
func (s SignedVoucher) With(d sign.Domain, by sign.Signer) (SignedVoucher, error) {
	b := s.Voucher.Marshal()
	g, err := s.signBy(d, sign.TagVoucher, b[:], by)
	if err != nil {
		return s, fmt.Errorf("signing voucher: %w", err)
	}
	s.Signatures = g
	return s, nil
}

// Check verifies that the voucher is valid for the lease: rules domain, lease, seq, cap, horizon, key-set, threshold,
// signature. The lease core must be checked before. The earned amount depends on receipts and time.
func (s SignedVoucher) Check(d sign.Domain, core market.LeaseCore) error {
	switch v := s.Voucher; {
	case v.Version != VoucherVersion || v.Flags&^VoucherFinal != 0:
		return malformed("voucher", "version %d, flags %#x", v.Version, v.Flags)
	case v.Escrow.IsZero() != d.Program.IsZero():
		return broken(RuleDomain, "escrow %s with program %s", v.Escrow, d.Program)
	case v.Lease != core.ID():
		return broken(RuleLease, "for lease %s, not %s", v.Lease.Short(), core.ID().Short())
	case v.Seq == 0:
		return broken(RuleSeq, "numbers begin at 1")
	case v.Cumulative > core.Cap:
		return broken(RuleCap, "%d is over the cap of %d", v.Cumulative, core.Cap)
	case v.Horizon > core.End:
		return broken(RuleHorizon, "paid until slot %d, the lease ends at %d", v.Horizon, core.End)
	}
	b := s.Voucher.Marshal()
	return s.check(d, sign.TagVoucher, b[:], core.VoucherKeys)
}

// Marshal returns the wire form. The key set must be valid.
func (s SignedVoucher) Marshal() []byte {
	b := s.Voucher.Marshal()
	return s.appendTo(append(make([]byte, 0, MaxSignedVoucher), b[:]...))
}

// UnmarshalSignedVoucher decodes the wire form without trailing bytes. It verifies no signature; Check does.
func UnmarshalSignedVoucher(b []byte) (SignedVoucher, error) {
	if len(b) <= VoucherSize || len(b) > MaxSignedVoucher {
		return SignedVoucher{}, malformed("signed voucher", "%d bytes", len(b))
	}
	v, err := UnmarshalVoucher(b[:VoucherSize])
	if err != nil {
		return SignedVoucher{}, err
	}
	g, err := unmarshalSignatures(b[VoucherSize:])
	if err != nil {
		return SignedVoucher{}, err
	}
	return SignedVoucher{Voucher: v, Signatures: g}, nil
}

func zero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
