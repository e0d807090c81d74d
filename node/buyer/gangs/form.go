package gangs

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

// errOver is returned for a lease that is to be drafted after its gang has ended.
var errOver = errors.New("the gang has ended")

// draft is a lease on its way to being signed.
type draft struct {
	core    market.LeaseCore
	lease   *leases.Lease // once both have signed
	funded  *funding      // once it is to be activated
	prepaid bool          // its payer began
}

// funding is the result of a deposit.
type funding struct {
	done chan struct{} // closed when it is known
	err  error
}

// params are the deadlines of the gang.
func (g *Gang) params(now time.Time, ranks int) gang.Params {
	var measuring, more time.Duration
	if g.Measured() && ranks+len(g.Cluster.Members.Leases()) > 1 {
		measuring, more = g.Cluster.Timeout+StepTimeout/2, 2*g.Cluster.Timeout // one replaced, perhaps
	}
	p := gang.Params{
		Secret: g.cfg.Secret, Started: now, StepTimeout: StepTimeout, FundTimeout: g.cfg.FundTime,
		ReleaseTimeout: leases.ReleaseTimeout, Deadline: now.Add(Timeout + more + g.cfg.FundTime), FundingSlots: 1,
		Overlay: g.Cluster != nil, MeasureTimeout: measuring,
	}
	if r := g.Recruit; r != nil {
		p.Recruit, p.RecruitTimeout = recruitPause, recruitTimeout
		if p.Deadline.Before(r.Until) {
			p.Deadline = r.Until
		}
	}
	return p
}

// run takes the gang to its end. Calls to different providers are made at once, each with its own deadline.
func (g *Gang) run(ctx context.Context, chosen []gang.Member, spares []sign.Key) error {
	params := g.params(time.Now(), len(chosen))
	// The calls outlive a job that is stopped while it forms: holds must be released.
	calls, cancel := context.WithDeadline(context.WithoutCancel(ctx), params.Deadline.Add(leases.ReleaseTimeout))
	running, stop := context.WithCancel(calls)
	defer stop()
	back := g.cfg.Money.Using(g.Job, g.Order.ID)
	g.runner = g.machine(calls)
	g.runner.Add(g.Order.ID, forming{}, begun{g.Order, chosen, spares, params})
	g.cfg.Tasks.Go(func() {
		if err := g.runner.Run(running); err != nil || calls.Err() != nil {
			g.end(ending{err: errors.Join(err, calls.Err())})
		}
		// Calls without a needed answer are not waited for by the caller; the peer waits for them before it stops.
		g.wg.Wait()
		cancel()
		back()
	})
	var end ending
	select {
	case end = <-g.ended:
	case <-ctx.Done():
		_ = g.runner.Post(g.Order.ID, gang.Cancelled{Reason: "the job was stopped"})
		end = <-g.ended
	}
	if end.failed != nil {
		return g.failed(ctx, *end.failed)
	}
	return end.err
}

// do makes the call of an effect and returns the event that answers it.
func (g *Gang) do(ctx context.Context, e gang.Effect) gang.Event {
	switch e := e.(type) {
	case gang.Reserve:
		return g.reserve(ctx, e)
	case gang.Recruit:
		return g.recruit(ctx, e)
	case gang.Measure:
		return g.measure(ctx, e)
	case gang.Sign:
		return g.sign(ctx, e)
	case gang.Activate:
		return g.activate(ctx, e)
	case gang.Release:
		g.release(ctx, e)
		return gang.Released{Hold: e.Hold}
	}
	return nil
}

// fund begins to set the money of the leases aside that are to be activated, all at once.
func (g *Gang) fund(ctx context.Context, effects []gang.Effect) {
	var all []*leases.Lease
	funded := &funding{done: make(chan struct{})}
	g.mu.Lock()
	for _, e := range effects {
		if a, ok := e.(gang.Activate); ok {
			d := g.drafts[a.Hold]
			d.funded = funded
			all = append(all, d.lease)
		}
	}
	g.mu.Unlock()
	if len(all) == 0 {
		return
	}
	g.wg.Go(func() {
		defer close(funded.done)
		funded.err = g.cfg.Money.Fund(ctx, g.Job, all...)
	})
}

// formed keeps the leases of all ranks.
func (g *Gang) formed(seats []gang.Seat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leases, g.seats = map[uint32]*leases.Lease{}, seats
	for _, seat := range seats {
		g.leases[seat.Rank] = g.drafts[seat.Hold].lease
	}
}

func (g *Gang) reserve(ctx context.Context, e gang.Reserve) gang.Event {
	start, o := time.Now(), g.Order
	quoted := g.Quote(e.Provider)
	reply, err := g.call(ctx, e.Provider,
		&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Reserve{Reserve: &marketpb.Reserve{
			Hold: e.Hold[:], Order: g.Envelope, Rank: e.Rank, Units: o.UnitsPer, Price: uint64(quoted.Quote.Price),
			Class: string(quoted.Quote.Class), Overlay: g.Cluster != nil, Image: g.Image,
		}}})
	if err == nil && reply.GetHeld() == nil {
		err = stream.ErrBadReply
	}
	var units []market.UnitID
	var key market.OverlayKey
	if err == nil {
		units, err = unitIDs(reply.GetHeld().Units, int(o.UnitsPer))
	}
	if err == nil {
		key, err = overlayKey(reply.GetHeld().OverlayKey)
	}
	if err != nil {
		return g.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	if err := g.cfg.Market.CheckUnits(ctx, o, quoted, units); err != nil {
		g.note(trace.Infeasible, e.Rank, e.Provider, err.Error())
		// its holds are released
		return gang.Lost{Rank: e.Rank, Hold: e.Hold, Reason: market.Refuse(market.ReasonUnproven, "%v", err)}
	}
	g.took(trace.Held, e.Rank, e.Provider, start)
	return gang.Held{Rank: e.Rank, Hold: e.Hold, Units: units, Overlay: key,
		Until: heldUntil(start, reply.GetHeld().Expires)}
}

func (g *Gang) sign(ctx context.Context, e gang.Sign) gang.Event {
	start := time.Now()
	d, err := g.draft(e)
	if err != nil {
		return g.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	sig, err := d.core.Sign(g.domain, g.As.Key())
	if err != nil {
		return g.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	core := d.core.Marshal()
	reply, err := g.call(ctx, e.Provider, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Sign{Sign: &marketpb.Sign{
		Hold: e.Hold[:], Core: core[:], Keys: g.Keys.Marshal(), Signature: sig[:],
	}}})
	if err == nil && len(reply.GetSigned().GetSignature()) != sign.SignatureSize {
		err = stream.ErrBadReply
	}
	if err != nil {
		return g.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	l := market.Lease{Core: d.core, ProviderSig: sign.Signature(reply.GetSigned().Signature), BuyerSig: sig}
	if err := l.Check(g.domain); err != nil {
		return g.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	q := g.Quote(e.Provider)
	rec := leases.Record{
		Job: g.Job, Units: e.Units, Proven: g.cfg.Market.ProvenRate(e.Provider, e.Units),
		PerUnit: q.Quote.PerUnit, Addrs: slices.Concat(q.Quote.Addrs, q.Offer.Addrs), Route: q.Route,
		Hired: q.Route == exchange.RouteStandby,
	}
	if !e.Overlay.IsZero() {
		rec.Member = &leases.Member{Lease: l.Marshal(), Hold: e.Hold, Key: e.Overlay}
	}
	bought, err := g.cfg.Leases.Open(l, g.Keys, rec, g.As)
	if err != nil {
		return g.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	g.mu.Lock()
	d.lease = bought
	g.mu.Unlock()
	g.took(trace.Signed, e.Rank, e.Provider, start)
	return gang.Signed{Rank: e.Rank, Hold: e.Hold, Lease: bought.ID, ActivateBefore: d.core.ActivateBefore}
}

// activateWithin returns the number of slots for the first payment of a lease of a number of slots: half of a short
// lease.
func activateWithin(g market.Genesis, slots uint64) market.Slot {
	return market.Slot(min(5*g.IntervalSlots+50, max(slots/2, 1)))
}

// draft writes the lease for a hold, once: a repeated Sign sends the same one.
func (g *Gang) draft(e gang.Sign) (*draft, error) {
	q := g.Quote(e.Provider).Quote
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.drafts[e.Hold]; d != nil {
		return d, nil
	}
	if g.over { // its share of the limits would never be released
		return nil, errOver
	}
	slot, err := g.cfg.Clock.Now(time.Now())
	if err != nil {
		return nil, err
	}
	core := lease.Draft{
		Order: g.Order, Provider: e.Provider, Payout: q.Payout, Units: e.Units, Rank: e.Rank,
		RankEpoch: g.Epochs[e.Rank], Price: q.Price, SlotMillis: g.cfg.Genesis.SlotMillis, Keys: g.Keys, Start: slot,
		ActivateBefore: slot + activateWithin(g.cfg.Genesis, g.Order.Slots),
	}
	if g.Cluster != nil {
		core.Nonce = market.OverlayNonce(e.Hold, e.Overlay)
	} else if _, err := rand.Read(core.Nonce[:]); err != nil {
		return nil, err
	}
	c, err := core.Core()
	if err != nil {
		return nil, err
	}
	back, over := g.cfg.Money.Commit(e.Hold, e.Provider, c.Cap)
	if over != "" && g.Limited {
		return nil, stream.Refuse(string(market.ReasonLimit), over)
	}
	g.back = append(g.back, back)
	d := &draft{core: c}
	g.drafts[e.Hold] = d
	return d, nil
}

// activate pays the first interval of a signed lease.
func (g *Gang) activate(ctx context.Context, e gang.Activate) gang.Event {
	g.mu.Lock()
	d := g.drafts[e.Hold]
	l, funded := d.lease, d.funded
	g.mu.Unlock()
	<-funded.done // fund has a deadline
	if funded.err != nil {
		detail := "the leases' money could not be set aside: " + funded.err.Error()
		g.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Funded, Detail: detail})
		return gang.Cancelled{Reason: funded.err.Error()} // no other provider would change that
	}
	start := time.Now()
	g.mu.Lock()
	d.prepaid = true
	g.mu.Unlock()
	err := g.prepay(ctx, e.Provider, l)
	if errors.Is(err, leases.ErrUnpayable) { // a retry would fail, too
		return gang.Cancelled{Reason: err.Error()}
	}
	if err != nil {
		return g.wrong(e.Rank, e.Hold, e.Provider, err)
	}
	g.took(trace.Activated, e.Rank, e.Provider, start)
	return gang.Activated{Rank: e.Rank, Hold: e.Hold}
}

// lateTries is how often another first voucher is sent to a provider that refused one.
const lateTries = 2

// prepay sends a provider the first voucher of its lease. If a slow provider refuses it, because its interval has
// passed, another one for the same amount follows.
func (g *Gang) prepay(ctx context.Context, p sign.Key, l *leases.Lease) error {
	for tries := 0; ; tries++ {
		activate, err := g.cfg.Money.Prepay(ctx, l)
		if err != nil {
			return err
		}
		reply, err := g.call(ctx, p, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Activate{Activate: activate}})
		if err == nil && reply.GetActivated() == nil {
			err = stream.ErrBadReply
		}
		no, refused := errors.AsType[*stream.Refused](err)
		if !refused || no.Code != protocol.CodeVoucher || tries == lateTries {
			return err
		}
	}
}
