package buyer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/runtime"
)

const (
	// stepTimeout is how long one provider may take to reserve, sign or activate.
	stepTimeout = 2 * time.Second
	// formTimeout bounds forming one gang, quotes and setting money aside not counted.
	formTimeout = 10 * time.Second
	// searchTime is how long offers are looked for again where the network seems to have more than are known.
	searchTime = 20 * time.Second
	// orderValidity is how long an order is good: its quotes, reservations and signatures come within it.
	orderValidity = time.Minute
)

// ordersSent has the envelope of every order that was sent, by its id.
var ordersSent = journal.DefineRaw("order")

// unplaced says that an order found no n providers.
type unplaced struct {
	raced     bool // there were quotes enough, the units went elsewhere; or providers did not see whether it can pay
	unsettled bool // there were, and some reach each other over relays only, or not, yet
	thin      bool // not all providers that heard the order were to quote for it
	reason    string
}

func (u *unplaced) Error() string { return u.reason }

// compose writes an order for so many ranks, and its envelope.
func (s *supervisor) compose(
	ranks int, slots uint64, budget market.Amount, choosy bool, asked int, valid time.Duration,
) (market.Order, []byte, error) {
	j := s.snapshot()
	exclude := j.Spec.Placement.Exclude
	if j.Detached != nil { // who guards a job does not work for it
		for _, m := range j.Detached.Guardians {
			if len(exclude) < market.MaxExclude {
				exclude = append(slices.Clip(exclude), m.Key)
			}
		}
	}
	if room := market.MaxExclude - len(exclude); choosy && room > 0 {
		exclude = slices.Concat(exclude, j.Lost[max(0, len(j.Lost)-room):])
	}
	own := apart{nonce: drawnNonce()}
	if j.Cluster != nil {
		own.terms = j.Cluster.Terms
	}
	if !j.Nonce.IsZero() { // the hash of its terms is not one that somebody could guess, to see whether it is a replica
		own = apart{nonce: j.OrderNonce(), salt: j.Nonce[:]}
	}
	own.asked, own.valid = asked, valid
	if s.guard != nil && !(j.Started.IsZero() && s.mine) && j.Detached.Escrow != nil { // it hires standbys
		own.funds = j.Detached.Escrow.Address
	}
	return s.b.write(s.as, j.Spec, ranks, slots, budget, exclude, own)
}

// affordable is how many slots n more leases may last within the time and money that the job has left, and what they
// can cost together at the most. The money is for among leases, at least n.
func (b *Buyer) affordable(j Job, n, among int, committed market.Amount) (uint64, market.Amount, error) {
	left := j.Spec.Timeouts.Run
	if !j.Started.IsZero() {
		left -= time.Since(j.Started)
	}
	// The lease outlives the work by the time for the last receipt and the outputs.
	slots := b.cfg.Genesis.SlotsIn(max(left, time.Second)) + 2*b.cfg.Genesis.IntervalSlots
	rate, err := market.RateOf(j.Spec.Payment.MaxPrice, int(j.Spec.Resources.Units), b.cfg.Genesis.SlotMillis)
	if err != nil {
		return 0, 0, failed(CodePayment, "payment.maxPrice: %v", err)
	}
	budget := j.Spec.Payment.Budget
	if rate > 0 && committed >= budget {
		return 0, 0, failed(CodePayment, "the budget of %s is used up; raise payment.budget",
			b.cfg.Genesis.FormatAmount(budget))
	}
	// The money may last for less; the ceiling may be higher than the quotes.
	slots = min(slots, slotsFor(rate, (budget-committed)/market.Amount(among)))
	if slots < b.cfg.Genesis.IntervalSlots {
		left := b.cfg.Genesis.FormatAmount(budget - committed)
		return 0, 0, failed(CodePayment,
			"the %s left of the budget do not pay %d leases for one interval; raise payment.budget", left, among)
	}
	cost, err := rate.Owed(slots)
	if err == nil {
		cost, err = cost.Times(uint64(n))
	}
	if err != nil {
		return 0, 0, failed(CodePayment, "what the leases can cost: %v", err)
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

// mostCost returns the most that a job can cost.
func mostCost(spec job.Job) (market.Amount, error) {
	cost, err := spec.MaxCost()
	return min(cost, spec.Payment.Budget), err
}

// take publishes an order that is journalled, and takes all its leases or none. An order that found nobody is an
// *unplaced. With a time until which it may recruit, an order of no cluster keeps its holds and collects further quotes
// until then.
func (s *supervisor) take(
	ctx context.Context, o market.Order, env []byte, ranks []uint32, until time.Time,
) (*forming, error) {
	b, j := s.b, s.snapshot()
	if j.Spec.Cluster != nil || s.guard != nil || j.Replica != nil {
		until = time.Time{}
	}
	how := exchange.Ask{Direct: !j.Spec.Placement.GossipOnly, Spread: !j.Spec.Placement.Pack,
		Settle: exchange.SettleQuotes}
	if j.Spec.Cluster != nil {
		how.Settle, how.Cluster = exchange.SettleCluster, true
	}
	got := b.exchange.Collect(ctx, s.trace, o, env, how)
	recruits, again := !until.IsZero(), how
	again.Again = true
	for began := time.Now(); recruits && ctx.Err() == nil && time.Since(began) < searchTime && got.Scarce(); {
		again.Have = got.Quotes
		got = b.exchange.Collect(ctx, s.trace, o, env, again)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	chosen, spares, routes, err := s.choose(ctx, o, got, ranks, how, recruits)
	if err != nil {
		return nil, err
	}
	if s.guard != nil {
		if err := s.prepare(ctx, o, spares, routes); err != nil {
			return nil, err
		}
	}
	f := &forming{s: s, order: o, envelope: env, quotes: routes, drafts: map[market.HoldID]*draft{},
		events: make(chan gang.Event, 4*len(ranks)+16), until: until, how: how}
	if c := j.Spec.Cluster; c != nil {
		f.overlay, f.near, f.paths = true, c.Network, mesh.NewSurvey(b.cfg.Host, b.tag, c.Network)
	}
	defer f.uncommit()
	return f, f.run(ctx, chosen, spares)
}

// candidates are quotes as matching sees them, without those of providers that got what they may get today, or to which
// the job's files cannot be brought.
func (b *Buyer) candidates(
	spec job.Job, o market.Order, quotes []exchange.Quoted,
) (map[sign.Key]exchange.Quoted, []match.Candidate, []match.Refusal) {
	byKey := map[sign.Key]exchange.Quoted{}
	var cands []match.Candidate
	var over []match.Refusal
	for _, q := range quotes {
		p := q.Quote.Provider
		byKey[p] = q
		if why := b.tooMuchFor(o, q); why != "" {
			over = append(over, match.Refusal{Provider: p, Reason: market.ReasonLimit, Detail: why})
			continue
		}
		if spec.Cluster != nil && q.Offer.NoClusters {
			over = append(over, match.Refusal{Provider: p, Reason: market.ReasonRuntime,
				Detail: "it takes part in no clusters"})
			continue
		}
		if no := Runs(spec, q.Offer); no != nil {
			over = append(over, match.Refusal{Provider: p, Reason: no.Reason, Detail: no.Detail})
			continue
		}
		if why := exchange.Narrow(b.cfg.Host, p, brought(spec)); why != "" {
			over = append(over, match.Refusal{Provider: p, Reason: market.ReasonLimit, Detail: why})
			continue
		}
		c := match.Candidate{Offer: q.Offer, RTT: b.exchange.Book.RTT(p), Shown: b.exchange.Shown(q.Offer),
			Quote: &q.Quote, Route: q.Route}
		cands = append(cands, c)
	}
	b.exchange.Rate(cands)
	return byKey, cands, over
}

// egressOf is the least that a job's containers must reach outside.
func egressOf(spec job.Job) market.Egress {
	switch {
	case spec.Network != runtime.NetworkInternet:
		return market.EgressNone
	case spec.Cluster != nil: // what a provider lists is enough for one
		return market.EgressListed
	}
	return market.EgressInternet
}

// Runs refuses an offer that says that its provider does not run the job's image, or not with the network that it
// needs; nil where it does.
func Runs(spec job.Job, o market.Offer) *market.Refusal {
	if no := o.Egress.Refuse(egressOf(spec)); no != nil {
		return no
	}
	if spec.Image == "" {
		return nil
	}
	images, err := o.Images.Patterns()
	if err == nil {
		err = images.Check(spec.Image)
	}
	var no *market.Refusal
	if err != nil && !errors.As(err, &no) {
		no = market.Refuse(market.ReasonImage, "%v", err)
	}
	return no
}

// reputationOf describes a provider's reputation at the time of a choice.
func reputationOf(c *match.Candidate) string {
	text := fmt.Sprintf("reputation %.4f", float64(c.Reputation)/1e6)
	switch {
	case c.Newcomer:
		text += ", a newcomer"
	case c.Shunned:
		text += ", shunned: taken after all others"
	}
	return text
}

// choose ranks the quotes and picks a provider for every rank. Where they are too few, and with the open leases there
// would be enough, or with peers that the class is likely to have, it leaves the last ranks to recruits.
func (s *supervisor) choose(
	ctx context.Context, o market.Order, got exchange.Collected, ranks []uint32, how exchange.Ask, recruits bool,
) (members []gang.Member, spares []sign.Key, routes map[sign.Key]exchange.Quoted, err error) {
	b := s.b
	byKey, cands, over := b.candidates(s.snapshot().Spec, o, got.Quotes)
	now := time.Now()
	for _, r := range over {
		s.trace.Add(Step{At: now, Kind: StepInfeasible, Provider: r.Provider.String(), Route: byKey[r.Provider].Route,
			Detail: r.Detail})
	}
	declined := append(got.Declined, over...)
	weights := b.cfg.Weights
	cluster := s.snapshot().Spec.Cluster
	if cluster != nil {
		weights.Keep = len(cands) // who is near may rank low
	}
	res := match.Rank(o, cands, now, weights)
	for _, r := range res.Refused {
		s.trace.Add(Step{At: now, Kind: StepInfeasible, Provider: r.Provider.String(), Route: byKey[r.Provider].Route,
			Detail: r.Detail})
	}
	if r := s.snapshot().Replica; r != nil {
		res = b.checks.Draw(ctx, *r, res)
	}
	var picked []match.Assignment
	var spare []sign.Key
	var none *match.Unschedulable
	if cluster != nil {
		if picked, spare, none, err = s.chooseCluster(o, res, len(ranks), how.Spread, cluster.Network); err != nil {
			return nil, nil, nil, err
		}
	} else {
		picked, spare, none = match.Select(o, res, len(ranks), how.Spread)
	}
	if none != nil && recruits && none.Found < len(ranks) && (none.Found+got.Open() >= len(ranks) || got.Likely()) {
		if none.Found > 0 {
			picked, spare, _ = match.Select(o, res, none.Found, how.Spread)
		}
		none = nil
	}
	if none != nil {
		unseen := slices.ContainsFunc(declined, func(r match.Refusal) bool { return r.Reason == market.ReasonUnseen })
		return nil, nil, nil, &unplaced{thin: o.Draw != match.DrawAll, raced: unseen,
			reason: b.exchange.Explain(ctx, o, none, byKey, declined)}
	}
	records := map[sign.Key]string{}
	for i := range cands {
		records[cands[i].Offer.Provider] = reputationOf(&cands[i])
	}
	for _, a := range picked {
		rank := ranks[a.Rank]
		members = append(members, gang.Member{Rank: rank, Provider: a.Provider})
		q := byKey[a.Provider]
		r := int(rank)
		s.trace.Add(Step{At: now, Kind: StepChosen, Rank: &r, Provider: a.Provider.String(), Route: q.Route,
			Price: b.cfg.Genesis.FormatAmount(market.Amount(q.Quote.Price)), Detail: records[a.Provider]})
	}
	for _, rank := range ranks[len(picked):] {
		members = append(members, gang.Member{Rank: rank}) // a recruit takes it
	}
	return members, spare, byKey, nil
}

// brought is how many bytes of files the rank that needs most has to be brought.
func brought(spec job.Job) int64 {
	var most int64
	for rank := range int(spec.Count) {
		size := spec.Blobs[spec.Module].Size
		for _, in := range spec.Inputs {
			size += spec.Blobs[in.For(rank)].Size
		}
		most = max(most, size)
	}
	return most
}
