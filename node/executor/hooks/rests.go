package hooks

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
)

// rest is the remaining files of an ended lease.
type rest struct {
	id    market.LeaseID
	buyer peer.ID   // the peer that fetches them
	until time.Time // they must be kept
	size  int64     // bytes
}

// choose returns the leases to forget: those kept for long enough, and others early while the rest takes more than most
// bytes; most is 0 if there is no bound.
func choose(all []rest, most int64, now time.Time) (due []rest) {
	var staying []rest
	for _, l := range all {
		if now.Before(l.until) {
			staying = append(staying, l)
		} else {
			due = append(due, l)
		}
	}
	if most <= 0 {
		return due
	}
	first := early(staying, most)
	for _, l := range staying {
		if first[l.id] {
			due = append(due, l)
		}
	}
	return due
}

// early picks the leases to forget before their time while all take more than most bytes: the largest of the buyer that
// has most here, of equals the oldest. So a buyer that has less than another loses nothing by that one's files.
func early(all []rest, most int64) map[market.LeaseID]bool {
	var sum int64
	has, of := map[peer.ID]int64{}, map[peer.ID][]rest{}
	for _, l := range all {
		if l.size > 0 {
			sum += l.size
			has[l.buyer] += l.size
			of[l.buyer] = append(of[l.buyer], l)
		}
	}
	for _, ls := range of {
		slices.SortFunc(ls, func(a, b rest) int {
			return cmp.Or(cmp.Compare(b.size, a.size), a.until.Compare(b.until), bytes.Compare(a.id[:], b.id[:]))
		})
	}
	out := map[market.LeaseID]bool{}
	for sum > most {
		var first peer.ID
		for b, size := range has {
			if size > has[first] || size == has[first] && b > first {
				first = b
			}
		}
		l := of[first][0]
		of[first] = of[first][1:]
		has[first] -= l.size
		sum -= l.size
		out[l.id] = true
	}
	return out
}
