package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
)

// Bounds of the work for one provider and of the memory of all.
const (
	// eagerly is how many records of an offer are checked before anybody needs them: all of a usual machine.
	eagerly = 16
	// maxFetches is how many records of one provider are on their way at a time.
	maxFetches = 4
	// maxBad is how many records of one list may be wrong before the rest is not looked at.
	maxBad = 4
	// maxSeen bounds the remembered providers; the one unused for longest goes first.
	maxSeen = 2048
	// again is the time until a provider without answer, or with a record that could not be judged, is asked again.
	again = 5 * time.Second
	// answerTime is how long a provider may take for a list or a record.
	answerTime = 2 * time.Second
)

// ErrUnproven reports that a unit has no checked fresh record.
var ErrUnproven = errors.New("the unit has not shown what it is")

// ProofsConfig is the configuration of Proofs; all of it is required, except Failures.
type ProofsConfig struct {
	Domain      sign.Domain
	WindowSlots uint64
	Sight       Sight
	// Failures is optional; if nil, this peer learns of no failed units.
	Failures Failures
	Ask      Asker
	Until    func(market.Slot) time.Duration // how long it takes until a slot begins
	Now      func() time.Time
	Log      *slog.Logger
}

// Asker asks a peer for a record, or for the list of them behind the proof of an offer.
type Asker func(ctx context.Context, from sign.Key, req *nodepb.ProofRequest) (*nodepb.ProofReply, error)

// Proofs knows the proven rates of the units on offer: it fetches the records that offers name and checks each once. It
// trusts no statement of a provider or a committee. It may be used by many goroutines.
//
//	offer ──proof──▶ list of (unit, record) ──▶ record ── Check, members, beacon, class, dataset, provider ──▶ proven
//	                 is behind the proof        is the one named, of that unit                            while fresh
type Proofs struct {
	cfg ProofsConfig
	cpu chan struct{} // holds one for each record that is being checked

	alone func(market.Class) bool // market.Class.Alone

	mu    sync.Mutex
	seen  map[sign.Key]*shower
	cards *audit.Cards
}

// shower is the state of one provider.
type shower struct {
	turn chan struct{} // holds one while its offers are checked: one after the other

	// Under Proofs.mu:
	used  time.Time
	units map[market.UnitID]checked    // newest record that passed
	class map[market.Class]sign.Hash   // the proof with the kept list
	lists map[sign.Hash][]market.Shown // by proof
	tried map[sign.Hash]attempted      // proofs and records that could not be had or judged, or were wrong
	order []sign.Hash                  // of tried, oldest first
}

// maxTried bounds the memory of one provider's wrong proofs and records.
const maxTried = 64

// NewProofs knows nothing yet.
func NewProofs(cfg ProofsConfig) *Proofs {
	return &Proofs{
		cfg: cfg, alone: market.Class.Alone, cpu: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1)),
		seen: map[sign.Key]*shower{}, cards: audit.NewCards(cfg.Sight.Instants()),
	}
}

// of finds or begins the state of a provider. p.mu is held.
func (p *Proofs) of(provider sign.Key) *shower {
	s := p.seen[provider]
	if s == nil {
		if len(p.seen) >= maxSeen {
			p.evict()
		}
		s = &shower{turn: make(chan struct{}, 1)}
		s.forget()
		p.seen[provider] = s
	}
	s.used = p.cfg.Now()
	return s
}

// evict forgets the provider that was unused for longest, of those without proofs if there are any: such keys are free,
// and must not displace the proofs of others. p.mu is held.
func (p *Proofs) evict() {
	var out sign.Key
	for k, s := range p.seen {
		o := p.seen[out]
		if o == nil || (len(s.units) == 0) != (len(o.units) == 0) && len(s.units) == 0 ||
			(len(s.units) == 0) == (len(o.units) == 0) && s.used.Before(o.used) {
			out = k
		}
	}
	delete(p.seen, out)
}

// forget drops the provider's proofs.
func (s *shower) forget() {
	s.units, s.class = map[market.UnitID]checked{}, map[market.Class]sign.Hash{}
	s.lists = map[sign.Hash][]market.Shown{}
	s.tried, s.order = map[sign.Hash]attempted{}, nil
}

// try records the result of checking a proof or a record. p.mu is held.
func (s *shower) try(h sign.Hash, a attempted) {
	if _, known := s.tried[h]; !known {
		if s.order = append(s.order, h); len(s.order) > maxTried {
			delete(s.tried, s.order[0])
			s.order = s.order[1:]
		}
	}
	s.tried[h] = a
}

// had forgets that a proof or a record could not be had. p.mu is held.
func (s *shower) had(h sign.Hash) {
	delete(s.tried, h)
	s.order = slices.DeleteFunc(s.order, func(o sign.Hash) bool { return o == h })
}

// waits says why a proof or record is not asked for now.
func (s *shower) waits(h sign.Hash, now time.Time) error {
	if t, known := s.tried[h]; known && (t.final || now.Sub(t.at) < again) {
		return t.err
	}
	return nil
}

// Shown is the known state of an offer's units, without a request: how many of all its units, free or not, are proven.
func (p *Proofs) Shown(o market.Offer) match.Shown {
	if o.Proof.IsZero() {
		return match.Shown{Doubt: "its offer names no fresh audit record"}
	}
	_, slot, err := p.cfg.Sight.Window()
	if err != nil {
		return match.Shown{Doubt: err.Error()}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seen[o.Provider]
	if s == nil {
		return match.Shown{Doubt: notChecked}
	}
	s.used = p.cfg.Now()
	var out match.Shown
	var held error
	for _, c := range s.units {
		if err := p.counts(c, o, slot); err != nil {
			if c.class == o.Class && audit.IsRule(err, audit.RuleCard) {
				held = fmt.Errorf("unit %s: %w", c.record.Answer.Unit.Short(), err)
			}
			continue
		}
		if out.Units == 0 {
			out.Operations, out.Reads = c.rates.Operations, c.rates.Reads
		}
		out.Units++
		out.Operations, out.Reads = min(out.Operations, c.rates.Operations), min(out.Reads, c.rates.Reads)
	}
	if out.Doubt = s.doubt(o); out.Doubt == "" && held != nil {
		out.Doubt = held.Error()
	}
	return out
}

// counts says why a record does not sell units such as those of an offer now. p.mu is held.
func (p *Proofs) counts(c checked, o market.Offer, now market.Slot) error {
	if c.class != o.Class || c.res != o.PerUnit {
		return errOther
	}
	if err := p.fresh(c, now); err != nil {
		return err
	}
	if c.tag.IsZero() {
		return nil
	}
	return p.cards.Check(audit.WindowOf(now, p.cfg.WindowSlots), c.tag, c.record.Answer.Target)
}

// errOther reports that a record does not match the class or resources of the offer.
var errOther = errors.New("its record is of another class, or of other resources")

// fresh says why a record does not keep its unit listed now.
func (p *Proofs) fresh(c checked, now market.Slot) error {
	if p.cfg.Failures != nil {
		if err := p.cfg.Failures.Against(context.Background(), c.record, nil); err != nil {
			return err
		}
	}
	recent, err := p.cfg.Sight.Recent()
	if err != nil {
		return err
	}
	return audit.Fresh(c.record, p.cfg.WindowSlots, recent, now, c.work)
}

const notChecked = "its records are not checked yet"

// doubt says why no more units of an offer are proven, the gravest first; "" when all are.
func (s *shower) doubt(o market.Offer) string {
	if t, known := s.tried[o.Proof]; known {
		return "the list of its records is not to be had: " + t.err.Error()
	}
	list, known := s.lists[o.Proof]
	if !known {
		return notChecked
	}
	unchecked := ""
	for _, l := range list {
		if t, bad := s.tried[l.Record]; bad {
			return fmt.Sprintf("the record of unit %s: %v", l.Unit.Short(), t.err)
		}
		if _, ok := s.units[l.Unit]; !ok {
			unchecked = "not all of its records are checked yet"
		}
	}
	return unchecked
}

// Check fetches and checks records that an offer names until need units are proven, or a few more if that costs little,
// or there are no more. Shown has the result.
func (p *Proofs) Check(ctx context.Context, o market.Offer, need int) {
	if o.Proof.IsZero() {
		return
	}
	s, err := p.lock(ctx, o.Provider)
	if err != nil {
		return
	}
	defer s.unlock()
	list, err := p.list(ctx, s, o)
	if err != nil {
		return
	}
	p.records(ctx, s, o, list[:min(max(need, eagerly), len(list))])
}

// CheckUnits verifies that units are among those that an offer names and that their records are checked and fresh;
// records that are not checked yet are fetched. ErrUnproven.
func (p *Proofs) CheckUnits(ctx context.Context, o market.Offer, units []market.UnitID) error {
	if p.proven(o, units) == nil {
		return nil
	}
	if o.Proof.IsZero() {
		return fmt.Errorf("%w: its offer names no fresh audit record", ErrUnproven)
	}
	s, err := p.lock(ctx, o.Provider)
	if err != nil {
		return fmt.Errorf("%w: its records are still being checked", ErrUnproven)
	}
	defer s.unlock()
	list, err := p.list(ctx, s, o)
	if err != nil {
		return fmt.Errorf("%w: the list of its records is not to be had: %w", ErrUnproven, err)
	}
	var wanted []market.Shown
	for _, u := range units {
		i := slices.IndexFunc(list, func(l market.Shown) bool { return l.Unit == u })
		if i < 0 {
			return fmt.Errorf("%w: unit %s is not among the %d that its offer says are proven",
				ErrUnproven, u.Short(), len(list))
		}
		wanted = append(wanted, list[i])
	}
	p.records(ctx, s, o, wanted)
	return p.proven(o, units)
}

// lock waits for a provider's turn.
func (p *Proofs) lock(ctx context.Context, provider sign.Key) (*shower, error) {
	p.mu.Lock()
	s := p.of(provider)
	p.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *shower) unlock() { <-s.turn }

// proven reports whether all the units are, by the known records, and notes that they may be leased by it.
func (p *Proofs) proven(o market.Offer, units []market.UnitID) error {
	_, slot, err := p.cfg.Sight.Window()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(o.Provider)
	for _, u := range units {
		c, ok := s.units[u]
		if !ok {
			return fmt.Errorf("%w: unit %s: %s", ErrUnproven, u.Short(), s.doubt(o))
		}
		if why := p.counts(c, o, slot); why != nil {
			return fmt.Errorf("%w: unit %s: %s", ErrUnproven, u.Short(), why)
		}
	}
	for _, u := range units {
		c := s.units[u]
		c.sold = true
		s.units[u] = c
	}
	return nil
}

// Worked is called for a lease of the reader's own with the time that its provider worked for it: up to a slot,
// exclusive. The records by which its units were sold stay fresh for this time, and until the second audit after it.
func (p *Proofs) Worked(provider sign.Key, units []market.UnitID, from, to market.Slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seen[provider]
	if s == nil {
		return
	}
	for _, u := range units {
		if c, ok := s.units[u]; ok && c.sold && to > c.work.To {
			c.work = audit.Work{From: from, To: to}
			s.units[u] = c
		}
	}
}

// list is the list behind an offer's proof. the turn is s's.
func (p *Proofs) list(ctx context.Context, s *shower, o market.Offer) ([]market.Shown, error) {
	p.mu.Lock()
	list, known := s.lists[o.Proof]
	wait := s.waits(o.Proof, p.cfg.Now())
	p.mu.Unlock()
	if known || wait != nil {
		return list, wait
	}
	list, err := p.fetchList(ctx, o)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			final := errors.Is(err, market.ErrUnits) || errors.Is(err, market.ErrMalformed)
			s.try(o.Proof, attempted{at: p.cfg.Now(), err: err, final: final})
		}
		return nil, err
	}
	if _, known := s.class[o.Class]; !known && len(s.class) >= market.MaxOffers {
		// Nobody sells so many classes at a time.
		s.forget()
	}
	s.had(o.Proof)
	delete(s.lists, s.class[o.Class])
	s.lists[o.Proof], s.class[o.Class] = list, o.Proof
	s.drop(list, o.Class)
	return list, nil
}

// drop forgets the units of a class that are not on the newest list and so may have been made up to fill the memory.
func (s *shower) drop(list []market.Shown, c market.Class) {
	on := make(map[market.UnitID]bool, len(list))
	for _, l := range list {
		on[l.Unit] = true
	}
	for u, k := range s.units {
		if k.class == c && !on[u] {
			delete(s.units, u)
		}
	}
}

func (p *Proofs) fetchList(ctx context.Context, o market.Offer) ([]market.Shown, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	r, err := p.cfg.Ask(ctx, o.Provider, &nodepb.ProofRequest{Offered: o.Proof[:]})
	if err != nil {
		return nil, err
	}
	return market.UnmarshalShown(r.Shown, o.Proof)
}

// records fetches and checks those records of a list that are not checked. the turn is s's.
func (p *Proofs) records(ctx context.Context, s *shower, o market.Offer, list []market.Shown) {
	bad := 0
	p.mu.Lock()
	var wanted []market.Shown
	for _, l := range list {
		c, ok := s.units[l.Unit]
		switch t, tried := s.tried[l.Record]; {
		case tried && t.final:
			bad++
		case s.waits(l.Record, p.cfg.Now()) != nil:
		case !ok || c.class != o.Class || c.res != o.PerUnit || c.hash != l.Record && p.older(c):
			wanted = append(wanted, l)
		}
	}
	p.mu.Unlock()
	for len(wanted) > 0 && bad < maxBad && ctx.Err() == nil {
		n := min(maxFetches, len(wanted))
		var g errgroup.Group
		wrong := make([]bool, n)
		for i, l := range wanted[:n] {
			g.Go(func() error {
				r, tag, err := p.record(ctx, o, l)
				p.mu.Lock()
				defer p.mu.Unlock()
				if err == nil {
					s.had(l.Record)
					s.units[l.Unit] = checked{
						hash: l.Record, record: audit.Record{WindowSlots: r.WindowSlots, Answer: r.Answer},
						class: o.Class, res: o.PerUnit, tag: tag,
					}.after(s.units[l.Unit], r, p.cfg.Sight.Instants())
					return nil
				}
				var rule *audit.RuleError
				final := errors.Is(err, market.ErrMalformed) ||
					errors.As(err, &rule) && rule.Rule != audit.RuleCommittee && rule.Rule != audit.RuleTime
				wrong[i] = final
				if final || ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
					s.try(l.Record, attempted{at: p.cfg.Now(), err: err, final: final})
				}
				p.cfg.Log.Debug("a record does not show a unit", "provider", o.Provider, "unit", l.Unit, "err", err)
				return nil
			})
		}
		_ = g.Wait() // no error is returned
		for _, w := range wrong {
			if w {
				bad++
			}
		}
		wanted = wanted[n:]
	}
}

// older reports whether a record is of a window before the last with an audit, so that a newer one is worth fetching.
func (p *Proofs) older(c checked) bool {
	recent, err := p.cfg.Sight.Recent()
	return err == nil && c.record.Answer.Window < recent.Last
}

// Rate is the least that any of a provider's units was proven to compute, int8 operations a second; 0 where one's is
// not known. The record need not be fresh: units are not audited while they are leased.
func (p *Proofs) Rate(provider sign.Key, units []market.UnitID) (least uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seen[provider]
	if s == nil {
		return 0
	}
	for i, u := range units {
		c, ok := s.units[u]
		if !ok {
			return 0
		}
		if i == 0 || c.rates.Operations < least {
			least = c.rates.Operations
		}
	}
	return least
}

// Next is how long it takes until the next audit, on average: nobody knows when one comes, but where each window has
// one.
func (p *Proofs) Next() time.Duration {
	in := p.cfg.Sight.Instants()
	w, _, err := p.cfg.Sight.Window()
	if err != nil {
		return 0
	}
	next := p.cfg.Until(in.Of(w))
	if next <= 0 || in.OneIn > 1 {
		next = p.cfg.Until(in.Of(w + 1))
	}
	return next + time.Duration((in.Audits(1)-1)*audit.Window(in.Slots*in.Millis))*time.Millisecond
}
