package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
)

// record fetches the record of a unit, with what excuses it since and the tag of its card, and checks all of it.
func (p *Proofs) record(ctx context.Context, o market.Offer, l market.Shown) (audit.Record, sign.Hash, excused, error) {
	fctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var none sign.Hash
	reply, err := p.cfg.Ask(fctx, o.Provider, &nodepb.RecordRequest{Hash: l.Record[:]})
	if err != nil {
		return audit.Record{}, none, excused{}, err
	}
	r, err := audit.UnmarshalRecord(reply.Record)
	switch {
	case err != nil:
		return r, none, excused{}, err
	case r.Hash() != l.Record:
		return r, none, excused{}, fmt.Errorf("%w: it gave another record", market.ErrMalformed)
	case r.Answer.Provider != o.Provider || r.Answer.Unit != l.Unit:
		return r, none, excused{}, &audit.RuleError{Rule: audit.RuleUnit, Detail: fmt.Sprintf("it is of unit %s of %s", r.Answer.Unit.Short(), r.Answer.Provider.Short())}
	case r.WindowSlots != p.cfg.WindowSlots:
		return r, none, excused{}, &audit.RuleError{Rule: audit.RuleWindow, Detail: fmt.Sprintf("windows of %d slots, the network's have %d", r.WindowSlots, p.cfg.WindowSlots)}
	}
	busy, err := p.judge(ctx, o, r, reply.Excuses)
	if err != nil || !p.alone(o.Class) {
		return r, none, busy, err
	}
	card, err := openCard(reply.Card, o.Provider, l.Unit)
	if err == nil && card.Class != o.Class {
		err = &audit.RuleError{Rule: audit.RuleCard, Detail: fmt.Sprintf("unit %s is of class %s", l.Unit.Short(), card.Class)}
	}
	if err != nil {
		return r, none, busy, err
	}
	p.saw(card.Tag, r)
	return r, card.Tag, busy, nil
}

// openCard reads which card a unit claims to be.
func openCard(b []byte, provider sign.Key, unit market.UnitID) (market.Card, error) {
	c, err := market.UnmarshalCard(b)
	if err == nil && c.Unit(provider) != unit {
		err = &audit.RuleError{Rule: audit.RuleCard, Detail: fmt.Sprintf("unit %s is not on the card that it is said to be on", unit.Short())}
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

// judge checks a record that is the one named, what is cheap first, and what excuses its unit since.
func (p *Proofs) judge(ctx context.Context, o market.Offer, r audit.Record, excuses [][]byte) (busy excused, err error) {
	window, slot, err := p.cfg.Sight.Window()
	if err != nil {
		return busy, err
	}
	stale := audit.Fresh(r, nil, slot, audit.Terms{WindowSlots: p.cfg.WindowSlots})
	var rule *audit.RuleError
	if stale != nil && (p.cfg.Burns == nil || len(excuses) == 0 || !errors.As(stale, &rule) || rule.Rule != audit.RuleFresh) {
		return busy, stale
	}
	keeps := func(e excused) error { return p.fresh(checked{record: r, busy: e}, o, slot) }
	if stale != nil {
		list, err := readExcuses(r, window, excuses)
		if err == nil {
			busy, err = hope(ctx, p.cfg.Burns, list)
		}
		if err == nil {
			err = keeps(busy)
		}
		if err != nil {
			return busy, err
		}
	}
	if err := r.CheckClass(o.Class, o.PerUnit); err != nil {
		return busy, err
	}
	if err := checkPublic(ctx, p.cfg.Sight, r, o.Class); err != nil {
		return busy, err
	}
	if p.cfg.Against != nil {
		roster, err := p.cfg.Sight.Roster(ctx, r.Answer.Window)
		if err == nil {
			err = p.cfg.Against(r, roster)
		}
		if err != nil {
			return busy, err
		}
	}
	if err := p.compute(ctx, r, busy); err != nil || stale == nil {
		return busy, err
	}
	if busy, err = busy.weigh(ctx, p.cfg.Burns); err != nil {
		return busy, err
	}
	return busy, keeps(busy)
}

// compute is what of judging takes a processor.
func (p *Proofs) compute(ctx context.Context, r audit.Record, busy excused) error {
	select {
	case p.cpu <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.cpu }()
	if err := r.Check(p.cfg.Domain); err != nil {
		return err
	}
	for _, e := range busy.list {
		if err := e.Check(p.cfg.Domain); err != nil {
			return err
		}
	}
	return nil
}

// checkPublic holds a record against what the network's public facts say: beacon, instant, dataset, members.
func checkPublic(ctx context.Context, sight Sight, r audit.Record, class market.Class) error {
	window := r.Answer.Window
	era, err := sight.Check(ctx, window, r.Answer.Provider, r.Beacon, r.Proof)
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
