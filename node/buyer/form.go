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
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

const (
	kindOrder = "order" // the envelope of every order that was sent, by order id

	// stepTimeout is how long one provider may take to reserve, sign or activate.
	stepTimeout = 2 * time.Second
	// releaseTimeout is how long a release is waited for; the provider's own deadline frees what it did not hear.
	releaseTimeout = 2 * time.Second
	// formTimeout bounds forming one gang, quotes and setting money aside not counted.
	formTimeout = 10 * time.Second
	// orderValidity is how long an order is good: its quotes, reservations and signatures come within it.
	orderValidity = time.Minute
)

// leaseAll takes leases for every rank that has none, as one gang.
func (s *supervisor) leaseAll(ctx context.Context) error {
	var missing []uint32
	s.mu.Lock()
	for i, l := range s.leases {
		if l == nil && s.job.Ranks[i].State != RankDone {
			missing = append(missing, uint32(i))
		}
	}
	s.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	return s.lease(ctx, missing)
}

// leaseOf returns the lease of a rank, taking a new one when it has none.
func (s *supervisor) leaseOf(ctx context.Context, i int) (*bought, error) {
	s.mu.Lock()
	l := s.leases[i]
	s.mu.Unlock()
	if l != nil {
		return l, nil
	}
	if err := s.lease(ctx, []uint32{uint32(i)}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[i], nil
}

// settleFor is how long providers are waited for that reach each other over relays only, or not yet, in the queue time.
const settleFor = time.Minute

// lease orders and takes leases for ranks, all or none. While the queue time
// lasts an order that found nobody is tried again, but not the first one of a job:
// a job that cannot be placed fails at once.
func (s *supervisor) lease(ctx context.Context, ranks []uint32) error {
	first := s.snapshot().Started.IsZero()
	if first {
		if err := s.save(ctx, func(j *Job) { j.State = Matching }); err != nil {
			return err
		}
	}
	began := time.Now()
	until := began.Add(s.snapshot().Spec.Timeouts.Queue)
	thin := 0 // how often too few providers were drawn
	for attempt := 0; ; attempt++ {
		err := s.form(ctx, ranks, attempt == 0, thin)
		var none *unplaced
		if err == nil || !errors.As(err, &none) {
			return err
		}
		// A rank that was lost waits for units within the queue time: peers restart. So does a job
		// whose own peer restarted, and an order that found enough quotes and lost them to others, or whose providers did not find to each other yet.
		if none.thin {
			thin++
		}
		if retry := none.thin || !first || s.resumed || none.raced || none.unsettled && time.Since(began) < settleFor; !retry || ctx.Err() != nil {
			return failed(CodeNoMatch, "%v", none)
		}
		if time.Now().After(until) {
			return failed(CodeTimeout, "not placed within timeouts.queue of %v: %v", s.snapshot().Spec.Timeouts.Queue, none)
		}
		if err := pause(ctx, jitter(time.Duration(min(attempt+1, 8))*250*time.Millisecond)); err != nil {
			return err
		}
	}
}

// unplaced says that an order found no n providers.
type unplaced struct {
	raced     bool // there were quotes enough, the units went elsewhere; or providers did not see whether it can pay
	unsettled bool // there were, and some reach each other over relays only, or not, yet
	thin      bool // not all providers that heard the order were to quote for it
	reason    string
}

func (u *unplaced) Error() string { return u.reason }

// order writes the order for ranks, and journals it before anybody sees it. It
// also counts the ranks' epochs up, so that no two leases of one rank share one.
func (s *supervisor) order(ctx context.Context, ranks []uint32, slots uint64, budget market.Amount, choosy bool, asked int) (market.Order, []byte, error) {
	o, env, err := s.compose(len(ranks), slots, budget, choosy, asked)
	if err != nil {
		return o, nil, err
	}
	err = s.save(ctx, func(j *Job) {
		j.Orders = append(j.Orders, o.ID)
		for _, r := range ranks {
			j.Ranks[r].Epoch++
		}
	}, store.Put{Kind: kindOrder, Key: o.ID.String(), Value: env})
	return o, env, err
}

// compose writes an order for so many ranks, and its envelope.
func (s *supervisor) compose(ranks int, slots uint64, budget market.Amount, choosy bool, asked int) (market.Order, []byte, error) {
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
		own = apart{nonce: replica.Nonce(j.Nonce).OrderNonce(uint64(len(j.Orders))), salt: j.Nonce[:]}
	}
	own.asked = asked
	if s.guard != nil && !j.Started.IsZero() && j.Detached.Escrow != nil { // it hires standbys
		own.funds = j.Detached.Escrow.Address
	}
	return s.b.write(s.as, j.Spec, ranks, slots, budget, exclude, own)
}

// share sets money aside for n more leases: how many slots they may last, and
// what they can cost together. Ranks that are replaced at the same time must not
// count on the same money. The caller calls back when the leases count themselves.
func (s *supervisor) share(n int) (slots uint64, most market.Amount, back func(), err error) {
	s.money.Lock()
	defer s.money.Unlock()
	s.mu.Lock()
	without := 0
	for i, l := range s.leases {
		if l == nil && s.job.Ranks[i].State != RankDone {
			without++
		}
	}
	s.mu.Unlock()
	among := max(n, without-s.taking)
	if j := s.snapshot(); s.guard != nil && j.Started.IsZero() { // standbys are paid of the same money
		among += int(j.Spec.Standbys)
	}
	slots, most, err = s.b.affordable(s.snapshot(), n, among, s.committed()+s.promised)
	if err != nil {
		return 0, 0, nil, err
	}
	s.promised += most
	s.taking += n
	return slots, most, func() {
		s.money.Lock()
		defer s.money.Unlock()
		s.promised -= most
		s.taking -= n
	}, nil
}

// affordable is how many slots n more leases may last within the time and money
// that the job has left, and what they can cost together at the most. The money is
// for among leases, at least n.
func (b *Buyer) affordable(j Job, n, among int, committed market.Amount) (uint64, market.Amount, error) {
	left := j.Spec.Timeouts.Run
	if !j.Started.IsZero() {
		left -= time.Since(j.Started)
	}
	// The lease outlives the work by what its end takes: the last receipt and the outputs.
	slots := b.cfg.Genesis.SlotsIn(max(left, time.Second)) + 2*b.cfg.Genesis.IntervalSlots
	rate, err := market.RateOf(j.Spec.Payment.MaxPrice, int(j.Spec.Resources.Units), b.cfg.Genesis.SlotMillis)
	if err != nil {
		return 0, 0, failed(CodePayment, "payment.maxPrice: %v", err)
	}
	budget := j.Spec.Payment.Budget
	if rate > 0 && committed >= budget {
		return 0, 0, failed(CodePayment, "the budget of %s is used up; raise payment.budget", b.cfg.Genesis.FormatAmount(budget))
	}
	// What the money allows may be shorter; the ceiling may be higher than what is quoted.
	slots = min(slots, slotsFor(rate, (budget-committed)/market.Amount(among)))
	if slots < b.cfg.Genesis.IntervalSlots {
		return 0, 0, failed(CodePayment, "the %s left of the budget do not pay %d leases for one interval; raise payment.budget",
			b.cfg.Genesis.FormatAmount(budget-committed), among)
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

// mostCost is what a job can cost at the most.
func mostCost(spec job.Job) (market.Amount, error) {
	cost, err := spec.MaxCost()
	return min(cost, spec.Payment.Budget), err
}

// form places one order for ranks and takes all its leases or none. Choosy, it
// leaves out the providers that lost a rank of the job before. asked is how often orders for them brought too few quotes.
func (s *supervisor) form(ctx context.Context, ranks []uint32, choosy bool, asked int) error {
	b := s.b
	if s.guard != nil && !s.snapshot().Started.IsZero() {
		return s.hire(ctx, ranks)
	}
	began, extended := time.Now(), s.snapshot().Extended
	slots, budget, back, err := s.share(len(ranks))
	if err != nil {
		return err
	}
	defer back()
	o, env, err := s.order(ctx, ranks, slots, budget, choosy, asked)
	if err != nil {
		return err
	}
	if _, err := s.take(ctx, o, env, ranks); err != nil {
		return err
	}
	if s.snapshot().Extended != extended { // what was ordered is too short by now
		b.wg.Go(func() { s.stretch(ctx) })
	}
	s.trace.Add(Step{At: time.Now(), Kind: StepLeased, Took: time.Since(began), Detail: fmt.Sprintf("order %s: %d leases", o.ID.Short(), len(ranks))})
	return nil
}

// take publishes an order that is journalled, and takes all its leases or none. An order that found nobody is an *unplaced.
func (s *supervisor) take(ctx context.Context, o market.Order, env []byte, ranks []uint32) (*forming, error) {
	b, j := s.b, s.snapshot()
	how := exchange.Ask{Direct: !j.Spec.Placement.GossipOnly, Spread: !j.Spec.Placement.Pack, Settle: exchange.SettleQuotes}
	if j.Spec.Cluster != nil {
		how.Settle, how.Cluster = exchange.SettleCluster, true
	}
	quotes, declined := b.exchange.Collect(ctx, s.trace, o, env, how)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	chosen, spares, routes, err := s.choose(ctx, o, quotes, declined, ranks, how)
	if err != nil {
		return nil, err
	}
	if s.guard != nil {
		if err := s.prepare(ctx, o, spares, routes); err != nil {
			return nil, err
		}
	}
	f := &forming{s: s, order: o, envelope: env, quotes: routes, drafts: map[market.HoldID]*draft{}, events: make(chan gang.Event, 4*len(ranks)+16)}
	if c := j.Spec.Cluster; c != nil {
		f.overlay, f.near, f.paths = true, c.Network, mesh.NewSurvey(b.cfg.Host, b.tag, c.Network)
	}
	defer f.uncommit()
	return f, f.run(ctx, chosen, spares)
}

// candidates are quotes as matching sees them, without those of providers that got what they may get today, or to which the
// job's files cannot be brought.
func (b *Buyer) candidates(spec job.Job, o market.Order, quotes []exchange.Quoted) (map[sign.Key]exchange.Quoted, []match.Candidate, []match.Refusal) {
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
			over = append(over, match.Refusal{Provider: p, Reason: market.ReasonRuntime, Detail: "it takes part in no clusters"})
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
		c := match.Candidate{Offer: q.Offer, RTT: b.exchange.Book.RTT(p), Shown: b.exchange.Shown(q.Offer), Quote: &q.Quote, Route: q.Route}
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
	case spec.Cluster != nil: // what a provider lists will do for one
		return market.EgressListed
	}
	return market.EgressInternet
}

// Runs refuses an offer that says that its provider does not run the job's image, or not with the network that it needs; nil where it does.
func Runs(spec job.Job, o market.Offer) *market.Refusal {
	if no := o.Egress.Refuse(egressOf(spec)); no != nil {
		return no
	}
	if spec.Image == "" {
		return nil
	}
	images, err := o.Images.Images()
	if err == nil {
		err = images.Check(spec.Image)
	}
	var no *market.Refusal
	if err != nil && !errors.As(err, &no) {
		no = market.Refuse(market.ReasonImage, "%v", err)
	}
	return no
}

// tooMuchFor reports whether one more lease of the provider of a quote is over its limit for today; "" if it is not.
func (b *Buyer) tooMuchFor(o market.Order, q exchange.Quoted) string {
	rate, err := market.RateOf(q.Quote.Price, int(o.UnitsPer), b.cfg.Genesis.SlotMillis)
	if err != nil {
		return err.Error()
	}
	cost, err := rate.Owed(o.Slots)
	if err != nil {
		return err.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.overProvider(q.Quote.Provider, cost, time.Now())
}

// record says in words what a choice knew of a provider's record.
func record(c *match.Candidate) string {
	text := fmt.Sprintf("reputation %.4f", float64(c.Reputation)/1e6)
	switch {
	case c.Newcomer:
		text += ", a newcomer"
	case c.Shunned:
		text += ", shunned: taken after all others"
	}
	return text
}

// choose ranks the quotes and picks a provider for every rank.
func (s *supervisor) choose(ctx context.Context, o market.Order, quotes []exchange.Quoted, declined []match.Refusal, ranks []uint32, how exchange.Ask) (members []gang.Member, spares []sign.Key, routes map[sign.Key]exchange.Quoted, err error) {
	b := s.b
	byKey, cands, over := b.candidates(s.snapshot().Spec, o, quotes)
	now := time.Now()
	for _, r := range over {
		s.trace.Add(Step{At: now, Kind: StepInfeasible, Provider: r.Provider.String(), Route: byKey[r.Provider].Route, Detail: r.Detail})
	}
	declined = append(declined, over...)
	weights := b.cfg.Weights
	cluster := s.snapshot().Spec.Cluster
	if cluster != nil {
		weights.Keep = len(cands) // who is near may rank low
	}
	res := match.Rank(o, cands, now, weights)
	for _, r := range res.Refused {
		s.trace.Add(Step{At: now, Kind: StepInfeasible, Provider: r.Provider.String(), Route: byKey[r.Provider].Route, Detail: r.Detail})
	}
	if r := s.snapshot().Replica; r != nil {
		res = b.draw(ctx, *r, res)
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
	if none != nil {
		unseen := slices.ContainsFunc(declined, func(r match.Refusal) bool { return r.Reason == market.ReasonUnseen })
		return nil, nil, nil, &unplaced{thin: o.Draw != match.DrawAll, raced: unseen, reason: b.exchange.Explain(ctx, o, none, byKey, declined)}
	}
	records := map[sign.Key]string{}
	for i := range cands {
		records[cands[i].Offer.Provider] = record(&cands[i])
	}
	for _, a := range picked {
		rank := ranks[a.Rank]
		members = append(members, gang.Member{Rank: rank, Provider: a.Provider})
		q := byKey[a.Provider]
		r := int(rank)
		s.trace.Add(Step{At: now, Kind: StepChosen, Rank: &r, Provider: a.Provider.String(), Route: q.Route,
			Price: b.cfg.Genesis.FormatAmount(market.Amount(q.Quote.Price)), Detail: records[a.Provider]})
	}
	return members, spare, byKey, nil
}
