package proven

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
)

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
		// No honest provider sells that many classes at a time.
		s.forget()
	}
	s.had(o.Proof)
	delete(s.lists, s.class[o.Class])
	s.lists[o.Proof], s.class[o.Class] = list, o.Proof
	s.drop(list, o.Class)
	return list, nil
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
