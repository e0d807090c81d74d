// Package selection chooses a provider for every rank of an order from the providers that quoted. It leaves out
// providers that do not meet the job's needs or limits, and ranks the others by market/match. The members of a cluster
// are chosen near to one another; the provider of a replica is drawn by the checks of results.
package selection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p"
)

// Limits bounds the money that goes to one provider.
type Limits interface {
	// OverProvider returns the reason if one more lease of a provider, with a cost of at most most, exceeds the limit
	// for today, or "".
	OverProvider(p sign.Key, most market.Amount) string
}

// Replicas draws the providers of jobs that compute a result again.
type Replicas interface {
	// Draw leaves the providers in a result that may compute it, in the order of the draw.
	Draw(ctx context.Context, r record.Replica, among match.Result) match.Result
}

// Members are the members that a cluster has.
type Members interface {
	// Leases returns the leases of the ranks that have one.
	Leases() []*leases.Lease
	// Unlivable returns the reason why a cluster cannot be where its members are so far apart, or "".
	Unlivable(apart time.Duration) string
}

// Config is the configuration of a Selector. All of it is required.
type Config struct {
	Host     *p2p.Host
	Genesis  market.Genesis
	Weights  match.Weights
	Exchange *exchange.Exchange
	Limits   Limits
	Replicas Replicas
}

// Selector chooses providers. It may be used by many goroutines.
type Selector struct{ cfg Config }

// New returns a Selector.
func New(cfg Config) *Selector { return &Selector{cfg} }

// Job is a job for which providers are chosen.
type Job struct {
	*Selector
	Spec    job.Job
	Replica *record.Replica // optional; if nil, the job is no replica
	Members Members         // that a cluster has; required for one
	Trace   exchange.Trace  // required for Choose
}

// Choice is the result of Choose.
type Choice struct {
	Members []gang.Member // one for each rank; the provider is zero for ranks left to recruits
	Spares  []sign.Key
	Quotes  map[sign.Key]exchange.Quoted
}

// InOrder returns the choice of one quote for each rank, in their order. The others are spares. There must be as many.
func InOrder(ranks []uint32, quotes []exchange.Quoted) Choice {
	out := Choice{Quotes: map[sign.Key]exchange.Quoted{}}
	for i, q := range quotes {
		p := q.Quote.Provider
		out.Quotes[p] = q
		if i < len(ranks) {
			out.Members = append(out.Members, gang.Member{Rank: ranks[i], Provider: p})
		} else {
			out.Spares = append(out.Spares, p)
		}
	}
	return out
}

// Rank implements gangs.Candidates. The refusals are those of providers that do not suit the job; the result has those
// of providers that do not fit the order.
func (j Job) Rank(
	o market.Order, quotes []exchange.Quoted,
) (map[sign.Key]exchange.Quoted, match.Result, []match.Refusal) {
	byKey, candidates, misfits := j.candidates(o, quotes)
	return byKey, match.Rank(o, candidates, time.Now(), j.cfg.Weights), misfits
}

// Ask returns how quotes for an order of the job are collected.
func (j Job) Ask(o market.Order) exchange.Ask {
	p := j.Spec.Placement
	a := exchange.Ask{Direct: !p.GossipOnly, Spread: !p.Pack, Settle: exchange.SettleQuotes, Only: j.Spec.Providers(),
		Suits: func(q exchange.Quoted) *market.Refusal { return j.refuse(o, q) }}
	if j.Spec.Cluster != nil {
		a.Settle, a.Cluster = exchange.SettleCluster, true
	}
	return a
}

// candidates converts quotes to the form of package match. It drops providers that reached their limit for today, or
// that the job's files cannot reach.
func (j Job) candidates(
	o market.Order, quotes []exchange.Quoted,
) (map[sign.Key]exchange.Quoted, []match.Candidate, []match.Refusal) {
	byKey := map[sign.Key]exchange.Quoted{}
	var out []match.Candidate
	var misfits []match.Refusal
	for _, q := range quotes {
		byKey[q.Quote.Provider] = q
		if no := j.refuse(o, q); no != nil {
			misfits = append(misfits,
				match.Refusal{Provider: q.Quote.Provider, Reason: no.Reason, Detail: no.Detail})
			continue
		}
		out = append(out, q.Candidate(j.cfg.Exchange))
	}
	j.cfg.Exchange.Rate(out)
	return byKey, out, misfits
}

// refuse returns the reason why the provider of a quote does not suit the job, or nil.
func (j Job) refuse(o market.Order, q exchange.Quoted) *market.Refusal {
	p := q.Quote.Provider
	if only := j.Spec.Providers(); len(only) > 0 && !slices.Contains(only, p) {
		return market.Refuse(market.ReasonUnwanted, "the job is for other providers alone")
	}
	if why := j.overLimit(o, q); why != "" {
		return &market.Refusal{Reason: market.ReasonLimit, Detail: why}
	}
	if j.Spec.Cluster != nil && q.Offer.NoClusters {
		return &market.Refusal{Reason: market.ReasonRuntime, Detail: "the provider does not join clusters"}
	}
	if no := Runs(j.Spec, q.Offer); no != nil {
		return no
	}
	if why := exchange.Narrow(j.cfg.Host, p, Brought(j.Spec)); why != "" {
		return &market.Refusal{Reason: market.ReasonLimit, Detail: why}
	}
	return nil
}

// overLimit returns the reason if one more lease of a quote's provider exceeds its limit for today, or "".
func (j Job) overLimit(o market.Order, q exchange.Quoted) string {
	rate, err := market.RateOf(q.Quote.Price, int(o.UnitsPer), j.cfg.Genesis.SlotMillis)
	if err != nil {
		return err.Error()
	}
	cost, err := rate.Owed(o.Slots)
	if err != nil {
		return err.Error()
	}
	return j.cfg.Limits.OverProvider(q.Quote.Provider, cost)
}

// recordOf describes a provider at the time of a choice for an order: its reputation, and whether it has the image.
func recordOf(c *match.Candidate, o market.Order) string {
	text := fmt.Sprintf("reputation %.4f", float64(c.Reputation)/1e6)
	switch {
	case c.Newcomer:
		text += ", a newcomer"
	case c.Shunned:
		text += ", shunned: taken after all others"
	}
	if c.Offer.Ready.Has(o.Image) {
		text += "; has the image, by its offer"
	}
	return text
}

// Choose ranks the quotes and picks a provider for every rank, or returns an *exchange.Unplaced. With recruits set, it
// leaves the last ranks to recruits if there are too few quotes, but enough with the open leases or the likely peers of
// the class.
func (j Job) Choose(
	ctx context.Context, o market.Order, got exchange.Collected, ranks []uint32, how exchange.Ask, recruits bool,
) (Choice, error) {
	byKey, candidates, misfits := j.candidates(o, got.Quotes)
	now := time.Now()
	j.infeasible(now, byKey, misfits)
	declined := append(got.Declined, misfits...)
	weights := j.cfg.Weights
	if j.Spec.Cluster != nil {
		weights.Keep = len(candidates) // a near provider may rank low
	}
	res := match.Rank(o, candidates, now, weights)
	j.infeasible(now, byKey, res.Refused)
	if j.Replica != nil {
		res = j.cfg.Replicas.Draw(ctx, *j.Replica, res)
	}
	picked, spares, none, err := j.pick(o, res, len(ranks), how.Spread)
	if err != nil {
		return Choice{}, err
	}
	if none != nil && recruits && none.Found < len(ranks) &&
		(none.Found+got.Open() >= len(ranks) || got.Likely()) {
		if none.Found > 0 {
			picked, spares, _ = match.Select(o, res, none.Found, how.Spread)
		}
		none = nil
	}
	if none != nil {
		unseen := slices.ContainsFunc(declined, func(r match.Refusal) bool { return r.Reason == market.ReasonUnseen })
		if only := j.Spec.Providers(); len(only) > 0 {
			return Choice{}, &exchange.Unplaced{Raced: unseen, Reason: refusals(only, append(declined, res.Refused...))}
		}
		return Choice{}, &exchange.Unplaced{Thin: o.Draw != match.DrawAll, Raced: unseen, Unsettled: got.Growing(),
			Reason: j.cfg.Exchange.Explain(ctx, o, none, byKey, declined)}
	}
	out := Choice{Spares: spares, Quotes: byKey}
	records := map[sign.Key]string{}
	for i := range candidates {
		records[candidates[i].Offer.Provider] = recordOf(&candidates[i], o)
	}
	for _, a := range picked {
		rank := ranks[a.Rank]
		out.Members = append(out.Members, gang.Member{Rank: rank, Provider: a.Provider})
		q, r := byKey[a.Provider], int(rank)
		j.Trace.Add(trace.Step{At: now, Kind: trace.Chosen, Rank: &r, Provider: a.Provider.String(), Route: q.Route,
			Price: j.cfg.Genesis.FormatAmount(market.Amount(q.Quote.Price)), Detail: records[a.Provider]})
	}
	for _, rank := range ranks[len(picked):] {
		out.Members = append(out.Members, gang.Member{Rank: rank}) // a recruit takes it
	}
	return out, nil
}

// refusals returns the answer of each of the only providers that are wanted.
func refusals(only []sign.Key, all []match.Refusal) string {
	var text []string
	for _, p := range only {
		why := "no answer"
		for _, r := range all {
			if r.Provider == p {
				why = r.Detail
			}
		}
		text = append(text, fmt.Sprintf("%s: %s", p.Short(), why))
	}
	return "no match: only these providers are wanted: " + strings.Join(text, "; ")
}

// infeasible adds refusals to the trace.
func (j Job) infeasible(now time.Time, byKey map[sign.Key]exchange.Quoted, refused []match.Refusal) {
	for _, r := range refused {
		j.Trace.Add(trace.Step{At: now, Kind: trace.Infeasible, Provider: r.Provider.String(),
			Route: byKey[r.Provider].Route, Detail: r.Detail})
	}
}

// pick picks the providers of n ranks. It returns the reason if there are not enough, and an error if a cluster's
// cannot be near enough.
func (j Job) pick(
	o market.Order, res match.Result, n int, spread bool,
) ([]match.Assignment, []sign.Key, *match.Unschedulable, error) {
	if j.Spec.Cluster != nil {
		return j.pickCluster(o, res, n, spread, j.Spec.Cluster.Network)
	}
	picked, spares, none := match.Select(o, res, n, spread)
	return picked, spares, none, nil
}

// coordinateSlack is how much farther apart than its class allows finalists may be by their coordinates, which are
// never better than that: the real ones are measured.
const coordinateSlack = 5 * time.Millisecond

// pickCluster picks members for ranks of a cluster, near to one another and to the members that it has.
func (j Job) pickCluster(
	o market.Order, res match.Result, n int, spread bool, wanted cluster.Class,
) ([]match.Assignment, []sign.Key, *match.Unschedulable, error) {
	var near match.Near
	if wanted.RTT() > 0 {
		near.Within = wanted.RTT() + coordinateSlack
	}
	for _, l := range j.Members.Leases() {
		near.Members = append(near.Members, j.cfg.Exchange.Book.Coordinate(l.Core.Provider))
	}
	got, err := match.SelectCluster(o, res, n, spread, near)
	var none *match.Unschedulable
	var far *match.TooFar
	switch {
	case err == nil:
		if got.Diameter > 0 {
			j.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Chosen,
				Detail: fmt.Sprintf("%d of %d providers for a cluster on a %s, by their coordinates up to %v apart", n,
					len(res.Ranked), wanted, record.RoundTrip(got.Diameter))})
		}
		return got.Chosen, got.Spares, nil, nil
	case errors.As(err, &none):
		return nil, nil, none, nil
	case errors.As(err, &far) && far.Apart > 0:
		return nil, nil, nil, &exchange.Unplaced{Thin: o.Draw != match.DrawAll, Reason: j.Members.Unlivable(far.Apart) +
			fmt.Sprintf("the best %d of %d providers are %v apart", far.Need, far.Of, record.RoundTrip(far.Apart))}
	case errors.As(err, &far):
		return nil, nil, nil, &exchange.Unplaced{Thin: o.Draw != match.DrawAll,
			Reason: fmt.Sprintf("want a %s, under %v: fewer than %d of %d providers are that near to the "+
				"cluster's members", wanted, wanted.RTT(), far.Need, far.Of)}
	}
	return nil, nil, nil, err
}
