package market

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market/sign"
)

// Sizes of the fixed layouts, in bytes.
const (
	LeaseCoreSize = 296
	LeaseSize     = LeaseCoreSize + 2*sign.SignatureSize
)

// LeaseVersion is the version of the lease core written and read here.
const LeaseVersion = 1

// LeaseSuccessor marks a lease that renews another one of the same units, between the same two peers. It starts in the
// slot in which its predecessor ends, and its execution continues.
const LeaseSuccessor uint8 = 1 << 1

// MaxLeaseSlots bounds how long a lease may run.
const MaxLeaseSlots = 1 << 32

// LeaseCore is the part of a lease that buyer and provider sign, each over Domain.Preimage(TagLease, layout). Layout,
// little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  flags: bit 1 successor, the others 0
//	     2     2  units, 1 to 1024
//	     4     4  rank
//	     8     4  rank epoch: of two leases for one rank of one job, the higher runs
//	    12     4  reserved: 0
//	    16    32  order id
//	    48    32  buyer
//	    80    32  provider
//	   112    32  payout: owner wallet that is paid, nothing else can be
//	   144    32  units root
//	   176    32  terms: hash of the workload's terms
//	   208    32  voucher keys: hash of the KeySet
//	   240     8  rate, millionths of a base unit per slot
//	   248     8  cap, base units: the most this lease can cost
//	   256     8  start slot, nominal
//	   264     8  activate-before slot: not funded up to and including it, the lease is void; of a successor its start
//	   272     8  end slot, exclusive
//	   280    16  nonce; of a successor the first 16 bytes of its predecessor's lease id;
//	              of a cluster's member OverlayNonce
type LeaseCore struct {
	Version        uint8     `json:"version"`
	Flags          uint8     `json:"flags"`
	Units          uint16    `json:"units"`
	Rank           uint32    `json:"rank"`
	RankEpoch      uint32    `json:"rank_epoch"`
	Order          OrderID   `json:"order"`
	Buyer          sign.Key  `json:"buyer"`
	Provider       sign.Key  `json:"provider"`
	Payout         sign.Key  `json:"payout"`
	UnitsRoot      sign.Hash `json:"units_root"`
	Terms          sign.Hash `json:"terms"`
	VoucherKeys    sign.Hash `json:"voucher_keys"`
	Rate           Rate      `json:"rate"`
	Cap            Amount    `json:"cap"`
	Start          Slot      `json:"start"`
	ActivateBefore Slot      `json:"activate_before"`
	End            Slot      `json:"end"`
	Nonce          Nonce     `json:"nonce"`
}

// Slots is how long the lease runs.
func (c LeaseCore) Slots() uint64 { return uint64(c.End - c.Start) }

// Successor reports whether the lease follows on another one.
func (c LeaseCore) Successor() bool { return c.Flags&LeaseSuccessor != 0 }

// Follow returns the core of the successor of c that runs until end: equal except for its time and its cap. It returns
// ErrMalformed if no successor is possible.
func (c LeaseCore) Follow(end Slot) (LeaseCore, error) {
	id, next := c.ID(), c
	next.Flags, next.Nonce = LeaseSuccessor, Nonce(id[:len(Nonce{})])
	next.Start, next.ActivateBefore, next.End = c.End, c.End, end
	if end > c.End {
		most, err := c.Rate.Owed(next.Slots())
		if err != nil {
			return LeaseCore{}, fmt.Errorf("%w: lease cap: %w", ErrMalformed, err)
		}
		next.Cap = most
	}
	return next, next.Validate()
}

// Validate reports the first rule that the core breaks by itself. The lease.Book compares it with the agreed terms.
func (c LeaseCore) Validate() error {
	switch {
	case c.Version != LeaseVersion:
		return malformed("lease version", "%d, this peer reads %d", c.Version, LeaseVersion)
	case c.Flags&^LeaseSuccessor != 0:
		return malformed("lease flags", "%#x, only %#x is defined", c.Flags, LeaseSuccessor)
	case c.Units < 1 || c.Units > MaxUnitsPerLease:
		return malformed("lease units", "%d, want 1 to %d", c.Units, MaxUnitsPerLease)
	case c.Order.IsZero():
		return malformed("lease order", "not set")
	case c.Payout.IsZero():
		return malformed("lease payout", "not set")
	case c.Buyer == c.Provider:
		return malformed("lease provider", "same key as the buyer")
	case c.Start >= c.End || uint64(c.End-c.Start) > MaxLeaseSlots:
		return malformed("lease end", "runs from slot %d to %d", c.Start, c.End)
	case c.Successor() && c.ActivateBefore != c.Start:
		return malformed("lease activate_before", "slot %d, a successor is funded up to its start %d",
			c.ActivateBefore, c.Start)
	case c.ActivateBefore >= c.End:
		return malformed("lease activate_before", "slot %d is not before its end %d", c.ActivateBefore, c.End)
	}
	if _, err := c.Rate.Owed(c.Slots()); err != nil {
		return fmt.Errorf("%w: lease rate: %w", ErrMalformed, err)
	}
	if err := c.Buyer.Check(); err != nil {
		return fmt.Errorf("%w: lease buyer: %w", ErrMalformed, err)
	}
	if err := c.Provider.Check(); err != nil {
		return fmt.Errorf("%w: lease provider: %w", ErrMalformed, err)
	}
	return nil
}

// Marshal returns the layout.
func (c LeaseCore) Marshal() [LeaseCoreSize]byte {
	var b [LeaseCoreSize]byte
	le := binary.LittleEndian
	b[0], b[1] = c.Version, c.Flags
	le.PutUint16(b[2:], c.Units)
	le.PutUint32(b[4:], c.Rank)
	le.PutUint32(b[8:], c.RankEpoch)
	copy(b[16:], c.Order[:])
	copy(b[48:], c.Buyer[:])
	copy(b[80:], c.Provider[:])
	copy(b[112:], c.Payout[:])
	copy(b[144:], c.UnitsRoot[:])
	copy(b[176:], c.Terms[:])
	copy(b[208:], c.VoucherKeys[:])
	le.PutUint64(b[240:], uint64(c.Rate))
	le.PutUint64(b[248:], uint64(c.Cap))
	le.PutUint64(b[256:], uint64(c.Start))
	le.PutUint64(b[264:], uint64(c.ActivateBefore))
	le.PutUint64(b[272:], uint64(c.End))
	copy(b[280:], c.Nonce[:])
	return b
}

// UnmarshalLeaseCore decodes the layout without trailing bytes, and validates.
func UnmarshalLeaseCore(b []byte) (LeaseCore, error) {
	if len(b) != LeaseCoreSize {
		return LeaseCore{}, malformed("lease core", "%d bytes, want %d", len(b), LeaseCoreSize)
	}
	le := binary.LittleEndian
	if le.Uint32(b[12:]) != 0 {
		return LeaseCore{}, malformed("lease core", "reserved bytes are set")
	}
	c := LeaseCore{
		Version: b[0], Flags: b[1], Units: le.Uint16(b[2:]), Rank: le.Uint32(b[4:]), RankEpoch: le.Uint32(b[8:]),
		Order: OrderID(b[16:48]), Buyer: sign.Key(b[48:80]), Provider: sign.Key(b[80:112]),
		Payout: sign.Key(b[112:144]), UnitsRoot: sign.Hash(b[144:176]), Terms: sign.Hash(b[176:208]),
		VoucherKeys: sign.Hash(b[208:240]), Rate: Rate(le.Uint64(b[240:])), Cap: Amount(le.Uint64(b[248:])),
		Start: Slot(le.Uint64(b[256:])), ActivateBefore: Slot(le.Uint64(b[264:])), End: Slot(le.Uint64(b[272:])),
		Nonce: Nonce(b[280:296]),
	}
	if err := c.Validate(); err != nil {
		return LeaseCore{}, err
	}
	return c, nil
}

// ID names the lease.
func (c LeaseCore) ID() LeaseID {
	b := c.Marshal()
	return LeaseID(sign.Sum([]byte("starling/lease/v1"), b[:]))
}

// Sign signs the core as buyer or provider.
func (c LeaseCore) Sign(d sign.Domain, s sign.Signer) (sign.Signature, error) {
	b := c.Marshal()
	sig, err := s.Sign(d.Preimage(sign.TagLease, b[:]))
	if err != nil {
		return sig, fmt.Errorf("signing lease: %w", err)
	}
	return sig, nil
}

// VerifyBy checks that key signed the core. ErrBadSignature otherwise.
func (c LeaseCore) VerifyBy(d sign.Domain, key sign.Key, sig sign.Signature) error {
	b := c.Marshal()
	if err := sign.Verify(key, d.Preimage(sign.TagLease, b[:]), sig); err != nil {
		return fmt.Errorf("%w: lease: %w", ErrBadSignature, err)
	}
	return nil
}

// Lease is a core that both have signed. Layout: core[296] ‖ provider signature[64] ‖ buyer signature[64].
type Lease struct {
	Core        LeaseCore      `json:"core"`
	ProviderSig sign.Signature `json:"provider_sig"`
	BuyerSig    sign.Signature `json:"buyer_sig"`
}

// Check validates the core and both signatures.
func (l Lease) Check(d sign.Domain) error {
	if err := l.Core.Validate(); err != nil {
		return err
	}
	if err := l.Core.VerifyBy(d, l.Core.Provider, l.ProviderSig); err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	if err := l.Core.VerifyBy(d, l.Core.Buyer, l.BuyerSig); err != nil {
		return fmt.Errorf("buyer: %w", err)
	}
	return nil
}

// Marshal returns the layout.
func (l Lease) Marshal() []byte {
	core := l.Core.Marshal()
	out := make([]byte, 0, LeaseSize)
	out = append(out, core[:]...)
	out = append(out, l.ProviderSig[:]...)
	return append(out, l.BuyerSig[:]...)
}

// UnmarshalLease decodes the layout without trailing bytes, and validates the core. It verifies no signature; Check
// does.
func UnmarshalLease(b []byte) (Lease, error) {
	if len(b) != LeaseSize {
		return Lease{}, malformed("lease", "%d bytes, want %d", len(b), LeaseSize)
	}
	core, err := UnmarshalLeaseCore(b[:LeaseCoreSize])
	if err != nil {
		return Lease{}, err
	}
	return Lease{
		Core:        core,
		ProviderSig: sign.Signature(b[LeaseCoreSize : LeaseCoreSize+64]),
		BuyerSig:    sign.Signature(b[LeaseCoreSize+64:]),
	}, nil
}
