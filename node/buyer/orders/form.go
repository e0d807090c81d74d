package orders

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/gangs"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/selection"
	"github.com/starling-network/starling/node/job"
)

const (
	// searchTime is how long offers are looked for again where the network seems to have more than are known.
	searchTime = 20 * time.Second
	// orderValidity is how long an order is good: its quotes, reservations and signatures come within it.
	orderValidity = time.Minute
)

// compose writes an order for so many ranks, and its envelope.
func (s *Orders) compose(
	ranks int, slots uint64, budget market.Amount, choosy bool, asked int, valid time.Duration,
) (market.Order, []byte, error) {
	j := s.Snapshot()
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
	if j.Detached != nil && !(j.Started.IsZero() && s.Mine) && j.Detached.Escrow != nil { // it hires standbys
		own.funds = j.Detached.Escrow.Address
	}
	return s.cfg.write(s.As(), j.Spec, ranks, slots, budget, exclude, own)
}

// apart distinguishes an order from an equal one.
type apart struct {
	nonce market.Nonce
	salt  []byte    // of the hash of the job's terms
	terms sign.Hash // instead of that hash; zero: that hash
	asked int       // how often it was asked for before and brought too few quotes
	valid time.Duration
	funds sign.Key // the escrow that pays; zero: what the peer can spend
}

// write makes the order for n leases of a job.
func (c *Office) write(
	as run.Voice, spec job.Job, n int, slots uint64, budget market.Amount, exclude []sign.Key, own apart,
) (market.Order, []byte, error) {
	terms, err := as.Terms(spec, own.salt)
	if err != nil {
		return market.Order{}, nil, err
	}
	if !own.terms.IsZero() {
		terms = own.terms
	}
	draw, shard := c.Exchange.Draw(spec.Resources.Class, uint32(n), own.asked)
	o := market.Order{
		Class: spec.Resources.Class, Regions: spec.Placement.Regions, Count: uint32(n), UnitsPer: spec.Resources.Units,
		Min: spec.MinPerUnit(), MinCapability: spec.Resources.MinCapability, Unproven: spec.Resources.Unproven,
		Runtime: spec.Runtime, Slots: slots, Ceiling: spec.Payment.MaxPrice,
		Expires:  time.Now().Add(own.valid),
		ReplyKey: c.Exchange.ReplyKey(own.nonce), Draw: draw, Shard: shard, Exclude: exclude, JobTerms: terms,
		Egress: selection.Egress(spec), Nonce: own.nonce, Funds: own.funds,
	}
	if o.Funds.IsZero() {
		o.Funds = c.Wallet.Account()
	}
	if as.Key().Key() != c.Key.Key() { // this peer is the agent of its buyer
		if o, err = o.ByAgent(c.Genesis.Domain(), as.Key().Key(), c.Key); err != nil {
			return market.Order{}, nil, err
		}
	}
	return market.SealOrder(c.Genesis.Domain(), o, as.Key())
}

// drawnNonce is one that means nothing.
func drawnNonce() (n market.Nonce) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

// affordable is how many slots n more leases may last within the time and money that the job has left, and what they
// can cost together at the most. The money is for among leases, at least n.
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
		return 0, 0, failed("what the leases can cost: %v", err)
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

// request is a journalled order of leases for seats of the job, without its quotes.
func (s *Orders) request(o market.Order, env []byte, seats []jobs.Seat) gangs.Request {
	j := s.Snapshot()
	r := gangs.Request{
		Job: j.ID, Image: j.Spec.Image, Order: o, Envelope: env, Epochs: map[uint32]uint32{}, As: s.As(),
		Keys: s.As().Keys(), Limited: s.Mine, Trace: s.Trace,
	}
	for _, seat := range seats {
		r.Epochs[seat.Rank] = seat.Epoch
	}
	return r
}

// take publishes an order that is journalled, and takes all its leases or none. With a time until which it may recruit,
// an order of no cluster keeps its holds and collects further quotes until then. The gang is nil if none was begun.
func (s *Orders) take(
	ctx context.Context, o market.Order, env []byte, seats []jobs.Seat, until time.Time,
) (*gangs.Gang, error) {
	b, j := s.cfg, s.Snapshot()
	if j.Spec.Cluster != nil || j.Detached != nil || j.Replica != nil {
		until = time.Time{}
	}
	how := exchange.Ask{Direct: !j.Spec.Placement.GossipOnly, Spread: !j.Spec.Placement.Pack,
		Settle: exchange.SettleQuotes}
	if j.Spec.Cluster != nil {
		how.Settle, how.Cluster = exchange.SettleCluster, true
	}
	got := b.Exchange.Collect(ctx, s.Trace, o, env, how)
	recruits, again := !until.IsZero(), how
	again.Again = true
	for began := time.Now(); recruits && ctx.Err() == nil && time.Since(began) < searchTime && got.Scarce(); {
		again.Have = got.Quotes
		got = b.Exchange.Collect(ctx, s.Trace, o, env, again)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	sel := selection.Job{
		Selector: b.selector, Spec: j.Spec, Replica: j.Replica, Members: members{s.Job}, Trace: s.Trace,
	}
	choice, err := sel.Choose(ctx, o, got, ranksOf(seats), how, recruits)
	if err != nil {
		return nil, err
	}
	if j.Detached != nil {
		if err := s.prepare(ctx, o, choice.Spares, choice.Quotes); err != nil {
			return nil, err
		}
	}
	r := s.request(o, env, seats)
	r.Quotes = choice.Quotes
	if recruits {
		r.Recruit = &gangs.Recruiting{Until: until, Ask: how, Among: sel}
	}
	if c := j.Spec.Cluster; c != nil {
		r.Cluster = &gangs.Cluster{Timeout: mesh.MeasureTimeout, Members: members{s.Job}}
		if c.Network != "" {
			survey := mesh.NewSurvey(b.Host, b.Genesis.Tag(), c.Network)
			r.Cluster.Survey = mesh.Seating{Survey: survey, Members: members{s.Job}, Trace: s.Trace}
		}
	}
	return b.former.Form(ctx, r, choice.Members, choice.Spares)
}

// hire takes standbys by an order that is journalled. The money for them is in the job's escrow, and the guardians'
// word moves it.
func (s *Orders) hire(ctx context.Context, o market.Order, env []byte, seats []jobs.Seat) (*gangs.Gang, error) {
	if len(seats) > pay.MaxStandbyLeaves {
		return nil, &exchange.Unplaced{Reason: fmt.Sprintf(
			"%d ranks need standbys at once, at most %d are hired", len(seats), pay.MaxStandbyLeaves)}
	}
	quotes := s.standbys(o)
	if len(quotes) < len(seats) {
		return nil, &exchange.Unplaced{Raced: true, Reason: fmt.Sprintf(
			"%d ranks were lost, %d of the job's standbys are left (--standbys says how many it has)",
			len(seats), len(quotes))}
	}
	r, choice := s.request(o, env, seats), selection.InOrder(ranksOf(seats), quotes)
	r.Quotes = choice.Quotes
	return s.cfg.former.Form(ctx, r, choice.Members, choice.Spares)
}

func ranksOf(seats []jobs.Seat) (ranks []uint32) {
	for _, seat := range seats {
		ranks = append(ranks, seat.Rank)
	}
	return ranks
}

// members are the members of a job's cluster. It implements gangs.Members, selection.Members and mesh.Members.
type members struct{ job *run.Job }

// Leases returns the leases that the job's ranks have, by rank.
func (m members) Leases() []*leases.Lease { return m.job.Seats() }

// Unlivable implements gangs.Members.
func (m members) Unlivable(apart time.Duration) string {
	return selection.Unlivable(m.job.Peek().Spec.Cluster, apart)
}
