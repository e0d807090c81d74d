package orders

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
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
	"github.com/starling-network/starling/node/store"
)

// Orders are the orders of leases for a job.
type Orders struct {
	*run.Job
	cfg   *Office
	paths Paths

	mu    sync.Mutex
	gangs map[jobs.GangID]context.CancelFunc
	tries int // orders since one was filled
	thin  int // of these, those for which too few providers were to quote
}

// Of returns the orders of a job. Paths are those of its cluster.
func (c *Office) Of(j *run.Job, paths Paths) *Orders {
	return &Orders{Job: j, cfg: c, paths: paths, gangs: map[jobs.GangID]context.CancelFunc{}}
}

// Place orders leases for ranks of the job. The machine gets exactly one answer.
func (s *Orders) Place(fx jobs.OrderGang) {
	ctx, cancel := context.WithCancel(s.Context())
	s.mu.Lock()
	s.gangs[fx.Gang] = cancel
	s.mu.Unlock()
	s.cfg.Tasks.Go(func() {
		defer cancel()
		began := time.Now()
		f, err := s.form(ctx, fx)
		took := time.Since(began)
		var puts []store.Put
		if err == nil {
			puts, err = activated(fx, f)
		}
		s.mu.Lock()
		delete(s.gangs, fx.Gang)
		if err == nil {
			s.tries, s.thin = 0, 0
		}
		s.mu.Unlock()
		if err == nil {
			s.formed(fx, f, puts, took)
			return
		}
		if f != nil {
			s.count(f.Stray())
		}
		s.Post(failureOf(ctx, fx.Gang, err))
		if errors.Is(err, pay.ErrNoPlace) {
			s.Post(jobs.PeerFailed{Code: jobs.CodePeer, Reason: pay.ErrNoPlace.Error()})
		}
	})
}

// Cancel ends a gang early.
func (s *Orders) Cancel(fx jobs.CancelGang) {
	s.mu.Lock()
	cancel := s.gangs[fx.Gang]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// failureOf returns the failure of a gang.
func failureOf(ctx context.Context, id jobs.GangID, err error) jobs.GangFailed {
	out := jobs.GangFailed{Gang: id, Why: jobs.GangShort, Reason: err.Error()}
	var none *exchange.Unplaced
	switch {
	case errors.Is(err, jobs.ErrDropped) || ctx.Err() != nil:
		out.Why = jobs.GangDropped
	case errors.As(err, &none) && !none.Thin && !none.Raced && !none.Unsettled:
		out.Why = jobs.GangUnfit
	}
	return out
}

// form journals an order, publishes it, and takes all its leases or none. The result is not nil after an order of
// which leases were being taken.
func (s *Orders) form(ctx context.Context, fx jobs.OrderGang) (*gangs.Gang, error) {
	s.mu.Lock()
	choosy, thin := s.tries == 0, s.thin
	s.tries++
	s.mu.Unlock()
	slots, budget := fx.Slots, fx.Cap
	if fx.Standby {
		var err error
		if slots, err = s.standbySlots(slots); err != nil {
			return nil, err
		}
		choosy, thin, budget = false, 0, 0
	}
	valid, until := orderValidity, fx.Until
	switch {
	case fx.Standby: // its quotes are stored
	case choosy && len(s.Snapshot().Lost) > 0:
		until = time.Time{} // the next order takes providers that lost a rank, too
	default:
		valid = min(max(valid, time.Until(until)+gangs.Timeout), market.MaxOrderValidity-orderValidity)
	}
	order, env, err := s.compose(len(fx.Seats), slots, budget, choosy, thin, valid)
	if err != nil {
		return nil, err
	}
	note := func(j *record.Job) { j.Orders = append(slices.Clip(j.Orders), order.ID) }
	if _, err := s.Ask(ctx, run.Event{
		Ev:    jobs.OrderPlaced{Gang: fx.Gang, Order: order.ID},
		Puts:  []store.Put{record.Orders.Encode(order.ID.String(), env)},
		Amend: run.Amend(note),
	}); err != nil {
		return nil, err
	}
	if fx.Standby {
		return s.hire(ctx, order, env, fx.Seats)
	}
	f, err := s.take(ctx, order, env, fx.Seats, until)
	if none := (*exchange.Unplaced)(nil); errors.As(err, &none) && none.Thin {
		s.mu.Lock()
		s.thin++
		s.mu.Unlock()
	}
	return f, err
}

// count has the machine count and end leases of a gang that was not formed: each may cost its first interval.
func (s *Orders) count(stray []*leases.Lease) {
	var facts []jobs.Lease
	for _, l := range stray {
		if s.Chain(l.ID) != nil {
			facts = append(facts, run.FactOf(l))
		}
	}
	if len(facts) > 0 {
		s.Post(jobs.GangFormed{Leases: facts})
	}
}

// activated returns the writes of the leases of a gang that has formed.
func activated(fx jobs.OrderGang, f *gangs.Gang) (puts []store.Put, err error) {
	for _, seat := range fx.Seats {
		p, err := f.Lease(seat.Rank).Put(func(r *leases.Record) { r.Active = true })
		if err != nil {
			return nil, err
		}
		puts = append(puts, p)
	}
	return puts, nil
}

// formed reports the leases of a gang, which are active.
func (s *Orders) formed(fx jobs.OrderGang, f *gangs.Gang, puts []store.Put, took time.Duration) {
	formed := jobs.GangFormed{Gang: fx.Gang}
	offers := map[market.LeaseID]run.Offered{}
	for _, seat := range fx.Seats {
		l := f.Lease(seat.Rank)
		formed.Leases = append(formed.Leases, run.FactOf(l))
		q := f.Quote(l.Core.Provider)
		offers[l.ID] = run.Offered{Route: q.Route, Units: record.UnitsOf(q.Quote)}
	}
	s.Filled(offers, took)
	defer func() { // the machine has the leases before a loss of one is posted
		for _, seat := range fx.Seats {
			s.Watch(f.Lease(seat.Rank))
		}
	}()
	ev := run.Event{Ev: formed, Puts: puts}
	if !f.Measured() {
		s.Report(ev)
		return
	}
	s.paths.Formed(ev, f)
}

const (
	// searchTime bounds the repeated search for offers if the network seems to have more than the known ones.
	searchTime = 20 * time.Second
	// orderValidity is the validity of an order. Quotes, reservations and signatures must arrive within it.
	orderValidity = time.Minute
)

// compose builds an order for a number of ranks, and its envelope.
func (s *Orders) compose(
	ranks int, slots uint64, budget market.Amount, choosy bool, asked int, valid time.Duration,
) (market.Order, []byte, error) {
	j := s.Snapshot()
	exclude := j.Spec.Placement.Exclude
	if j.Detached != nil { // a guardian of the job does not work for it
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
	if !j.Nonce.IsZero() { // the hash of its terms must not be guessable: it would reveal a replica
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
	asked int       // earlier attempts with too few quotes
	valid time.Duration
	funds sign.Key // the escrow that pays; zero: the peer's own funds
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
		Egress: selection.Egress(spec), Nonce: own.nonce, Funds: own.funds, Image: market.PrefixOf(spec.Image),
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

// drawnNonce returns a random nonce.
func drawnNonce() (n market.Nonce) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

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
	recruits := !until.IsZero() && j.Spec.Cluster == nil && j.Detached == nil && j.Replica == nil
	sel := selection.Job{
		Selector: b.selector, Spec: j.Spec, Replica: j.Replica, Members: members{s.Job}, Trace: s.Trace,
	}
	how := sel.Ask(o)
	how.All = !recruits // spares cannot be found later
	if j.Detached != nil {
		how.Standbys = int(j.Spec.Standbys)
	}
	got := b.Exchange.Collect(ctx, s.Trace, o, env, how)
	again := how
	for began := time.Now(); recruits && ctx.Err() == nil && time.Since(began) < searchTime && got.Scarce(); {
		again.Have = got.Quotes
		got = b.Exchange.Collect(ctx, s.Trace, o, env, again)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
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
