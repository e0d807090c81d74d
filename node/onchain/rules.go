package onchain

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/node/service"
)

const (
	// rulesEvery is the interval of reads of the network's rules.
	rulesEvery = 5 * time.Minute
	// rulesRetry is the delay after a failed read.
	rulesRetry = 10 * time.Second
)

// followRules compares the network's account on the chain with the genesis as soon as it can be read, and then applies
// voted rules until ctx ends. It returns service.ErrConfig if account and genesis differ in audits: this peer's windows
// would then differ from the program's.
func (w *Watch) followRules(ctx context.Context) error {
	checked := false
	for {
		wait := rulesRetry
		network, changed, err := w.cfg.Network.Update(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			w.cfg.Log.Warn("the network's rules cannot be read", "err", err)
		case !checked:
			if err := w.checkAudits(network.Params); err != nil {
				return err
			}
			checked, wait = true, rulesEvery
		default:
			wait = rulesEvery
		}
		if changed {
			w.cfg.Log.Info("the network's rules were changed by vote",
				"sequence", network.Sequence, "rules", network.Rules)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// checkAudits compares the windows of audits that the genesis and the network's account have.
func (w *Watch) checkAudits(p account.Params) error {
	switch here := w.cfg.Genesis.AuditSlots; {
	case uint64(p.AuditSlots) == here:
	case p.AuditSlots == 0:
		w.cfg.Log.Warn("lies in audits are not slashed: the network's account on the chain has no audits, "+
			"while the genesis has", "genesis", here)
	default:
		return fmt.Errorf("%w: the genesis has windows of audits of %d slots, the network's account on the chain "+
			"(%s) of %d: one of them is for another network, start again with the right genesis",
			service.ErrConfig, here, w.cfg.Genesis.Escrow, p.AuditSlots)
	}
	return nil
}
