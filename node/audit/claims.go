package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/audit"
)

// Bounds of looking for others who claim a card.
const (
	// maxRivals is how many peers are asked about one card.
	maxRivals = 16
	// maxBeside is how many units that passed at once with its own a peer shows for each.
	maxBeside = 4
	// maxLooked bounds the cards of which it is remembered when others were asked about them.
	maxLooked = 4096
)

// ClaimsConfig is what Claims needs; all of it but Find.
type ClaimsConfig struct {
	Domain      sign.Domain
	WindowSlots uint64
	Sight       Sight
	Ask         func(ctx context.Context, from sign.Key, req *nodepb.RecordRequest) (*nodepb.RecordReply, error)
	// Find finds peers that are said to claim a card. nil: nobody is asked but who was seen to.
	Find func(ctx context.Context, tag sign.Hash, most int) ([]sign.Key, error)
	Now  func() time.Time
	Log  *slog.Logger
}

// Claims knows which units claim one card, by records that were checked, and finds others that do. It may be used by many goroutines.
type Claims struct {
	cfg ClaimsConfig

	mu     sync.Mutex
	cards  audit.Cards
	looked map[sign.Hash]looked // by tag
}

// looked is when others were asked about a card last.
type looked struct {
	window audit.Window
	at     time.Time
}

// NewClaims knows nothing yet.
func NewClaims(cfg ClaimsConfig) *Claims {
	return &Claims{cfg: cfg, looked: map[sign.Hash]looked{}}
}

// rival is another unit that claims a card.
type rival struct {
	card   market.Card
	res    market.Resources
	record audit.Record
}

// see takes a record of a unit that passed, all of which was checked, its class too.
func (c *Claims) see(tag sign.Hash, r audit.Record) {
	window, _, err := c.cfg.Sight.Window()
	if err != nil {
		return // what is not known to be of now is none to judge by
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cards.See(window, tag, r)
}

// Held is what a unit's claim to its card is worth, as far as this peer saw.
func (c *Claims) Held(tag sign.Hash, unit market.UnitID) audit.Held {
	window, _, err := c.cfg.Sight.Window()
	if err != nil || tag.IsZero() {
		return audit.Held{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cards.Held(window, tag, unit)
}

// due says whether others are to be asked about a unit's card: once in a window, and again after a while as long as one waits for another.
func (c *Claims) due(window audit.Window, tag sign.Hash, unit market.UnitID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, known := c.looked[tag]
	frozen := c.cards.Held(window, tag, unit).Hold == audit.Frozen
	return !known || l.window != window || frozen && c.cfg.Now().Sub(l.at) >= again
}

// Look asks who else claims a unit's card for what it shows, those that were seen to and those that are said to, unless that was done
// of late. Who does not answer claims nothing that was not seen. It gives what the others showed.
func (c *Claims) Look(ctx context.Context, provider sign.Key, tag sign.Hash, unit market.UnitID) []rival {
	window, _, err := c.cfg.Sight.Window()
	if err != nil || tag.IsZero() || !c.due(window, tag, unit) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	c.mu.Lock()
	who := c.cards.Providers(tag)
	c.mu.Unlock()
	if c.cfg.Find != nil {
		found, err := c.cfg.Find(ctx, tag, maxRivals)
		if err != nil {
			c.cfg.Log.Debug("not all who claim a card may be found", "err", err)
		}
		who = append(who, found...)
	}
	var asked []sign.Key
	var out []rival
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, k := range who {
		if k == provider || slices.Contains(asked, k) || len(asked) == maxRivals {
			continue
		}
		asked = append(asked, k)
		wg.Go(func() {
			r, err := c.ask(ctx, window, k, tag)
			if err != nil {
				c.cfg.Log.Debug("a peer does not show that a card is its own", "peer", k, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, r)
		})
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.looked) >= maxLooked {
		for t, l := range c.looked {
			if l.window != window || len(c.looked) >= maxLooked {
				delete(c.looked, t)
			}
		}
	}
	c.looked[tag] = looked{window, c.cfg.Now()}
	return out
}

// ask has a peer show the unit by which it claims a card, and checks its record.
func (c *Claims) ask(ctx context.Context, window audit.Window, from sign.Key, tag sign.Hash) (rival, error) {
	reply, err := c.cfg.Ask(ctx, from, &nodepb.RecordRequest{Card: tag[:]})
	if err != nil {
		return rival{}, err
	}
	r, err := audit.UnmarshalRecord(reply.Record)
	if err != nil {
		return rival{}, err
	}
	out := rival{record: r, res: resourcesOf(reply.Has)}
	if out.card, err = openCard(reply.Card, r.Answer.Provider, r.Answer.Unit); err != nil {
		return out, err
	}
	if r.Answer.Provider != from || out.card.Tag != tag {
		return out, &audit.RuleError{Rule: audit.RuleCard, Detail: "it shows another's unit, or another card"}
	}
	if err := c.check(ctx, window, out.card.Class, out.res, r); err != nil {
		return out, err
	}
	if err := r.Check(c.cfg.Domain); err != nil {
		return out, err
	}
	c.see(tag, r)
	return out, nil
}

// check holds a record against what its class asks and what is public of its window.
func (c *Claims) check(ctx context.Context, now audit.Window, class market.Class, res market.Resources, r audit.Record) error {
	switch w := r.Answer.Window; {
	case r.WindowSlots != c.cfg.WindowSlots:
		return &audit.RuleError{Rule: audit.RuleWindow, Detail: fmt.Sprintf("windows of %d slots, the network's have %d", r.WindowSlots, c.cfg.WindowSlots)}
	case w > now || w+audit.Gone < now:
		return &audit.RuleError{Rule: audit.RuleFresh, Detail: fmt.Sprintf("it is of window %d, it is %d now", w, now)}
	}
	if err := r.CheckClass(class, res); err != nil {
		return err
	}
	return checkPublic(ctx, c.cfg.Sight, r, class)
}

// beside takes what a provider shows of units that passed at once with its own. What does not hold is left out.
func (c *Claims) beside(ctx context.Context, provider sign.Key, card market.Card, res market.Resources, pairs []*nodepb.Beside) error {
	window, _, err := c.cfg.Sight.Window()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pairs[:min(len(pairs), maxBeside)] {
		errs = append(errs, c.pair(ctx, window, provider, card, res, p))
	}
	return errors.Join(errs...)
}

// pair checks that two units that claim one card passed in one window.
func (c *Claims) pair(ctx context.Context, now audit.Window, provider sign.Key, card market.Card, res market.Resources, p *nodepb.Beside) error {
	own, err := readCertificate(p.Own)
	if err != nil {
		return err
	}
	other, err := readCertificate(p.Other)
	if err != nil {
		return err
	}
	otherCard, err := openCard(p.Card, other.Answer.Provider, other.Answer.Unit)
	switch {
	case err != nil:
		return err
	case own.Answer.Provider != provider || own.Answer.Unit != card.Unit(provider) || otherCard.Tag != card.Tag || own.Answer.Window != other.Answer.Window:
		return &audit.RuleError{Rule: audit.RuleCard, Detail: "they are of other units, or not of one window"}
	}
	c.mu.Lock()
	known := c.cards.Saw(card.Tag, own) && c.cards.Saw(card.Tag, other)
	c.mu.Unlock()
	if known {
		return nil
	}
	for _, x := range []rival{{card, res, own}, {otherCard, resourcesOf(p.Has), other}} {
		if err := c.check(ctx, now, x.card.Class, x.res, x.record); err != nil {
			return err
		}
		at := x.record.Answer.Target
		at.Window++
		if _, err := x.record.CheckLink(c.cfg.Domain, c.cfg.WindowSlots, at); err != nil {
			return err
		}
	}
	c.see(card.Tag, own)
	c.see(card.Tag, other)
	return nil
}

// readCertificate reads a certificate and nothing after it.
func readCertificate(b []byte) (audit.Record, error) {
	if len(b) > audit.MaxCertificate {
		return audit.Record{}, fmt.Errorf("%w: a certificate of %d bytes, at most %d", market.ErrMalformed, len(b), audit.MaxCertificate)
	}
	cert, rest, err := audit.CutCertificate(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes after a certificate", market.ErrMalformed, len(rest))
	}
	return cert.Record(), err
}

// openCard reads which card a unit claims to be.
func openCard(b []byte, provider sign.Key, unit market.UnitID) (market.Card, error) {
	c, err := market.UnmarshalCard(b)
	if err == nil && c.Unit(provider) != unit {
		err = &audit.RuleError{Rule: audit.RuleCard, Detail: fmt.Sprintf("unit %s is not on the card that it is said to be on", unit.Short())}
	}
	return c, err
}

func resourcesOf(r *nodepb.Has) market.Resources {
	return market.Resources{VRAMMiB: r.GetVramMib(), MemoryMiB: r.GetMemoryMib(), MilliCPU: r.GetMilliCpu()}
}

func hasOf(r market.Resources) *nodepb.Has {
	return &nodepb.Has{VramMib: r.VRAMMiB, MemoryMib: r.MemoryMiB, MilliCpu: r.MilliCPU}
}
