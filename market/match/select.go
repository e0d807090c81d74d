package match

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Assignment proposes one rank of the order to one provider, at its price.
type Assignment struct {
	Rank     uint32
	Provider sign.Key
	Price    market.Price
	Route    string
}

// Unschedulable reports that an order cannot be placed, and why, in numbers.
type Unschedulable struct {
	Order      market.OrderID
	Class      market.Class
	Need       int // leases wanted
	Found      int // leases that could be placed
	Considered int
	Counts     map[market.Reason]int
	Refused    []Refusal
	Nearest    market.Price // lowest price over the ceiling, 0 if there is none
	Ceiling    market.Price
	Classes    []market.Class // the offered classes, if the order's is not offered
	Decimals   uint8
}

// Error is a line a person can act on.
func (u *Unschedulable) Error() string {
	if u.Considered == 0 {
		return fmt.Sprintf("%d of %d leases can be placed: no offer is known", u.Found, u.Need)
	}
	if len(u.Classes) > 0 {
		return fmt.Sprintf("class %s: no offers; offered classes: %s", u.Class, join(u.Classes))
	}
	var parts []string
	for _, reason := range slices.SortedFunc(maps.Keys(u.Counts), func(a, b market.Reason) int {
		if u.Counts[a] != u.Counts[b] {
			return u.Counts[b] - u.Counts[a]
		}
		return strings.Compare(string(a), string(b))
	}) {
		part := fmt.Sprintf("%d %s", u.Counts[reason], reason)
		if reason == market.ReasonPrice {
			part = fmt.Sprintf("%d over the ceiling %s, nearest is %s", u.Counts[reason],
				market.Decimal(uint64(u.Ceiling), u.Decimals), market.Decimal(uint64(u.Nearest), u.Decimals))
		}
		if reason == market.ReasonEgress {
			part += u.nearest(reason)
		}
		parts = append(parts, part)
	}
	text := fmt.Sprintf("%d of %d leases can be placed; %d offers considered", u.Found, u.Need, u.Considered)
	if len(parts) > 0 {
		text += ", refused: " + strings.Join(parts, "; ")
	}
	if len(u.Refused) > 0 && len(u.Counts) == 1 && u.Refused[0].Reason != market.ReasonPrice &&
		u.Refused[0].Reason != market.ReasonEgress {
		text += " (" + u.Refused[0].Detail + ")"
	}
	return text
}

// nearest names the cheapest provider that was refused for a reason.
func (u *Unschedulable) nearest(reason market.Reason) string {
	var best *Refusal
	for i := range u.Refused {
		if r := &u.Refused[i]; r.Reason == reason && (best == nil || r.Price < best.Price) {
			best = r
		}
	}
	if best == nil {
		return ""
	}
	return fmt.Sprintf(" (nearest is %s at %s: %s)",
		best.Provider.Short(), market.Decimal(uint64(best.Price), u.Decimals), best.Detail)
}

func join(classes []market.Class) string {
	parts := make([]string, len(classes))
	for i, c := range classes {
		parts[i] = string(c)
	}
	return strings.Join(parts, ", ")
}

// Select proposes n ranks, 0 to n-1, best provider first, and lists spares in the order of preference. With spread
// every rank is on another provider, and one seat in Weights.NewcomerOneIn goes to a newcomer if there is one. Without,
// the best providers take as many ranks as they can. A spare that could take several ranks is listed several times when
// not spread. It returns an error and no ranks if n cannot be placed.
func Select(
	order market.Order, res Result, n int, spread bool,
) (chosen []Assignment, spares []sign.Key, err *Unschedulable) {
	seats := func(s *Scored) int {
		if spread {
			return 1
		}
		return int(s.Leases)
	}
	ranked := once(res.Ranked)
	if spread {
		ranked = withNewcomers(ranked, res.Newcomers, n, int(quota(order.ID, uint32(n), res.weights.NewcomerOneIn)))
	}
	for i := range ranked {
		s := &ranked[i]
		take := min(seats(s), n-len(chosen))
		for range take {
			chosen = append(chosen, Assignment{uint32(len(chosen)), s.Candidate.Offer.Provider, s.Candidate.Price(),
				s.Candidate.Route})
		}
		for range min(seats(s)-take, n) {
			spares = append(spares, s.Candidate.Offer.Provider)
		}
	}
	if len(chosen) < n || n < 1 {
		return nil, nil, &Unschedulable{Order: order.ID, Class: order.Class, Need: n, Found: len(chosen),
			Considered: res.Considered, Counts: res.Counts, Refused: res.Refused, Nearest: res.Nearest,
			Ceiling: res.Ceiling, Classes: res.Classes, Decimals: res.weights.Decimals}
	}
	return chosen, spares, nil
}

// once drops all but the best entry of a provider.
func once(ranked []Scored) []Scored {
	seen := make(map[sign.Key]bool, len(ranked))
	return slices.DeleteFunc(slices.Clone(ranked), func(s Scored) bool {
		twice := seen[s.Candidate.Offer.Provider]
		seen[s.Candidate.Offer.Provider] = true
		return twice
	})
}

// withNewcomers moves newcomers up so that at least want of the first n are newcomers, in the last places of the n.
func withNewcomers(ranked, newcomers []Scored, n, want int) []Scored {
	if len(ranked) <= n && len(newcomers) == 0 || want == 0 {
		return ranked
	}
	first := ranked[:min(n, len(ranked))]
	in := map[sign.Key]bool{}
	for _, s := range first {
		if s.Candidate.Newcomer {
			want--
		}
		in[s.Candidate.Offer.Provider] = true
	}
	var lifted []Scored
	for _, s := range once(newcomers) {
		if len(lifted) < want && !in[s.Candidate.Offer.Provider] {
			lifted = append(lifted, s)
		}
	}
	if len(lifted) == 0 || len(ranked) < n {
		return ranked
	}
	// The seats come from the lowest ranked that are not newcomers themselves.
	var stay, leave []Scored
	give := len(lifted)
	for i := len(first) - 1; i >= 0; i-- {
		if s := first[i]; give > 0 && !s.Candidate.Newcomer {
			leave, give = append(leave, s), give-1
		} else {
			stay = append(stay, s)
		}
	}
	slices.Reverse(stay)
	slices.Reverse(leave)
	return once(slices.Concat(stay, lifted, leave, ranked[len(first):]))
}

// quota is how many of n seats are for newcomers: n/oneIn, the rest drawn by the order's id.
func quota(order market.OrderID, n, oneIn uint32) uint32 {
	if oneIn == 0 {
		return 0
	}
	q := n / oneIn
	if binary.BigEndian.Uint32(order[16:])%oneIn < n%oneIn {
		q++
	}
	return q
}
