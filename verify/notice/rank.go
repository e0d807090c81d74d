package notice

import (
	"bytes"
	"cmp"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// maxPairs is how many proofs a notice holds: two receipts each.
const maxPairs = MaxReceipts / 2

// rank orders the receipts of a notice.
type rank struct {
	round int         // of the roundest slot covered
	to    market.Slot // then the newest
	hash  sign.Hash   // then any common order
}

func compareRank(x, y rank) int {
	return cmp.Or(cmp.Compare(x.round, y.round), cmp.Compare(x.to, y.to), bytes.Compare(x.hash[:], y.hash[:]))
}

// roundestSlot is the slot with the most factors of two from from to before to, and how many it has; 64 for slot 0.
// from must be less than to.
func roundestSlot(from, to market.Slot) (s market.Slot, round int) {
	if from == 0 {
		return 0, 64
	}
	// The last slot without the bits below the highest one in which the slot before the first differs.
	before, last := uint64(from)-1, uint64(to)-1
	round = bits.Len64(before^last) - 1
	return market.Slot(last >> round << round), round
}

// rankOf is the rank of a receipt in the hour of these slots, which it meets, and the slot that gives it.
func rankOf(r verify.Receipt, from, to market.Slot) (rank, market.Slot) {
	s, round := roundestSlot(max(r.From, from), min(r.To, to))
	return rank{round, r.To, r.SignedHash()}, s
}

// roundest returns the receipts to keep that are not part of a proof: the first for each roundest slot, so that a
// provider cannot fill a notice with many receipts over one slot.
func roundest(rs iter.Seq[verify.Receipt], from, to market.Slot) []verify.Receipt {
	type ranked struct {
		verify.Receipt
		rank
	}
	best := map[market.Slot]ranked{}
	for r := range rs {
		k, s := rankOf(r, from, to)
		if old, known := best[s]; !known || compareRank(k, old.rank) > 0 {
			best[s] = ranked{r, k}
		}
	}
	sorted := slices.SortedFunc(maps.Values(best), func(x, y ranked) int { return compareRank(y.rank, x.rank) })
	var out []verify.Receipt
	for _, r := range sorted[:min(len(sorted), MaxReceipts)] {
		out = append(out, r.Receipt)
	}
	return out
}

// pair is two receipts that prove a double sale.
type pair struct {
	a, b verify.Receipt // of the lease with the lower id, of the other
	rank
}

// pairs are the proofs among receipts of one unit and provider in an hour, at most one for each two leases, best first.
func pairs(rs []verify.Receipt, from, to market.Slot) []pair {
	type leases struct{ a, b market.LeaseID }
	best := map[leases]pair{}
	for i, x := range rs {
		for _, y := range rs[i+1:] {
			since, until := max(x.From, y.From, from), min(x.To, y.To, to)
			if x.Lease == y.Lease || since >= until {
				continue
			}
			a, b := x, y
			if bytes.Compare(a.Lease[:], b.Lease[:]) > 0 {
				a, b = b, a
			}
			_, round := roundestSlot(since, until)
			p := pair{a, b, rank{round, until, sign.Sum(a.Marshal(), b.Marshal())}}
			if old, known := best[leases{a.Lease, b.Lease}]; !known || compareRank(p.rank, old.rank) > 0 {
				best[leases{a.Lease, b.Lease}] = p
			}
		}
	}
	out := make([]pair, 0, len(best))
	for _, p := range best {
		out = append(out, p)
	}
	slices.SortFunc(out, func(x, y pair) int { return compareRank(y.rank, x.rank) })
	return out[:min(len(out), maxPairs)]
}

// compare is above 0 when x is the better notice, and 0 only for two that are the same.
func compare(c Calendar, p Place, x, y Notice) int {
	from, to := c.Slots(p)
	ranks := func(n Notice) (proofs, receipts []rank) {
		for _, two := range pairs(n.Receipts, from, to) {
			proofs = append(proofs, two.rank)
		}
		for _, r := range n.Receipts {
			k, _ := rankOf(r, from, to)
			receipts = append(receipts, k)
		}
		slices.SortFunc(receipts, func(x, y rank) int { return compareRank(y, x) })
		return proofs, receipts
	}
	px, rx := ranks(x)
	py, ry := ranks(y)
	// The first that differs decides, else the longer list.
	if by := slices.CompareFunc(px, py, compareRank); by != 0 {
		return by
	}
	return slices.CompareFunc(rx, ry, compareRank)
}
