package notice

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Limits of a notice. All peers of a network must agree on them.
const (
	// MaxReceipts bounds the receipts of a notice, and with them its leases.
	MaxReceipts = 16
	// MaxSize bounds a notice in bytes: every lease with a proof among 1024 units.
	MaxSize = 3 + MaxReceipts*(market.LeaseSize+proofHead+10*sign.HashSize) + MaxReceipts*verify.ReceiptSize

	version   = 1
	proofHead = 5 // index u16 ‖ units u16 ‖ count u8
)

// Leased is a lease that both sides signed, and the proof that it contains the notice's unit.
type Leased struct {
	Lease market.Lease     `json:"lease"`
	In    market.UnitProof `json:"in"`
}

// Notice is the public record of one unit in one hour. Layout:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  n, leases, 1 to 16
//	     2        n × ( lease[424] ‖ unit proof ), lease ids ascending
//	           1  m, receipts, n to 16
//	     384 · m  receipts, by lease id, then number, then bytes, ascending; every lease has one
//
// It may not have parts that Join would leave out, so that every notice has one form.
//
// The zero value is the empty notice, which is never published.
type Notice struct {
	Leases   []Leased         `json:"leases"`
	Receipts []verify.Receipt `json:"receipts"`
}

// Marshal returns the layout. The notice must be a result of Of, Join or Read, and not empty.
func (n Notice) Marshal() []byte {
	out := append(make([]byte, 0, MaxSize), version, byte(len(n.Leases)))
	for _, l := range n.Leases {
		out = append(out, l.Lease.Marshal()...)
		out = append(out, l.In.Marshal()...)
	}
	out = append(out, byte(len(n.Receipts)))
	for _, r := range n.Receipts {
		out = append(out, r.Marshal()...)
	}
	return out
}

// Unmarshal decodes the layout without trailing bytes. It does not verify; Check does.
func Unmarshal(b []byte) (Notice, error) {
	var n Notice
	if len(b) < 3 || len(b) > MaxSize || b[0] != version {
		return n, malformed("notice", "%d bytes", len(b))
	}
	leases := int(b[1])
	b = b[2:]
	for range leases {
		if len(b) < market.LeaseSize+proofHead {
			return Notice{}, malformed("notice", "cut off in a lease")
		}
		size := proofHead + int(b[market.LeaseSize+proofHead-1])*sign.HashSize
		if b[market.LeaseSize+proofHead-1] > merkle.MaxDepth || len(b) < market.LeaseSize+size {
			return Notice{}, malformed("notice", "cut off in a unit proof")
		}
		l, err := market.UnmarshalLease(b[:market.LeaseSize])
		if err != nil {
			return Notice{}, err
		}
		in, err := market.UnmarshalUnitProof(b[market.LeaseSize : market.LeaseSize+size])
		if err != nil {
			return Notice{}, err
		}
		n.Leases, b = append(n.Leases, Leased{l, in}), b[market.LeaseSize+size:]
	}
	if len(b) < 1 || len(b) != 1+int(b[0])*verify.ReceiptSize {
		return Notice{}, malformed("notice", "%d bytes of receipts", len(b))
	}
	for b = b[1:]; len(b) > 0; b = b[verify.ReceiptSize:] {
		r, err := verify.UnmarshalReceipt(b[:verify.ReceiptSize])
		if err != nil {
			return Notice{}, err
		}
		n.Receipts = append(n.Receipts, r)
	}
	return n, nil
}

// Once verifies the signatures of a part of a notice, unless the same bytes were verified before: successive notices of
// a place share most parts. It must remember no more of a part than that it was good, and of one domain. nil verifies
// every time.
type Once func(part []byte, verify func() error) error

// Read is Unmarshal and Check: peers read every notice from elsewhere with it.
func Read(d sign.Domain, c Calendar, p Place, b []byte, once Once) (Notice, error) {
	n, err := Unmarshal(b)
	if err == nil {
		err = n.Check(d, c, p, once)
	}
	if err != nil {
		return Notice{}, err
	}
	return n, nil
}

// Check verifies a notice's order and bounds. Each lease must be by the place's provider, contain its unit and be
// signed by both sides. Each receipt must be of one of the leases, overlap the place's hour and be signed by both
// sides. Bounds and order are checked before signatures, so that invalid input is cheap.
func (n Notice) Check(d sign.Domain, c Calendar, p Place, once Once) error {
	if err := n.shape(c, p); err != nil {
		return err
	}
	if once == nil {
		once = func(_ []byte, verify func() error) error { return verify() }
	}
	for _, l := range n.Leases {
		if err := l.In.Verify(l.Lease.Core.UnitsRoot, p.Unit); err != nil {
			return err
		}
		if err := once(l.Lease.Marshal(), func() error { return l.Lease.Check(d) }); err != nil {
			return err
		}
	}
	for _, r := range n.Receipts {
		if err := once(r.Marshal(), func() error { return r.CheckSignatures(d) }); err != nil {
			return err
		}
	}
	return nil
}

// shape is the part of Check that costs no signature.
func (n Notice) shape(c Calendar, p Place) error {
	if len(n.Leases) < 1 || len(n.Receipts) < len(n.Leases) || len(n.Receipts) > MaxReceipts {
		return malformed("notice", "%d leases, %d receipts", len(n.Leases), len(n.Receipts))
	}
	from, to := c.Slots(p)
	next := 0 // the first receipt of a later lease
	for i, l := range n.Leases {
		core := l.Lease.Core
		id := core.ID()
		if i > 0 {
			if before := n.Leases[i-1].Lease.Core.ID(); bytes.Compare(before[:], id[:]) >= 0 {
				return malformed("notice", "leases are not in order")
			}
		}
		if core.Provider != p.Provider || l.In.Units != core.Units {
			return malformed("notice", "lease %s is another provider's, or of other units", id.Short())
		}
		first := next
		for ; next < len(n.Receipts) && n.Receipts[next].Lease == id; next++ {
			r := n.Receipts[next]
			switch {
			case r.Provider != core.Provider || r.Buyer != core.Buyer || r.Units != core.Units ||
				r.UnitsRoot != core.UnitsRoot || r.RankEpoch != core.RankEpoch:
				return malformed("notice", "receipt %d is not of its lease", r.Seq)
			case r.From >= r.To || r.From < core.Start || r.To > core.End || r.To <= from || r.From >= to:
				return malformed("notice", "receipt %d of slots %d to %d", r.Seq, r.From, r.To)
			}
		}
		if next == first {
			return malformed("notice", "lease %s without a receipt", id.Short())
		}
	}
	if next != len(n.Receipts) {
		return malformed("notice", "receipts are not in the order of the leases")
	}
	if one := Join(c, p, n); !slices.Equal(one.Receipts, n.Receipts) {
		return malformed("notice", "receipts are out of order, or some have no place beside the others")
	}
	return nil
}

// Of returns the notice of one lease at a place, with the receipts to keep; both sides have signed them. It is empty if
// no receipt overlaps the hour. It returns an error if the place's unit is not among units.
func Of(c Calendar, p Place, l market.Lease, units []market.UnitID, rs []verify.Receipt) (Notice, error) {
	in, err := market.ProveUnit(units, p.Unit)
	if err != nil {
		return Notice{}, err
	}
	rs = Keep(c, p, rs)
	if len(rs) == 0 {
		return Notice{}, nil
	}
	return Notice{Leases: []Leased{{l, in}}, Receipts: rs}, nil
}

// Join returns the union of the notices of one place, within the limits. It prefers the pairs of receipts that prove a
// double sale, one for each two leases, and then the receipts over the roundest slots. The order of the notices matters
// only for dropped parts. The notices must be checked, or the caller's own.
func Join(c Calendar, p Place, ns ...Notice) Notice {
	leases := map[market.LeaseID]Leased{}
	receipts := map[sign.Hash]verify.Receipt{}
	for _, n := range ns {
		for _, l := range n.Leases {
			id := l.Lease.Core.ID()
			// One core may be signed in two ways; all choose the same.
			if old, two := leases[id]; !two || bytes.Compare(l.Lease.Marshal(), old.Lease.Marshal()) < 0 {
				leases[id] = l
			}
		}
		for _, r := range n.Receipts {
			receipts[r.SignedHash()] = r
		}
	}
	from, to := c.Slots(p)
	var out Notice
	if ps := pairs(slices.SortedFunc(maps.Values(receipts), byNumber), from, to); len(ps) > 0 {
		for _, two := range ps {
			out.Receipts = append(out.Receipts, two.a, two.b)
		}
		slices.SortFunc(out.Receipts, byNumber)
		out.Receipts = slices.CompactFunc(out.Receipts, func(x, y verify.Receipt) bool { return byNumber(x, y) == 0 })
	} else {
		out.Receipts = roundest(maps.Values(receipts), from, to)
		slices.SortFunc(out.Receipts, byNumber)
	}
	for i, r := range out.Receipts {
		if i == 0 || out.Receipts[i-1].Lease != r.Lease {
			out.Leases = append(out.Leases, leases[r.Lease])
		}
	}
	return out
}

func byNumber(x, y verify.Receipt) int {
	if by := cmp.Or(bytes.Compare(x.Lease[:], y.Lease[:]), cmp.Compare(x.Seq, y.Seq)); by != 0 {
		return by
	}
	return bytes.Compare(x.Marshal(), y.Marshal()) // of one number there may be two, which proves nothing
}

// Conflicts are the proofs of double sale that a notice has, the best first; none in most. The notice must have been
// checked.
func (n Notice) Conflicts(c Calendar, p Place) []verify.Conflict {
	in := map[market.LeaseID]market.UnitProof{}
	for _, l := range n.Leases {
		in[l.Lease.Core.ID()] = l.In
	}
	from, to := c.Slots(p)
	var out []verify.Conflict
	for _, two := range pairs(n.Receipts, from, to) {
		out = append(out, verify.Conflict{A: two.a, B: two.b, Unit: p.Unit, InA: in[two.a.Lease], InB: in[two.b.Lease]})
	}
	return out
}

// Better returns the index of the best notice offered for a place, and the join of all valid ones. Read decodes and
// checks one; it is Read or an equivalent. It returns ErrNone if none is valid. A notice that proves a double sale
// beats any other; then the one over the rounder slots, and then the one with more of them. So a stored notice can be
// replaced only by a better one, and Join is never worse than its parts.
func Better(
	c Calendar, p Place, offered [][]byte, read func([]byte) (Notice, error),
) (best int, joint Notice, err error) {
	best = -1
	var at Notice
	var errs []error
	for i, b := range offered {
		n, err := read(b)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		joint = Join(c, p, joint, n)
		by := 1
		if best >= 0 {
			by = cmp.Or(compare(c, p, n, at), bytes.Compare(b, offered[best]))
		}
		if by > 0 {
			best, at = i, n
		}
	}
	if best < 0 {
		return 0, Notice{}, fmt.Errorf("%w: %w", ErrNone, errors.Join(errs...))
	}
	return best, joint, nil
}

// Keep returns the receipts of one lease that are worth publishing at a place: those over the roundest slots of its
// hour.
func Keep(c Calendar, p Place, rs []verify.Receipt) []verify.Receipt {
	from, to := c.Slots(p)
	out := roundest(slices.Values(slices.DeleteFunc(slices.Clone(rs), func(r verify.Receipt) bool {
		return r.From >= r.To || r.From >= to || r.To <= from
	})), from, to)
	slices.SortFunc(out, byNumber)
	return out
}

// ErrNone means that no notice offered is good.
var ErrNone = errors.New("none of the notices is good")
