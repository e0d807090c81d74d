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
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
)

// draft is a lease on its way to being signed.
type draft struct {
	core  market.LeaseCore
	keys  market.KeySet
	lease *leases.Lease // once both have signed

	funded *funding // once it is to be activated
}

// forming carries out one gang's effects.
type forming struct {
	s        *supervisor
	order    market.Order
	envelope []byte
	quotes   map[sign.Key]exchange.Quoted
	events   chan gang.Event
	overlay  bool          // the ranks are a cluster's: each provider names an overlay key, and its lease commits to it
	near     cluster.Class // the slowest network that they may have between them; "": they are no cluster's
	paths    *mesh.Survey  // between them
	until    time.Time     // it recruits until then; zero: not at all
	how      exchange.Ask  // for its quotes
	wg       sync.WaitGroup

	mu     sync.Mutex // of what follows, and of quotes
	drafts map[market.HoldID]*draft
	taken  map[sign.Key]bool // providers with a seat
	// Of the last round of further quotes: why they were too few, or nil, and who declined.
	short    *match.Unschedulable
	declined []match.Refusal
	// Once formed: the leases by rank, and their records for the journal.
	leases map[uint32]*leases.Lease
	puts   []store.Put
	seats  []gang.Seat
	back   []func() // gives back the drafts' shares of limits
}

// uncommit gives back the drafts' shares of the providers' limits: leases count themselves.
func (f *forming) uncommit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, back := range f.back {
		back()
	}
	f.back = nil
}

// run takes the gang to its end. Calls to different providers are made at once, each with its own deadline.
func (f *forming) run(ctx context.Context, chosen []gang.Member, spares []sign.Key) error {
	now := time.Now()
	var measuring, more time.Duration
	if f.near != "" && len(chosen)+len(f.s.members()) > 1 {
		measuring, more = mesh.MeasureTimeout+stepTimeout/2, 2*mesh.MeasureTimeout // one replaced, perhaps
	}
	params := gang.Params{
		Secret: f.s.b.secrets.Seed(), Started: now, StepTimeout: stepTimeout, FundTimeout: f.s.b.fundTime,
		ReleaseTimeout: leases.ReleaseTimeout,
		Deadline:       now.Add(formTimeout + more + f.s.b.fundTime), FundingSlots: 1, Overlay: f.overlay,
		MeasureTimeout: measuring,
	}
	if params.Deadline.Before(f.until) {
		params.Deadline = f.until
	}
	if !f.until.IsZero() {
		params.Recruit, params.RecruitTimeout = recruitPause, recruitTimeout
	}
	g, effects := gang.New(f.order, chosen, spares, params)
	// The calls outlive a job that is stopped while it forms: holds must be released.
	calls, cancel := context.WithDeadline(context.WithoutCancel(ctx), params.Deadline.Add(leases.ReleaseTimeout))
	back := f.s.b.using(f.s.trace.Job, f.order.ID)
	// Nobody waits here for calls whose answers do not matter any more; the peer does before it stops.
	defer f.s.b.wg.Go(func() {
		f.wg.Wait()
		cancel()
		back()
	})
	stopping := ctx.Done()
	for {
		f.fund(calls, effects)
		f.seated(g)
		for _, e := range effects {
			switch e := e.(type) {
			case gang.Formed:
				return f.formed(e.Seats)
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

// fund begins to set the money of the leases aside that are to be activated, all at once.
func (f *forming) fund(ctx context.Context, effects []gang.Effect) {
	var all []*leases.Lease
	funded := &funding{done: make(chan struct{})}
	f.mu.Lock()
	for _, e := range effects {
		if a, ok := e.(gang.Activate); ok {
			d := f.drafts[a.Hold]
			d.funded = funded
			all = append(all, d.lease)
		}
	}
	f.mu.Unlock()
	if len(all) == 0 {
		return
	}
	f.wg.Go(func() {
		defer close(funded.done)
		funded.err = f.s.b.fund(ctx, f.s.trace.Job, all...)
	})
}

// funding is the result of a deposit.
type funding struct {
	done chan struct{} // closed when it is known
	err  error
}

// do makes the call that an effect asks for and returns the event that answers it.
func (f *forming) do(ctx context.Context, e gang.Effect) gang.Event {
	switch e := e.(type) {
	case gang.Reserve:
		return f.reserve(ctx, e)
	case gang.Recruit:
		return f.recruit(ctx, e)
	case gang.Measure:
		return f.measure(ctx, e)
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
	q := f.quote(p)
	id, err := exchange.Remember(f.s.b.cfg.Host, p, append(q.Quote.Addrs, q.Offer.Addrs...))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.patience())
	defer cancel()
	return f.again(ctx, id, req)
}

func (f *forming) reserve(ctx context.Context, e gang.Reserve) gang.Event {
	start := time.Now()
	reply, err := f.call(ctx, e.Provider,
		&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Reserve{Reserve: &marketpb.Reserve{
			Hold: e.Hold[:], Order: f.envelope, Rank: e.Rank, Units: f.order.UnitsPer,
			Price: uint64(f.quote(e.Provider).Quote.Price), Class: string(f.quote(e.Provider).Quote.Class),
			Overlay: f.overlay, Image: f.s.snapshot().Spec.Image,
		}}})
	if err == nil && reply.GetHeld() == nil {
		err = stream.ErrBadReply
	}
	var units []market.UnitID
	var key market.OverlayKey
	if err == nil {
		units, err = unitIDs(reply.GetHeld().Units, int(f.order.UnitsPer))
	}
	if err == nil {
		key, err = overlayKey(reply.GetHeld().OverlayKey)
	}
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	r := int(e.Rank)
	if err := f.s.b.exchange.CheckUnits(ctx, f.order, f.quote(e.Provider), units); err != nil {
		f.s.trace.Add(Step{At: time.Now(), Kind: StepInfeasible, Rank: &r, Provider: e.Provider.String(),
			Detail: err.Error()})
		// its holds are released
		return gang.Lost{Rank: e.Rank, Hold: e.Hold, Reason: market.Refuse(market.ReasonUnproven, "%v", err)}
	}
	f.took(StepHeld, e.Rank, e.Provider, start)
	return gang.Held{Rank: e.Rank, Hold: e.Hold, Units: units, Overlay: key,
		Until: heldUntil(start, reply.GetHeld().Expires)}
}

// activateWithin is how many slots a lease of so many leaves for its first payment: half of a short one.
func (b *Buyer) activateWithin(slots uint64) market.Slot {
	return market.Slot(min(5*b.cfg.Genesis.IntervalSlots+50, max(slots/2, 1)))
}

func (f *forming) sign(ctx context.Context, e gang.Sign) gang.Event {
	b, start := f.s.b, time.Now()
	d, err := f.draft(ctx, e)
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	sig, err := d.core.Sign(b.domain, f.s.as.Key())
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
	q := f.quote(e.Provider)
	rec := leases.Record{
		Job: f.s.trace.Job, Units: e.Units, Proven: b.exchange.ProvenRate(e.Provider, e.Units),
		PerUnit: q.Quote.PerUnit, Addrs: append(q.Quote.Addrs, q.Offer.Addrs...), Route: q.Route,
		Hired: q.Route == exchange.RouteStandby,
	}
	if !e.Overlay.IsZero() {
		rec.Member = &leases.Member{Lease: l.Marshal(), Hold: e.Hold, Key: e.Overlay}
	}
	bought, err := b.leases.Open(l, d.keys, rec, f.s.as)
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	f.mu.Lock()
	d.lease = bought
	f.mu.Unlock()
	f.took(StepSigned, e.Rank, e.Provider, start)
	return gang.Signed{Rank: e.Rank, Hold: e.Hold, Lease: bought.ID, ActivateBefore: d.core.ActivateBefore}
}

// draft writes the lease for a hold, once: a repeated Sign sends the same one.
func (f *forming) draft(ctx context.Context, e gang.Sign) (*draft, error) {
	q := f.quote(e.Provider).Quote
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
	keys := f.s.as.keys()
	epoch := f.s.snapshot().Ranks[e.Rank].Epoch
	core := lease.Draft{
		Order: f.order, Provider: e.Provider, Payout: q.Payout, Units: e.Units, Rank: e.Rank, RankEpoch: epoch,
		Price: q.Price, SlotMillis: b.cfg.Genesis.SlotMillis, Keys: keys, Start: slot,
		ActivateBefore: slot + b.activateWithin(f.order.Slots),
	}
	if f.overlay {
		core.Nonce = market.OverlayNonce(e.Hold, e.Overlay)
	} else if _, err := rand.Read(core.Nonce[:]); err != nil {
		return nil, err
	}
	c, err := core.Core()
	if err != nil {
		return nil, err
	}
	back, over := b.commit(e.Hold, e.Provider, c.Cap)
	if over != "" && b.owned(f.s.snapshot()) { // its owner limits the spending of guardians
		return nil, stream.Refuse(string(market.ReasonLimit), over)
	}
	f.back = append(f.back, back)
	d := &draft{core: c, keys: keys}
	f.drafts[e.Hold] = d
	return d, nil
}

// activate pays the first interval of a signed lease.
func (f *forming) activate(ctx context.Context, e gang.Activate) gang.Event {
	f.mu.Lock()
	l, funded := f.drafts[e.Hold].lease, f.drafts[e.Hold].funded
	f.mu.Unlock()
	<-funded.done // fund has a deadline
	if funded.err != nil {
		detail := "the leases' money could not be set aside: " + funded.err.Error()
		f.s.trace.Add(Step{At: time.Now(), Kind: StepFunded, Detail: detail})
		return gang.Cancelled{Reason: funded.err.Error()} // no other provider would change that
	}
	start := time.Now()
	activate, err := f.s.b.prepay(ctx, l)
	if errors.Is(err, leases.ErrUnpayable) { // the same again would say the same
		return gang.Cancelled{Reason: err.Error()}
	}
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	reply, err := f.call(ctx, e.Provider,
		&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Activate{Activate: activate}})
	if err == nil && reply.GetActivated() == nil {
		err = stream.ErrBadReply
	}
	if err != nil {
		return f.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	f.took(StepActivated, e.Rank, e.Provider, start)
	return gang.Activated{Rank: e.Rank, Hold: e.Hold}
}

// formed keeps the leases of all ranks, and their records for the journal.
func (f *forming) formed(seats []gang.Seat) error {
	var puts []store.Put
	formed := map[uint32]*leases.Lease{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seat := range seats {
		l := f.drafts[seat.Hold].lease
		formed[seat.Rank] = l
		p, err := l.Put(func(r *leases.Record) { r.Active = true })
		if err != nil {
			return err
		}
		puts = append(puts, p)
	}
	f.leases, f.puts, f.seats = formed, puts, seats
	return nil
}
