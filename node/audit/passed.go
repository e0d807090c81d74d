package audit

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify/audit"
)

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
	in, err := proof.ReadAnchor(a.Anchor, hash)
	if err != nil {
		return a.Record, in, err
	}
	return a.Record, in, sight.CheckPassed(ctx, s.cfg.Sight, s.cfg.Genesis, of, a.Record)
}
