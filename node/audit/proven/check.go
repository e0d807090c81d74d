package proven

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/audit"
)

// record fetches the record of a unit, with the tag of its card, and checks all of it.
func (p *Proofs) record(
	ctx context.Context, o market.Offer, l market.Shown,
) (r audit.Record, tag sign.Hash, err error) {
	fctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	reply, err := p.cfg.Ask(fctx, o.Provider, &nodepb.ProofRequest{Hash: l.Record[:]})
	if err != nil {
		return r, tag, err
	}
	c, err := proof.Unmarshal(reply.Proof, nil)
	if err != nil {
		return r, tag, err
	}
	a, ok := c.(proof.Audit)
	r = a.Record
	switch {
	case !ok || r.Hash() != l.Record:
		return r, tag, fmt.Errorf("%w: got another record", market.ErrMalformed)
	case r.Answer.Provider != o.Provider || r.Answer.Unit != l.Unit:
		return r, tag, &audit.RuleError{
			Rule:   audit.RuleUnit,
			Detail: fmt.Sprintf("record of unit %s of %s", r.Answer.Unit.Short(), r.Answer.Provider.Short()),
		}
	}
	if err := p.judge(ctx, o, r); err != nil || !p.alone(o.Class) {
		return r, tag, err
	}
	card, err := openCard(reply.Card, o.Provider, l.Unit)
	if err == nil && card.Class != o.Class {
		err = &audit.RuleError{
			Rule:   audit.RuleCard,
			Detail: fmt.Sprintf("unit %s is of class %s", l.Unit.Short(), card.Class),
		}
	}
	if err != nil {
		return r, tag, err
	}
	p.saw(card.Tag, r)
	return r, card.Tag, nil
}

// openCard reads which card a unit claims to be.
func openCard(b []byte, provider sign.Key, unit market.UnitID) (market.Card, error) {
	c, err := market.UnmarshalCard(b)
	if err == nil && c.Unit(provider) != unit {
		err = &audit.RuleError{
			Rule:   audit.RuleCard,
			Detail: fmt.Sprintf("unit %s: card mismatch", unit.Short()),
		}
	}
	return c, err
}

// saw notes that a unit which claims a card passed.
func (p *Proofs) saw(tag sign.Hash, r audit.Record) {
	window, _, err := p.cfg.Sight.Window()
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cards.See(window, tag, r.Answer.Target)
}

// judge checks a record that is the one named, the cheapest checks first.
func (p *Proofs) judge(ctx context.Context, o market.Offer, r audit.Record) error {
	_, slot, err := p.cfg.Sight.Window()
	if err != nil {
		return err
	}
	recent, err := p.cfg.Sight.Recent()
	if err != nil {
		return err
	}
	if err := audit.Fresh(r, p.cfg.WindowSlots, recent, slot, audit.Work{}); err != nil {
		return err
	}
	if err := r.CheckClass(o.Class, o.PerUnit); err != nil {
		return err
	}
	if err := sight.CheckRecord(ctx, p.cfg.Sight, r, o.Class); err != nil {
		return err
	}
	if p.cfg.Failures != nil {
		roster, err := p.cfg.Sight.Roster(ctx, r.Answer.Window)
		if err == nil {
			err = p.cfg.Failures.Against(ctx, r, roster)
		}
		if err != nil {
			return err
		}
	}
	select {
	case p.cpu <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.cpu }()
	return r.Check(p.cfg.Domain)
}
