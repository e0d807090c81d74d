package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
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
		return r, tag, fmt.Errorf("%w: it gave another record", market.ErrMalformed)
	case r.Answer.Provider != o.Provider || r.Answer.Unit != l.Unit:
		return r, tag, &audit.RuleError{
			Rule:   audit.RuleUnit,
			Detail: fmt.Sprintf("it is of unit %s of %s", r.Answer.Unit.Short(), r.Answer.Provider.Short()),
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
			Detail: fmt.Sprintf("unit %s is not on the card that it is said to be on", unit.Short()),
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
	if err := checkPublic(ctx, p.cfg.Sight, r, o.Class); err != nil {
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

// checkPublic checks a record against the network's public facts: beacon, instant, dataset, members.
func checkPublic(ctx context.Context, sight Sight, r audit.Record, class market.Class) error {
	window := r.Answer.Window
	era, err := sight.Check(ctx, window, r.Beacon)
	if err != nil {
		return fmt.Errorf("the beacon of window %d: %w", window, err)
	}
	if err := r.CheckInstant(sight.Instants(), class); err != nil {
		return err
	}
	if err := r.CheckDataset(era); err != nil {
		return err
	}
	roster, err := sight.Roster(ctx, window)
	if err != nil {
		return fmt.Errorf("reading the bonded set: %w", err)
	}
	return r.CheckMembers(roster)
}

// attempted is the result of checking a proof or record.
type attempted struct {
	at    time.Time
	err   error
	final bool // it stays wrong
}

// checked is a unit's record that passed everything but time.
type checked struct {
	hash   sign.Hash
	record audit.Record // without openings and verdicts
	work   audit.Work   // of the reader's own leases since
	sold   bool         // the reader found it proven before it signed a lease
	past   []showed     // of the time of audit.MaxRates audits, this record's too
	rates  audit.Rates  // the rates that may be sold by them
	class  market.Class
	res    market.Resources
	tag    sign.Hash // of the card that the unit claims; zero for one of which there may be many
}

// showed is the rates of one record.
type showed struct {
	window audit.Window
	rates  audit.Rates
}

// after has a record count beside what this peer saw of the unit before, where that was of the same class and
// resources.
func (c checked) after(old checked, r audit.Record, in audit.Instants) checked {
	w := r.Answer.Window
	c.past = []showed{{w, r.Rates()}}
	if old.class == c.class && old.res == c.res {
		for _, s := range old.past {
			if s.window != w && s.window+in.Audits(audit.MaxRates) > w && s.window < w+in.Audits(audit.MaxRates) {
				c.past = append(c.past, s)
			}
		}
	}
	c.past = c.past[:min(len(c.past), audit.MaxRates)]
	rates := make([]audit.Rates, len(c.past))
	for i, s := range c.past {
		rates[i] = s.rates
	}
	c.rates = audit.Capacity(rates)
	return c
}
