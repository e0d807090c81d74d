package buyer

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
)

// explain says in one sentence why an order could not be placed. Offers that are
// known and did not quote are part of the answer: they name the price, region or
// size at which there would have been a match.
func (b *Buyer) explain(ctx context.Context, o market.Order, none *match.Unschedulable, quoted map[sign.Key]quoted, declined []match.Refusal) string {
	known := b.unquoted(o, quoted)
	if len(known) == 0 && len(o.Regions) > 0 { // only those of its regions were looked up for it
		fctx, cancel := context.WithTimeout(ctx, findTimeout)
		b.find(fctx, o.Class, nil)
		cancel()
		known = b.unquoted(o, quoted)
	}
	res := match.Rank(o, known, time.Now(), b.cfg.Weights)
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
	text := fmt.Sprintf("no match for %d × %d units of %s%s at up to %s per unit-hour: %v", o.Count, o.UnitsPer, o.Class,
		in(o.Regions), b.cfg.Genesis.FormatAmount(market.Amount(o.Ceiling)), none)
	said := map[sign.Key]bool{}
	for _, r := range none.Refused {
		said[r.Provider] = true
	}
	const most = 3
	more := 0
	for _, d := range declined {
		switch {
		case said[d.Provider]: // the same reason, from its offer
		case more >= most:
			more++
		default:
			more++
			text += fmt.Sprintf("; %s: %s", d.Provider.Short(), d.Detail)
		}
	}
	if more > most {
		text += fmt.Sprintf("; and %d more", more-most)
	}
	return text + b.whenProven(o, none.Counts) + "; `starling offers` shows who can be found"
}

// unquoted are the known offers of providers that did not quote.
func (b *Buyer) unquoted(o market.Order, quoted map[sign.Key]quoted) []match.Candidate {
	var out []match.Candidate
	for _, k := range b.known.class(o.Class, time.Now()) {
		_, no := b.blocked(k.Offer.Provider)
		if _, ok := quoted[k.Offer.Provider]; !ok && !no && k.Offer.Provider != b.self {
			out = append(out, b.candidate(k))
		}
	}
	b.rate(out)
	return out
}

func in(regions []market.Region) string {
	text := ""
	for i, r := range regions {
		text += map[bool]string{true: " in ", false: ", "}[i == 0] + string(r)
	}
	return text
}
