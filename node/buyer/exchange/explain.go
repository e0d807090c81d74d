package exchange

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
)

// Explain returns one sentence about why an order could not be placed. Known offers without a quote are included: they
// name the price, region or size for a match.
func (x *Exchange) Explain(
	ctx context.Context, o market.Order, none *match.Unschedulable,
	quoted map[sign.Key]Quoted, declined []match.Refusal,
) string {
	known := x.unquoted(o, quoted)
	if len(known) == 0 && len(o.Regions) > 0 { // only offers of its regions were looked up
		fctx, cancel := context.WithTimeout(ctx, FindTimeout)
		x.Find(fctx, o.Class, nil, o.Count)
		cancel()
		known = x.unquoted(o, quoted)
	}
	res := match.Rank(o, known, time.Now(), x.cfg.Weights)
	none.Considered += res.Considered
	none.Refused = append(none.Refused, res.Refused...)
	counts := map[market.Reason]int{}
	for _, more := range []map[market.Reason]int{none.Counts, res.Counts} {
		for reason, n := range more {
			counts[reason] += n
		}
	}
	none.Counts = counts
	if none.Nearest == 0 || res.Nearest > 0 && res.Nearest < none.Nearest {
		none.Nearest, none.Ceiling = res.Nearest, res.Ceiling
	}
	text := fmt.Sprintf("no match for %d × %d units of %s%s at up to %s per unit-hour: %v",
		o.Count, o.UnitsPer, o.Class, in(o.Regions), x.cfg.Genesis.FormatAmount(market.Amount(o.Ceiling)), none)
	text += notNamed(none.Refused, declined) + x.whenProven(o, counts)
	return text + "; `starling offers` lists the known providers"
}

// notNamed lists refusals of providers that are not among those named already, the first three in words.
func notNamed(named, declined []match.Refusal) (text string) {
	said := map[sign.Key]bool{}
	for _, r := range named {
		said[r.Provider] = true
	}
	const most = 3
	more := 0
	for _, d := range declined {
		if said[d.Provider] { // the same reason, from its offer
			continue
		}
		if more++; more <= most {
			text += fmt.Sprintf("; %s: %s", d.Provider.Short(), d.Detail)
		}
	}
	if more > most {
		text += fmt.Sprintf("; and %d more", more-most)
	}
	return text
}

// unquoted returns the known offers of providers that did not quote.
func (x *Exchange) unquoted(o market.Order, quoted map[sign.Key]Quoted) []match.Candidate {
	var out []match.Candidate
	for _, k := range x.Book.Class(o.Class, time.Now()) {
		_, no := x.Blocked(k.Offer.Provider)
		if _, ok := quoted[k.Offer.Provider]; !ok && !no && k.Offer.Provider != x.cfg.Self {
			out = append(out, x.candidate(k))
		}
	}
	x.Rate(out)
	return out
}

func in(regions []market.Region) string {
	text := ""
	for i, r := range regions {
		text += map[bool]string{true: " in ", false: ", "}[i == 0] + string(r)
	}
	return text
}

// Unplaced is the error of an order that got no leases.
type Unplaced struct {
	Raced bool // there were quotes enough, the units went elsewhere; or providers did not see whether it can pay
	// Unsettled: there were, and some reach each other over relays only, or not, yet; or providers are still being met.
	Unsettled bool
	Thin      bool // not all providers that received the order were to quote for it
	Reason    string
}

func (u *Unplaced) Error() string { return u.Reason }
