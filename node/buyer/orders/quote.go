package orders

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/selection"
	"github.com/starling-network/starling/node/job"
)

// Quote returns the present price of a job: it publishes an order and ranks the quotes as for a job, but reserves
// nothing. If too few providers were drawn, it repeats the order for more. It returns ErrRefused.
func (c *Office) Quote(ctx context.Context, as run.Voice, spec job.Job) (record.Quotation, error) {
	if err := spec.Check(); err != nil {
		return record.Quotation{}, fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	if _, err := c.Clock.Now(time.Now()); err != nil {
		return record.Quotation{}, fmt.Errorf("%w: %w; check the chain's RPC endpoint and try again",
			record.ErrRefused, err)
	}
	n := int(spec.Count)
	slots, budget, err := c.affordable(record.Job{Spec: spec}, n, n, 0)
	if err != nil {
		return record.Quotation{}, fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	most, err := record.MostCost(spec)
	if err != nil {
		return record.Quotation{}, fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	if err := c.Wallet.Afford(ctx, "", most, spec.Count); err != nil {
		return record.Quotation{}, err // no provider would answer
	}
	for asked := 0; ; asked++ {
		out, draw, err := c.quoteOnce(ctx, as, spec, slots, budget, most, asked)
		if err != nil || out.Places || draw == match.DrawAll || ctx.Err() != nil {
			return out, err
		}
	}
}

// quoteOnce publishes one order for the job. It returns the quotes for it and its draw.
func (c *Office) quoteOnce(
	ctx context.Context, as run.Voice, spec job.Job, slots uint64, budget, most market.Amount, asked int,
) (_ record.Quotation, draw uint32, _ error) {
	own := apart{nonce: drawnNonce(), asked: asked, valid: orderValidity}
	o, env, err := c.write(as, spec, int(spec.Count), slots, budget, spec.Placement.Exclude, own)
	if err != nil {
		return record.Quotation{}, 0, err
	}
	if err := record.WriteOrder(ctx, c.Store, o.ID, env); err != nil {
		return record.Quotation{}, 0, err
	}
	began := time.Now()
	sel := selection.Job{Selector: c.selector, Spec: spec}
	how := sel.Ask(o)
	how.All = true // all of them are shown
	got := c.Exchange.Collect(ctx, exchange.Silence{}, o, env, how)
	out := record.Quotation{Order: o.ID, Quotes: []record.QuotedOffer{}, Declined: []record.Declined{}, MaxCost: most,
		Took: time.Since(began)}
	out.Lamports = c.Wallet.Lamports(spec.Count, out.MaxCost)
	byKey, res, over := sel.Rank(o, got.Quotes)
	declined := append(got.Declined, over...)
	picked, _, none := match.Select(o, res, int(spec.Count), how.Spread)
	if none != nil {
		out.Reason = c.Exchange.Explain(ctx, o, none, byKey, declined)
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
		out.Quotes = append(out.Quotes, record.QuotedOffer{
			Units:    record.UnitsOf(q.Quote),
			Provider: p, Region: string(q.Quote.Region), Price: q.Quote.Price, Leases: q.Quote.Leases, Route: q.Route,
			Took:  q.Took,
			Ranks: ranks[p], Misfit: misfit[p], Ready: q.Offer.Ready.Has(o.Image),
		})
		cost, err := costOf(spec, c.Genesis.SlotMillis, slots, q.Quote.Price, ranks[p])
		if err == nil {
			out.Cost, err = out.Cost.Add(cost)
		}
		if err != nil {
			return out, 0, fmt.Errorf("%w: %w", record.ErrRefused, err)
		}
	}
	for _, d := range declined {
		if _, quoted := byKey[d.Provider]; !quoted {
			out.Declined = append(out.Declined, record.Declined{Provider: d.Provider, Reason: d.Detail})
		}
	}
	sortQuotes(&out)
	return out, o.Draw, nil
}

// costOf returns the cost of a number of ranks at one provider's price.
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
func sortQuotes(q *record.Quotation) {
	slices.SortFunc(q.Quotes, func(x, y record.QuotedOffer) int {
		switch {
		case (x.Ranks > 0) != (y.Ranks > 0):
			return map[bool]int{true: -1, false: 1}[x.Ranks > 0]
		case x.Price != y.Price:
			return map[bool]int{true: -1, false: 1}[x.Price < y.Price]
		}
		return slices.Compare(x.Provider[:], y.Provider[:])
	})
	slices.SortFunc(q.Declined, func(x, y record.Declined) int { return slices.Compare(x.Provider[:], y.Provider[:]) })
}

// affordable returns the number of slots that n more leases may last within the job's remaining time and money, and
// their maximum total cost. The money is divided among among leases, at least n.
func (c *Office) affordable(j record.Job, n, among int, committed market.Amount) (uint64, market.Amount, error) {
	left := j.Spec.Timeouts.Run
	if !j.Started.IsZero() {
		left -= time.Since(j.Started)
	}
	// The lease outlives the work by the time for the last receipt and the outputs.
	slots := c.Genesis.SlotsIn(max(left, time.Second)) + 2*c.Genesis.IntervalSlots
	rate, err := market.RateOf(j.Spec.Payment.MaxPrice, int(j.Spec.Resources.Units), c.Genesis.SlotMillis)
	if err != nil {
		return 0, 0, failed("payment.maxPrice: %v", err)
	}
	budget := j.Spec.Payment.Budget
	if rate > 0 && committed >= budget {
		return 0, 0, failed("the budget of %s is used up; raise payment.budget",
			c.Genesis.FormatAmount(budget))
	}
	// The money may last for less; the ceiling may be higher than the quotes.
	slots = min(slots, slotsFor(rate, (budget-committed)/market.Amount(among)))
	if slots < c.Genesis.IntervalSlots {
		left := c.Genesis.FormatAmount(budget - committed)
		return 0, 0, failed(
			"the %s left of the budget do not pay %d leases for one interval; raise payment.budget", left, among)
	}
	cost, err := rate.Owed(slots)
	if err == nil {
		cost, err = cost.Times(uint64(n))
	}
	if err != nil {
		return 0, 0, failed("maximum cost of the leases: %v", err)
	}
	return slots, cost, nil
}

// slotsFor is how many slots an amount pays at a rate.
func slotsFor(r market.Rate, a market.Amount) uint64 {
	hi, lo := bits.Mul64(uint64(a), market.RateScale)
	if hi >= uint64(r) { // also when it costs nothing
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, uint64(r))
	return q
}

// unpaid is the reason that the money of a job does not pay for an order.
type unpaid struct{ reason string }

func (u *unpaid) Error() string { return u.reason }

func failed(format string, args ...any) error { return &unpaid{fmt.Sprintf(format, args...)} }
