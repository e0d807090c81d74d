package audit

import (
	"encoding/binary"
	"math/bits"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// Limits of an excuse.
const (
	// MaxLeases is how many leases an excuse counts.
	MaxLeases = 8
	// MaxExcuse bounds an excuse, bytes: every lease with a proof among 1024 units and 256 leaves.
	MaxExcuse = excuseHead + MaxLeases*(market.LeaseSize+unitProofHead+10*sign.HashSize+verify.ReceiptSize+fundedHead+tranche.MaxProof)
	// MaxExcused is how many windows in a row a unit may be excused: after so many it must show again what it is.
	MaxExcused = MaxRates

	excuseHead    = 96
	unitProofHead = 5  // index u16 ‖ units u16 ‖ count u8
	fundedHead    = 80 // before the proof
)

// Excuse shows that a unit worked when a window began, and what that cost. Layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  n, leases, 1 to 8
//	     2     6  reserved: 0
//	     8    32  provider
//	    40    32  unit id
//	    72     8  window
//	    80     8  window length in slots
//	    88     8  since: no lease begins before this slot
//	    96        n × ( lease[424] ‖ unit proof ‖ receipt[384] ‖ funded ), one after the other in time; one lease may come again with a
//	              later receipt, of which the last is what it comes to
//
// Funded says where on chain the lease's money lies, and is believed only when the chain says so:
//
//	0      8  slot in which the escrow was opened
//	8      2  tranche
//	10     2  index of the leaf
//	12     4  reserved: 0
//	16    32  buyer of the escrow
//	48    32  order of the escrow
//	80        proof of the leaf (tranche.Proof)
//
// A receipt covers the window's first slot. Its name is SHA-256( "starling/excuse/v1" ‖ all of it ).
type Excuse struct {
	Provider    sign.Key      `json:"provider"`
	Unit        market.UnitID `json:"unit"`
	Window      Window        `json:"window"`
	WindowSlots uint64        `json:"window_slots"`
	Since       market.Slot   `json:"since"`
	Leases      []Worked      `json:"leases"`
}

// Worked is one lease of a unit: that both signed it, that the unit is in it, and the newest receipt of it that counts.
type Worked struct {
	Lease   market.Lease     `json:"lease"`
	In      market.UnitProof `json:"in"`
	Receipt verify.Receipt   `json:"receipt"`
	Funded  Funded           `json:"funded"`
}

// Funded is a leaf of an escrow.
type Funded struct {
	Opened  uint64         `json:"opened"`
	Tranche uint16         `json:"tranche"`
	Index   uint16         `json:"index"`
	Buyer   sign.Key       `json:"buyer"`
	Order   market.OrderID `json:"order"`
	Proof   tranche.Proof  `json:"proof"`
}

// Marshal returns the layout.
func (e Excuse) Marshal() []byte {
	out := make([]byte, excuseHead, MaxExcuse)
	out[0], out[1] = version, byte(len(e.Leases))
	copy(out[8:], e.Provider[:])
	copy(out[40:], e.Unit[:])
	binary.LittleEndian.PutUint64(out[72:], uint64(e.Window))
	binary.LittleEndian.PutUint64(out[80:], e.WindowSlots)
	binary.LittleEndian.PutUint64(out[88:], uint64(e.Since))
	for _, l := range e.Leases {
		out = append(out, l.Lease.Marshal()...)
		out = append(out, l.In.Marshal()...)
		out = append(out, l.Receipt.Marshal()...)
		out = binary.LittleEndian.AppendUint64(out, l.Funded.Opened)
		out = binary.LittleEndian.AppendUint16(out, l.Funded.Tranche)
		out = binary.LittleEndian.AppendUint16(out, l.Funded.Index)
		out = binary.LittleEndian.AppendUint32(out, 0)
		out = append(out, l.Funded.Buyer[:]...)
		out = append(out, l.Funded.Order[:]...)
		out = append(out, l.Funded.Proof.Marshal()...)
	}
	return out
}

// Hash names the excuse.
func (e Excuse) Hash() sign.Hash { return sign.Sum([]byte("starling/excuse/v1"), e.Marshal()) }

// UnmarshalExcuse reads the layout and nothing after it. It verifies nothing; Check does.
func UnmarshalExcuse(b []byte) (Excuse, error) {
	if len(b) < excuseHead || len(b) > MaxExcuse || b[0] != version || b[1] < 1 || b[1] > MaxLeases || !zero(b[2:8]) {
		return Excuse{}, malformed("excuse", "%d bytes, or unknown version, leases or reserved bytes", len(b))
	}
	le := binary.LittleEndian
	e := Excuse{
		Provider: sign.Key(b[8:40]), Unit: market.UnitID(b[40:72]), Window: Window(le.Uint64(b[72:])), WindowSlots: le.Uint64(b[80:]),
		Since: market.Slot(le.Uint64(b[88:])),
	}
	rest := b[excuseHead:]
	for range int(b[1]) {
		l, after, err := cutWorked(rest)
		if err != nil {
			return Excuse{}, err
		}
		e.Leases, rest = append(e.Leases, l), after
	}
	if len(rest) != 0 {
		return Excuse{}, malformed("excuse", "%d bytes too many", len(rest))
	}
	return e, nil
}

func cutWorked(b []byte) (l Worked, rest []byte, err error) {
	if len(b) < market.LeaseSize+unitProofHead {
		return l, nil, malformed("excuse", "cut off in a lease")
	}
	path := int(b[market.LeaseSize+unitProofHead-1])
	in := unitProofHead + path*sign.HashSize
	if path > merkle.MaxDepth || len(b) < market.LeaseSize+in+verify.ReceiptSize+fundedHead+1 {
		return l, nil, malformed("excuse", "cut off in a lease")
	}
	if l.Lease, err = market.UnmarshalLease(b[:market.LeaseSize]); err != nil {
		return l, nil, err
	}
	b = b[market.LeaseSize:]
	if l.In, err = market.UnmarshalUnitProof(b[:in]); err != nil {
		return l, nil, err
	}
	b = b[in:]
	if l.Receipt, err = verify.UnmarshalReceipt(b[:verify.ReceiptSize]); err != nil {
		return l, nil, err
	}
	b = b[verify.ReceiptSize:]
	if !zero(b[12:16]) {
		return l, nil, malformed("excuse", "reserved bytes")
	}
	le := binary.LittleEndian
	l.Funded = Funded{
		Opened: le.Uint64(b), Tranche: le.Uint16(b[8:]), Index: le.Uint16(b[10:]), Buyer: sign.Key(b[16:48]), Order: market.OrderID(b[48:80]),
	}
	b = b[fundedHead:]
	size := tranche.ProofSize(b[0])
	if len(b) < size {
		return l, nil, malformed("excuse", "cut off in the proof of a leaf")
	}
	if l.Funded.Proof, err = tranche.UnmarshalProof(b[:size]); err != nil {
		return l, nil, err
	}
	return l, b[size:], nil
}

// Check verifies all of an excuse that needs nothing else: each lease is the provider's, contains the unit and is signed by both,
// each receipt is its and is signed by both, they follow on each other, and the last covers the window's first slot. RuleUnit,
// RuleWindow, RuleTime, RuleExcuse, RuleProvider. What was burned the chain says: Burned.
func (e Excuse) Check(d sign.Domain) error {
	if err := e.checkForm(); err != nil {
		return err
	}
	for _, l := range e.Leases {
		if err := l.In.Verify(l.Lease.Core.UnitsRoot, e.Unit); err != nil {
			return because(RuleUnit, err)
		}
		if err := l.Lease.Check(d); err != nil {
			return because(RuleProvider, err)
		}
		if err := l.Receipt.CheckSignatures(d); err != nil {
			return because(RuleProvider, err)
		}
	}
	return nil
}

// checkForm is what costs no signature.
func (e Excuse) checkForm() error {
	switch {
	case e.WindowSlots < 1 || uint64(e.Window) > (1<<64-1)/e.WindowSlots:
		return broken(RuleWindow, "window %d of %d slots", e.Window, e.WindowSlots)
	case len(e.Leases) < 1 || len(e.Leases) > MaxLeases:
		return broken(RuleExcuse, "%d leases, 1 to %d make an excuse", len(e.Leases), MaxLeases)
	}
	first, from := e.Window.First(e.WindowSlots), e.Since
	covered := false
	for i, l := range e.Leases {
		c, r := l.Lease.Core, l.Receipt
		begins := c.Start
		if i > 0 && e.again(i) {
			begins = r.From
		}
		switch {
		case c.Provider != e.Provider || l.In.Units != c.Units:
			return broken(RuleUnit, "lease %d is another provider's, or of other units", i)
		case r.Lease != c.ID() || r.Provider != c.Provider || r.Buyer != c.Buyer || r.Units != c.Units || r.UnitsRoot != c.UnitsRoot || r.RankEpoch != c.RankEpoch:
			return broken(RuleExcuse, "receipt %d is not of its lease", i)
		case begins < from:
			return broken(RuleTime, "lease %d begins in slot %d, what counts begins in slot %d", i, begins, from)
		case r.From >= r.To || r.From < c.Start || r.To > c.End:
			return broken(RuleTime, "receipt %d is of slots %d to %d, its lease of %d to %d", i, r.From, r.To, c.Start, c.End)
		}
		from, covered = r.To, covered || r.From <= first && first < r.To
	}
	if !covered {
		return broken(RuleExcuse, "no receipt covers slot %d, in which window %d began", first, e.Window)
	}
	return nil
}

// again reports whether a lease is the one before it, with a later receipt.
func (e Excuse) again(i int) bool {
	return e.Leases[i].Lease.Core.ID() == e.Leases[i-1].Lease.Core.ID() && e.Leases[i].Funded.same(e.Leases[i-1].Funded)
}

// same reports whether it is the same leaf of the same escrow.
func (f Funded) same(o Funded) bool {
	return f.Opened == o.Opened && f.Tranche == o.Tranche && f.Index == o.Index && f.Buyer == o.Buyer && f.Order == o.Order
}

// Newest leaves of leases that come again the last: what they come to.
func Newest(ls []Worked) []Worked {
	var out []Worked
	for i := range ls {
		if i+1 == len(ls) || !(Excuse{Leases: ls}).again(i+1) {
			out = append(out, ls[i])
		}
	}
	return out
}

// Fee is what a network takes of a payment, in ten thousandths: Fee of what is claimed, Burn of the fee.
type Fee struct {
	Fee  uint16 `json:"fee"`
	Burn uint16 `json:"burn"`
}

// Busy are the stretches that an excuse shows, each from a lease's beginning to the end of its newest receipt, with what the unit's part
// in it burned: of what that receipt says or, if that is less, what the chain has paid for the lease, which paid says. The excuse
// must have been checked.
func (e Excuse) Busy(fee Fee, paid func(Worked) (market.Amount, error)) ([]Busy, error) {
	out := make([]Busy, 0, len(e.Leases))
	for i, l := range e.Leases {
		if i+1 < len(e.Leases) && e.again(i+1) {
			continue
		}
		p, err := paid(l)
		if err != nil {
			return nil, err
		}
		burned := tenThousandths(tenThousandths(min(p, l.Receipt.Cumulative), fee.Fee), fee.Burn)
		out = append(out, Busy{From: l.Lease.Core.Start, To: l.Receipt.To, Burned: burned / market.Amount(max(l.Lease.Core.Units, 1))})
	}
	return out, nil
}

// tenThousandths is ⌊a · share / 10⁴⌋, of at most the whole.
func tenThousandths(a market.Amount, share uint16) market.Amount {
	hi, lo := bits.Mul64(uint64(a), uint64(min(share, 10_000)))
	q, _ := bits.Div64(hi, lo, 10_000)
	return market.Amount(q)
}
