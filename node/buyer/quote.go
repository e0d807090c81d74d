package buyer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/selection"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/journal"
)

// Quote asks the market for the price of a job now: the order is published as that of a job is, the quotes are ranked
// as those of a job are, and nothing is reserved. Where too few providers were drawn, more are asked. ErrRefused.
func (b *Buyer) Quote(ctx context.Context, spec job.Job) (Quotation, error) {
	if err := spec.Check(); err != nil {
		return Quotation{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if _, err := b.cfg.Slots.Now(time.Now()); err != nil {
		return Quotation{}, fmt.Errorf("%w: %w; check the chain's RPC endpoint and try again", ErrRefused, err)
	}
	n := int(spec.Count)
	slots, budget, err := b.affordable(Job{Spec: spec}, n, n, 0)
	if err != nil {
		return Quotation{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	most, err := mostCost(spec)
	if err != nil {
		return Quotation{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err := b.pay.Afford(ctx, "", most, spec.Count); err != nil {
		return Quotation{}, err // no provider would answer
	}
	for asked := 0; ; asked++ {
		out, draw, err := b.quoteOnce(ctx, spec, slots, budget, most, asked)
		if err != nil || out.Places || draw == match.DrawAll || ctx.Err() != nil {
			return out, err
		}
	}
}

// quoteOnce publishes one order for the job. It returns the quotes for it and its draw.
func (b *Buyer) quoteOnce(
	ctx context.Context, spec job.Job, slots uint64, budget, most market.Amount, asked int,
) (_ Quotation, draw uint32, _ error) {
	own := apart{nonce: drawnNonce(), asked: asked, valid: orderValidity}
	o, env, err := b.write(b.own, spec, int(spec.Count), slots, budget, spec.Placement.Exclude, own)
	if err != nil {
		return Quotation{}, 0, err
	}
	var sent journal.Batch
	ordersSent.Put(&sent, o.ID.String(), env)
	if err := sent.Commit(ctx, b.cfg.Store); err != nil {
		return Quotation{}, 0, fmt.Errorf("journalling an order: %w", err)
	}
	began := time.Now()
	how := exchange.Ask{Direct: !spec.Placement.GossipOnly, Spread: !spec.Placement.Pack, Settle: exchange.SettleQuotes}
	got := b.exchange.Collect(ctx, exchange.Silence{}, o, env, how)
	out := Quotation{Order: o.ID, Quotes: []QuotedOffer{}, Declined: []Declined{}, MaxCost: most,
		Took: time.Since(began)}
	out.Lamports = b.pay.Lamports(spec.Count, out.MaxCost)
	byKey, res, over := selection.Job{Selector: b.selector, Spec: spec}.Rank(o, got.Quotes)
	declined := append(got.Declined, over...)
	picked, _, none := match.Select(o, res, int(spec.Count), how.Spread)
	if none != nil {
		out.Reason = b.exchange.Explain(ctx, o, none, byKey, declined)
	}
	out.Places = none == nil
	ranks := map[sign.Key]int{}
	for _, a := range picked {
		ranks[a.Provider]++
	}
	misfit := map[sign.Key]string{}
	for _, r := range slices.Concat(over, res.Refused) {
		misfit[r.Provider] = r.Detail
	}
	for _, q := range got.Quotes {
		p := q.Quote.Provider
		out.Quotes = append(out.Quotes, QuotedOffer{
			Units:    record.UnitsOf(q.Quote),
			Provider: p, Region: string(q.Quote.Region), Price: q.Quote.Price, Leases: q.Quote.Leases, Route: q.Route,
			Took:  q.Took,
			Ranks: ranks[p], Misfit: misfit[p],
		})
		cost, err := costOf(spec, b.cfg.Genesis.SlotMillis, slots, q.Quote.Price, ranks[p])
		if err == nil {
			out.Cost, err = out.Cost.Add(cost)
		}
		if err != nil {
			return out, 0, fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	for _, d := range declined {
		if _, quoted := byKey[d.Provider]; !quoted {
			out.Declined = append(out.Declined, Declined{Provider: d.Provider, Reason: d.Detail})
		}
	}
	sortQuotes(&out)
	return out, o.Draw, nil
}

// costOf returns the cost of so many ranks at one provider's price.
func costOf(spec job.Job, slotMillis, slots uint64, p market.Price, ranks int) (market.Amount, error) {
	rate, err := market.RateOf(p, int(spec.Resources.Units), slotMillis)
	if err != nil {
		return 0, err
	}
	one, err := rate.Owed(slots)
	if err != nil {
		return 0, err
	}
	return one.Times(uint64(ranks))
}

// sortQuotes orders the quotes of a quotation, and the providers that declined.
func sortQuotes(q *Quotation) {
	slices.SortFunc(q.Quotes, func(x, y QuotedOffer) int {
		switch {
		case (x.Ranks > 0) != (y.Ranks > 0):
			return map[bool]int{true: -1, false: 1}[x.Ranks > 0]
		case x.Price != y.Price:
			return map[bool]int{true: -1, false: 1}[x.Price < y.Price]
		}
		return slices.Compare(x.Provider[:], y.Provider[:])
	})
	slices.SortFunc(q.Declined, func(x, y Declined) int { return slices.Compare(x.Provider[:], y.Provider[:]) })
}
