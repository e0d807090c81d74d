// Package proven is the buyer's side of audits: it provides the proven rates of the units on offer. [Proofs] fetches
// the records that offers name and checks each once, before units are bought.
package proven

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
)

// Bounds of the work for one provider and of the memory of all.
const (
	// eagerly is the number of an offer's records that are checked in advance: all of a usual machine.
	eagerly = 16
	// maxFetches is how many records of one provider are on their way at a time.
	maxFetches = 4
	// maxBad is the number of wrong records of one list after which the rest is ignored.
	maxBad = 4
	// maxSeen bounds the remembered providers; the one unused for longest goes first.
	maxSeen = 2048
	// again is the delay before another request to a provider without an answer, or with a record that could not be
	// judged.
	again = 5 * time.Second
	// answerTime is how long a provider may take for a list or a record.
	answerTime = 2 * time.Second
)

// ErrUnproven reports that a unit has no checked fresh record.
var ErrUnproven = errors.New("unit has no fresh audit record")

// Config is the configuration of Proofs; all of it is required, except Failures.
type Config struct {
	Domain      sign.Domain
	WindowSlots uint64
	Sight       sight.Sight
	// Failures is optional; if nil, failed units are not considered.
	Failures Failures
	Ask      Asker
	Until    func(market.Slot) time.Duration // how long it takes until a slot begins
	Now      func() time.Time
	Log      *slog.Logger
}

// Failures is the units that failed, by the word of their committees.
type Failures interface {
	// Against returns the reason why a passed record does not count: its unit failed. roster is the roster of the
	// record's window; if nil, the record was checked before, and no request is made.
	Against(ctx context.Context, r audit.Record, roster audit.Roster) error
}

// Asker requests a record from a peer, or the list of records behind the proof of an offer.
type Asker func(ctx context.Context, from sign.Key, req *nodepb.ProofRequest) (*nodepb.ProofReply, error)

// Proofs provides the proven rates of the units on offer: it fetches the records that offers name and checks each once.
// It trusts no statement of a provider or a committee. It is safe for concurrent use.
type Proofs struct {
	cfg Config
	cpu chan struct{} // holds one for each record that is being checked

	alone func(market.Class) bool // market.Class.Alone

	mu    sync.Mutex
	seen  map[sign.Key]*shower
	cards *audit.Cards
}

// New returns Proofs without any records.
func New(cfg Config) *Proofs {
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

// Shown is the known state of an offer's units, without a request: how many of all its units, free or not, are proven.
func (p *Proofs) Shown(o market.Offer) match.Shown {
	if o.Proof.IsZero() {
		return match.Shown{Doubt: "the offer names no fresh audit record"}
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

// counts returns an error if a record does not prove units such as those of an offer now. p.mu is held.
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
var errOther = errors.New("the record has another class or other resources")

// fresh returns an error if a record does not keep its unit listed now.
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

// Check fetches and checks records that an offer names until need units are proven, or no record is left. It checks a
// few more if that costs little. Shown returns the result.
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

// CheckUnits verifies that the offer names the units and that their records are checked and fresh; it fetches unchecked
// records. It returns ErrUnproven.
func (p *Proofs) CheckUnits(ctx context.Context, o market.Offer, units []market.UnitID) error {
	if p.proven(o, units) == nil {
		return nil
	}
	if o.Proof.IsZero() {
		return fmt.Errorf("%w: the offer names no fresh audit record", ErrUnproven)
	}
	s, err := p.lock(ctx, o.Provider)
	if err != nil {
		return fmt.Errorf("%w: records are still being checked", ErrUnproven)
	}
	defer s.unlock()
	list, err := p.list(ctx, s, o)
	if err != nil {
		return fmt.Errorf("%w: list of records: not available: %w", ErrUnproven, err)
	}
	var wanted []market.Shown
	for _, u := range units {
		i := slices.IndexFunc(list, func(l market.Shown) bool { return l.Unit == u })
		if i < 0 {
			return fmt.Errorf("%w: unit %s: not among the %d proven units of the offer",
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

// Worked is called for a lease of the reader with the time that its provider worked for it, up to slot to, exclusive.
// The records that sold its units stay fresh for this time, and until the second audit after it.
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

// Rate returns the least proven rate of a provider's units, in int8 operations a second; 0 if one is unknown. The
// record need not be fresh: units are not audited while they are leased.
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

// Next returns the average time until the next audit. If every window has one, the time is exact.
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
