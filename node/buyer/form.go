package buyer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	kindOrder = "order" // the envelope of every order that was sent, by order id

	// stepTimeout is how long one provider may take to reserve, sign or activate.
	stepTimeout = 2 * time.Second
	// releaseTimeout is how long a release is waited for; the provider's own deadline frees what it did not hear.
	releaseTimeout = 2 * time.Second
	// formTimeout bounds forming one gang, quotes not counted.
	formTimeout = 10 * time.Second
	// orderValidity is how long an order is good: its quotes, reservations and signatures come within it.
	orderValidity = time.Minute
	// drawFactor is how many providers are asked by lot to quote, for each lease wanted.
	drawFactor = 3
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

// lease orders and takes leases for ranks, all or none. While the queue time
// lasts a job whose order found nobody tries again, but only one that has run
// before or that asked to wait: a job that cannot be placed fails at once.
func (s *supervisor) lease(ctx context.Context, ranks []uint32) error {
	first := s.snapshot().Started.IsZero()
	if first {
		if err := s.save(ctx, func(j *Job) { j.State = Matching }); err != nil {
			return err
		}
	}
	until := time.Now().Add(s.snapshot().Spec.Timeouts.Queue)
	for attempt := 0; ; attempt++ {
		err := s.form(ctx, ranks, attempt)
		var none *unplaced
		if err == nil || !errors.As(err, &none) {
			return err
		}
		// A rank that was lost waits for units within the queue time: peers restart. So does an
		// order that found enough quotes and lost them on the way to others.
		if retry := !first || none.raced; !retry || time.Now().After(until) || ctx.Err() != nil {
			return failed(CodeNoMatch, "%v", none)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(jitter(time.Duration(min(attempt+1, 8)) * 250 * time.Millisecond)):
		}
	}
}

// jitter spreads retries, so that two buyers that blocked each other do not meet again.
func jitter(d time.Duration) time.Duration {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return d/2 + d*time.Duration(uint16(b[0])<<8|uint16(b[1]))/(1<<16)
}

// unplaced says that an order found no n providers.
type unplaced struct {
	raced  bool // there were quotes enough, the units went elsewhere
	reason string
}

func (u *unplaced) Error() string { return u.reason }

// order writes the order for ranks, and journals it before anybody sees it.
func (s *supervisor) order(ctx context.Context, ranks []uint32) (market.Order, []byte, error) {
	j := s.snapshot()
	slots, budget, err := s.b.affordable(j, len(ranks), s.committed())
	if err != nil {
		return market.Order{}, nil, err
	}
	terms, err := jobTerms(j.Spec)
	if err != nil {
		return market.Order{}, nil, err
	}
	o := market.Order{
		Class: j.Spec.Resources.Class, Regions: j.Spec.Placement.Regions, Count: uint32(len(ranks)), UnitsPer: j.Spec.Resources.Units,
		Min: j.Spec.Resources.PerUnit, Runtime: j.Spec.Runtime, Slots: slots, Ceiling: j.Spec.Payment.MaxPrice,
		Expires: time.Now().Add(orderValidity), FundsAccount: s.b.cfg.Owner, Funds: budget,
		Draw: drawFactor * uint32(len(ranks)), Exclude: j.Spec.Placement.Exclude, JobTerms: terms,
	}
	for _, a := range s.b.cfg.Host.Addrs() {
		if len(o.ReplyTo) < market.MaxAddrs {
			o.ReplyTo = append(o.ReplyTo, a.String())
		}
	}
	if _, err := rand.Read(o.Nonce[:]); err != nil {
		return o, nil, err
	}
	o, env, err := market.SealOrder(s.b.domain, o, s.b.cfg.Key)
	if err != nil {
		return o, nil, err
	}
	err = s.save(ctx, func(j *Job) { j.Orders = append(j.Orders, o.ID) },
		store.Put{Kind: kindOrder, Key: o.ID.String(), Value: env})
	return o, env, err
}

func jobTerms(spec job.Job) (sign.Hash, error) {
	b, err := job.Marshal(spec)
	if err != nil {
		return sign.Hash{}, err
	}
	return sign.Sum([]byte("starling/terms/v1"), b), nil
}

// affordable is how many slots n more leases may last within the time and money
// that the job has left, and what they can cost together at the most.
func (b *Buyer) affordable(j Job, n int, committed market.Amount) (uint64, market.Amount, error) {
	left := j.Spec.Timeouts.Run
	if !j.Started.IsZero() {
		left -= time.Since(j.Started)
	}
	// The lease outlives the work by what its end takes: the last receipt and the outputs.
	slots := b.cfg.Genesis.SlotsIn(max(left, time.Second)) + 2*b.cfg.Genesis.IntervalSlots
	rate, err := market.RateOf(j.Spec.Payment.MaxPrice, int(j.Spec.Resources.Units), b.cfg.Genesis.SlotMillis)
	if err != nil {
		return 0, 0, failed(CodePayment, "%v", err)
	}
	budget := j.Spec.Payment.Budget
	if committed >= budget {
		return 0, 0, failed(CodePayment, "the budget of %s is used up", b.cfg.Genesis.FormatAmount(budget))
	}
	each := (budget - committed) / market.Amount(n)
	for {
		cost, err := rate.Owed(slots)
		if err != nil {
			return 0, 0, failed(CodePayment, "%v", err)
		}
		if cost <= each {
			all, err := cost.Times(uint64(n))
			return slots, all, err
		}
		// Shorten to what the money allows; the ceiling may be higher than what is quoted.
		shorter := uint64(each) * market.RateScale / max(uint64(rate), 1)
		if shorter >= slots {
			shorter = slots - 1
		}
		if slots = shorter; slots < b.cfg.Genesis.IntervalSlots {
			return 0, 0, failed(CodePayment, "the %s left of the budget do not pay %d leases for one interval",
				b.cfg.Genesis.FormatAmount(budget-committed), n)
		}
	}
}

// mostCost is what a job can cost at the most.
func (b *Buyer) mostCost(spec job.Job) (market.Amount, error) {
	cost, err := spec.MaxCost()
	return min(cost, spec.Payment.Budget), err
}

// form places one order for ranks and takes all its leases or none.
func (s *supervisor) form(ctx context.Context, ranks []uint32, attempt int) error {
	b := s.b
	began := time.Now()
	o, env, err := s.order(ctx, ranks)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.traces[o.ID] = s.trace
	b.mu.Unlock()
	j := s.snapshot()
	how := asking{direct: !j.Spec.Placement.GossipOnly, spread: !j.Spec.Placement.Pack}
	quotes, declined, err := b.collect(ctx, s.trace, o, env, how)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	chosen, spares, routes, err := s.choose(o, quotes, declined, ranks, how)
	if err != nil {
		return err
	}
	f := &forming{s: s, order: o, envelope: env, quotes: routes, drafts: map[market.HoldID]*draft{}, events: make(chan gang.Event, 4*len(ranks)+16)}
	if err := f.run(ctx, chosen, spares); err != nil {
		return err
	}
	s.trace.add(Step{At: time.Now(), Kind: StepLeased, Took: time.Since(began), Detail: fmt.Sprintf("order %s: %d leases", o.ID.Short(), len(ranks))})
	return nil
}

// choose ranks the quotes and picks a provider for every rank.
func (s *supervisor) choose(o market.Order, quotes []quoted, declined []match.Refusal, ranks []uint32, how asking) ([]gang.Member, []sign.Key, map[sign.Key]quoted, error) {
	b := s.b
	byKey := map[sign.Key]quoted{}
	var cands []match.Candidate
	for _, q := range quotes {
		byKey[q.quote.Provider] = q
		k, _ := b.known.get(q.quote.Provider)
		k.Offer = q.offer
		c := k.candidate()
		c.Quote, c.Route = &q.quote, q.route
		cands = append(cands, c)
	}
	now := time.Now()
	res := match.Rank(o, cands, now, b.cfg.Weights)
	for _, r := range res.Refused {
		s.trace.add(Step{At: now, Kind: StepInfeasible, Provider: r.Provider.String(), Route: byKey[r.Provider].route, Detail: r.Detail})
	}
	picked, spare, none := match.Select(o, res, len(ranks), how.spread)
	if none != nil {
		return nil, nil, nil, &unplaced{reason: explain(o, none, declined, b.cfg.Genesis)}
	}
	var members []gang.Member
	for _, a := range picked {
		rank := ranks[a.Rank]
		members = append(members, gang.Member{Rank: rank, Provider: a.Provider})
		q := byKey[a.Provider]
		r := int(rank)
		s.trace.add(Step{At: now, Kind: StepChosen, Rank: &r, Provider: a.Provider.String(), Route: q.route,
			Price: b.cfg.Genesis.FormatAmount(market.Amount(q.quote.Price))})
	}
	return members, spare, byKey, nil
}

// explain says in one sentence why an order could not be placed.
func explain(o market.Order, none *match.Unschedulable, declined []match.Refusal, g market.Genesis) string {
	text := fmt.Sprintf("no match for %d × %d units of %s at up to %s per unit-hour: %v", o.Count, o.UnitsPer, o.Class,
		g.FormatAmount(market.Amount(o.Ceiling)), none)
	const most = 3
	for i, d := range declined {
		if i == most {
			text += fmt.Sprintf("; and %d more", len(declined)-most)
			break
		}
		text += fmt.Sprintf("; %s: %s", d.Provider.Short(), d.Detail)
	}
	if len(declined) == 0 {
		text += "; `starling offers` shows who can be found"
	}
	return text
}

// draft is a lease on its way to being signed.
type draft struct {
	core  market.LeaseCore
	keys  market.KeySet
	lease *bought // once both have signed
}

// forming carries out what one gang wants.
type forming struct {
	s        *supervisor
	order    market.Order
	envelope []byte
	quotes   map[sign.Key]quoted
	events   chan gang.Event
	wg       sync.WaitGroup

	mu     sync.Mutex
	drafts map[market.HoldID]*draft
}

// run takes the gang to its end. Calls to different providers are made at once,
// each with its own deadline.
func (f *forming) run(ctx context.Context, chosen []gang.Member, spares []sign.Key) error {
	defer f.wg.Wait()
	now := time.Now()
	g, effects := gang.New(f.order, chosen, spares, gang.Params{
		Secret: f.s.b.secret, Started: now, StepTimeout: stepTimeout, ReleaseTimeout: releaseTimeout,
		Deadline: now.Add(formTimeout), FundingSlots: 1,
	})
	// The calls outlive a job that is stopped while it forms: what is held must be released.
	calls, cancel := context.WithTimeout(context.WithoutCancel(ctx), formTimeout+releaseTimeout)
	defer cancel()
	stopping := ctx.Done()
	for {
		for _, e := range effects {
			switch e := e.(type) {
			case gang.Formed:
				return f.formed(ctx, e.Seats)
			case gang.FailedWith:
				return f.failed(ctx, e)
			default:
				f.wg.Go(func() {
					if ev := f.do(calls, e); ev != nil {
						select {
						case f.events <- ev:
						case <-calls.Done():
						}
					}
				})
			}
		}
		var ev gang.Event
		at, ok := g.NextDeadline()
		if !ok {
			return fmt.Errorf("forming order %s: it ended without a word", f.order.ID.Short())
		}
		select {
		case ev = <-f.events:
		case <-stopping:
			ev, stopping = gang.Cancelled{Reason: "the job was stopped"}, nil
		case <-time.After(max(time.Until(at), time.Millisecond)):
			ev = gang.DeadlinePassed{}
		}
		slot, err := f.s.b.cfg.Slots.Now(time.Now())
		if err != nil {
			return err
		}
		if g, effects, err = g.Step(lease.Now{Time: time.Now(), Slot: slot}, ev); err != nil {
			return fmt.Errorf("forming order %s: %w", f.order.ID.Short(), err)
		}
	}
}

// do makes the call that an effect asks for and returns the event that answers it.
func (f *forming) do(ctx context.Context, e gang.Effect) gang.Event {
	switch e := e.(type) {
	case gang.Reserve:
		return f.reserve(ctx, e)
	case gang.Sign:
		return f.sign(ctx, e)
	case gang.Activate:
		return f.activate(ctx, e)
	case gang.Release:
		f.release(ctx, e)
		return gang.Released{Hold: e.Hold}
	}
	return nil
}

// call sends one step of a lease to its provider.
func (f *forming) call(ctx context.Context, p sign.Key, req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	q := f.quotes[p]
	id, err := f.s.b.remember(p, append(q.quote.Addrs, q.offer.Addrs...))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return protocol.Lease.Call(ctx, f.s.b.cfg.Host, f.s.b.tag, id, req)
}

// wrong turns a failed call into the event that tells the gang.
func (f *forming) wrong(rank uint32, hold market.HoldID, p sign.Key, err error) gang.Event {
	r := int(rank)
	var no *stream.Refused
	if errors.As(err, &no) {
		f.s.trace.add(Step{At: time.Now(), Kind: StepRefused, Rank: &r, Provider: p.String(), Detail: no.Reason})
		return gang.Refused{Rank: rank, Hold: hold, Reason: &market.Refusal{Reason: market.Reason(no.Code), Detail: no.Reason}}
	}
	f.s.trace.add(Step{At: time.Now(), Kind: StepSilent, Rank: &r, Provider: p.String(), Detail: err.Error()})
	return gang.Lost{Rank: rank, Hold: hold, Reason: market.Refuse(market.ReasonLost, "%v", err)}
}

func (f *forming) reserve(ctx context.Context, e gang.Reserve) gang.Event {
	start := time.Now()
	reply, err := f.call(ctx, e.Provider, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Reserve{Reserve: &marketpb.Reserve{
		Hold: e.Hold[:], Order: f.envelope, Rank: e.Rank, Units: f.order.UnitsPer, Price: uint64(f.quotes[e.Provider].quote.Price),
	}}})
	if err == nil && reply.GetHeld() == nil {
		err = stream.ErrBadReply
	}
	var units []market.UnitID
	if err == nil {
		units, err = unitIDs(reply.GetHeld().Units, int(f.order.UnitsPer))
	}
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	r := int(e.Rank)
	f.s.trace.add(Step{At: time.Now(), Kind: StepHeld, Rank: &r, Provider: e.Provider.String(), Took: time.Since(start)})
	return gang.Held{Rank: e.Rank, Hold: e.Hold, Units: units}
}

func unitIDs(raw [][]byte, want int) ([]market.UnitID, error) {
	if len(raw) != want {
		return nil, fmt.Errorf("%w: %d units held, %d were asked", stream.ErrBadReply, len(raw), want)
	}
	out := make([]market.UnitID, 0, len(raw))
	for _, u := range raw {
		if len(u) != len(market.UnitID{}) {
			return nil, fmt.Errorf("%w: unit id of %d bytes", stream.ErrBadReply, len(u))
		}
		out = append(out, market.UnitID(u))
	}
	return market.SortUnits(out)
}

// activateWithin is how many slots a lease leaves for its first payment.
func (b *Buyer) activateWithin() market.Slot { return market.Slot(5*b.cfg.Genesis.IntervalSlots + 50) }

func (f *forming) sign(ctx context.Context, e gang.Sign) gang.Event {
	b := f.s.b
	d, err := f.draft(ctx, e)
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	sig, err := d.core.Sign(b.domain, b.cfg.Key)
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	core := d.core.Marshal()
	reply, err := f.call(ctx, e.Provider, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Sign{Sign: &marketpb.Sign{
		Hold: e.Hold[:], Core: core[:], Keys: d.keys.Marshal(), Signature: sig[:],
	}}})
	if err == nil && len(reply.GetSigned().GetSignature()) != sign.SignatureSize {
		err = stream.ErrBadReply
	}
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	l := market.Lease{Core: d.core, ProviderSig: sign.Signature(reply.GetSigned().Signature), BuyerSig: sig}
	if err := l.Check(b.domain); err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	bought, err := b.newLease(l, d.keys, f.s.job.ID, f.quotes[e.Provider])
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	f.mu.Lock()
	d.lease = bought
	f.mu.Unlock()
	return gang.Signed{Rank: e.Rank, Hold: e.Hold, Lease: bought.id, ActivateBefore: d.core.ActivateBefore}
}

// draft writes the lease for a hold, once: a repeated Sign sends the same one.
func (f *forming) draft(ctx context.Context, e gang.Sign) (*draft, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.drafts[e.Hold]; d != nil {
		return d, nil
	}
	b := f.s.b
	slot, err := b.cfg.Slots.Now(time.Now())
	if err != nil {
		return nil, err
	}
	keys, err := market.NewKeySet(1, b.self)
	if err != nil {
		return nil, err
	}
	q := f.quotes[e.Provider].quote
	epoch := f.s.snapshot().Ranks[e.Rank].Epoch + 1
	core := lease.Draft{
		Order: f.order, Provider: e.Provider, Payout: q.Payout, Units: e.Units, Rank: e.Rank, RankEpoch: epoch, Price: q.Price,
		SlotMillis: b.cfg.Genesis.SlotMillis, Keys: keys, Start: slot, ActivateBefore: slot + b.activateWithin(),
	}
	if _, err := rand.Read(core.Nonce[:]); err != nil {
		return nil, err
	}
	c, err := core.Core()
	if err != nil {
		return nil, err
	}
	d := &draft{core: c, keys: keys}
	f.drafts[e.Hold] = d
	return d, nil
}

// activate pays the first interval of a signed lease.
func (f *forming) activate(ctx context.Context, e gang.Activate) gang.Event {
	f.mu.Lock()
	l := f.drafts[e.Hold].lease
	f.mu.Unlock()
	voucher, err := f.s.b.prepay(ctx, l)
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	reply, err := f.call(ctx, e.Provider, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Activate{Activate: &marketpb.Activate{
		Lease: l.id[:], Voucher: voucher,
	}}})
	if err == nil && reply.GetActivated() == nil {
		err = stream.ErrBadReply
	}
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	return gang.Activated{Rank: e.Rank, Hold: e.Hold}
}

func (f *forming) release(ctx context.Context, e gang.Release) {
	req := &marketpb.Release{Of: &marketpb.Release_Hold{Hold: e.Hold[:]}, Reason: clip(e.Reason)}
	f.mu.Lock()
	d := f.drafts[e.Hold]
	f.mu.Unlock()
	if d != nil && d.lease != nil {
		f.s.b.forgo(ctx, d.lease, e.Reason)
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if _, err := f.call(ctx, e.Provider, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Release{Release: req}}); err != nil {
		f.s.b.cfg.Log.Debug("a release was not confirmed; the hold ends by itself", "provider", e.Provider, "err", err)
	}
	r := int(e.Rank)
	f.s.trace.add(Step{At: time.Now(), Kind: StepReleased, Rank: &r, Provider: e.Provider.String(), Detail: e.Reason})
}

// formed journals the leases of all ranks.
func (f *forming) formed(ctx context.Context, seats []gang.Seat) error {
	s := f.s
	var puts []store.Put
	leases := map[uint32]*bought{}
	f.mu.Lock()
	for _, seat := range seats {
		l := f.drafts[seat.Hold].lease
		leases[seat.Rank] = l
		p, err := l.put(func(r *leaseRecord) { r.Active = true })
		if err != nil {
			f.mu.Unlock()
			return err
		}
		puts = append(puts, p)
	}
	f.mu.Unlock()
	err := s.save(ctx, func(j *Job) {
		for rank, l := range leases {
			k := &j.Ranks[rank]
			k.State, k.Lease, k.Provider, k.Epoch, k.Seq = RankLeased, l.id, l.core.Provider, l.core.RankEpoch, 0
			k.Route = f.quotes[l.core.Provider].route
		}
	}, puts...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, l := range leases {
		s.leases[rank] = l
	}
	return nil
}

// failed says why a gang did not form.
func (f *forming) failed(ctx context.Context, e gang.FailedWith) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text := "the order's leases could not all be taken: " + e.Reason.Error()
	for _, d := range e.Details {
		text += fmt.Sprintf("; rank %d at %s: %s", d.Rank, d.Provider.Short(), d.Refusal.Error())
	}
	return &unplaced{raced: true, reason: text}
}
