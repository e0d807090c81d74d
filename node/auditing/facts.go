package auditing

import (
	"context"
	"log/slog"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/audit/proven"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	rules "github.com/starling-network/starling/verify/audit"
)

// FactsConfig is the configuration of Facts.
type FactsConfig struct {
	Genesis market.Genesis
	Blocks  chain.Blocks
	Slots   *slots.Clock
	// Roster reads the set that committees of a window that has begun are drawn from.
	Roster func(ctx context.Context, w rules.Window) (rules.Roster, error)
	// Recent is optional; if nil, the last windows with an audit are read from the blocks.
	Recent func(ctx context.Context, w rules.Window) (rules.Recent, error)
	Log    *slog.Logger
}

// Facts are the public facts of audits on a network, and the audits that failed.
type Facts struct {
	*sight.Public
	// Refused is the audits of others that failed; nil before Keep, and for a light peer.
	Refused *sight.Failed
	cfg     FactsConfig
}

// NewFacts makes a peer's view of the public facts of audits.
func NewFacts(cfg FactsConfig) (*Facts, error) {
	public, err := sight.NewPublic(sight.PublicConfig{
		Genesis: cfg.Genesis, Blocks: cfg.Blocks, Roster: cfg.Roster, Recent: cfg.Recent,
		Log:  cfg.Log.With("role", "audit"),
		Slot: func() (market.Slot, error) { return cfg.Slots.Now(time.Now()) },
	})
	return &Facts{Public: public, cfg: cfg}, err
}

// Keep opens the records of failed audits.
func (f *Facts) Keep(ctx context.Context, s store.Store) (err error) {
	f.Refused, err = sight.OpenFailed(ctx, s, f.cfg.Genesis, f.Public)
	return err
}

// Proofs returns the buyer's part that checks the proofs of other peers' units. ask requests their records.
func (f *Facts) Proofs(ask proven.Asker) *proven.Proofs {
	cfg := proven.Config{
		Domain: f.cfg.Genesis.Domain(), WindowSlots: f.cfg.Genesis.AuditSlots, Sight: f.Public, Ask: ask,
		Until: func(s market.Slot) time.Duration { return f.cfg.Slots.Until(time.Now(), s) },
		Now:   time.Now, Log: f.cfg.Log.With("role", "buyer"),
	}
	if f.Refused != nil {
		cfg.Failures = f.Refused
	}
	return proven.New(cfg)
}
