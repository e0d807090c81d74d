package audit

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/audit"
)

// maxPassedAgo is the age of records that can be checked, in audits on average: older beacons and members are
// forgotten.
const maxPassedAgo = 2

// Passed fetches the record of another peer's audit and checks all of it except that its anchor is on chain; it returns
// the anchor. After *audit.RuleError or market.ErrMalformed the record proves nothing; after other errors that is
// unknown.
func (s *Service) Passed(ctx context.Context, of sign.Key, hash sign.Hash) (audit.Record, chain.Inclusion, error) {
	c, err := s.cfg.Fetch(ctx, of, hash)
	if err != nil {
		return audit.Record{}, chain.Inclusion{}, err
	}
	a, ok := c.(proof.Audit)
	if !ok {
		return audit.Record{}, chain.Inclusion{}, fmt.Errorf("%w: %s proof, want an audit",
			market.ErrMalformed, c.Kind())
	}
	r := a.Record
	now, _, err := s.cfg.Sight.Window()
	if err != nil {
		return r, chain.Inclusion{}, err
	}
	broken := func(rule audit.Rule, format string, args ...any) error {
		return &audit.RuleError{Rule: rule, Detail: fmt.Sprintf(format, args...)}
	}
	switch w := r.Answer.Window; {
	case r.Answer.Provider != of:
		return r, chain.Inclusion{}, broken(audit.RuleUnit, "it is of %s", r.Answer.Provider.Short())
	case r.WindowSlots != s.cfg.Genesis.AuditSlots:
		return r, chain.Inclusion{}, broken(audit.RuleWindow, "windows of %d slots, the network's have %d",
			r.WindowSlots, s.cfg.Genesis.AuditSlots)
	case w > now:
		return r, chain.Inclusion{}, broken(audit.RuleTime, "it is of window %d, it is %d now", w, now)
	case w < s.cfg.Sight.Instants().Ago(now, maxPassedAgo):
		return r, chain.Inclusion{}, fmt.Errorf("the record is of window %d, it is %d now: %w",
			w, now, chain.ErrNotFound)
	}
	in, err := proof.ReadAnchor(a.Anchor, hash)
	if err != nil {
		return r, in, err
	}
	if err := checkPublic(ctx, s.cfg.Sight, r, ""); err != nil {
		return r, in, err
	}
	return r, in, r.Check(s.cfg.Genesis.Domain())
}
