// Package sight has the public facts of a network that audits depend on: the beacon of each window, the windows that
// have an audit, and the bonded set that committees are drawn from.
//
// [Sight] is a peer's view of them. [Public] reads them from the chain, each once. [CheckRecord] and [CheckPassed] hold
// a record to them. [Failed] keeps the units that failed by the word of their committees.
package sight

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// Sight is a peer's view of the network's public facts. Methods may send requests to the chain.
type Sight interface {
	// Window is the window now, and the slot.
	Window() (audit.Window, market.Slot, error)
	// Beacon returns the beacon of a window that has begun, and of its datasets. It returns chain.ErrNotFound while
	// there is none.
	Beacon(ctx context.Context, w audit.Window) (Drawn, error)
	// Check checks that a beacon is a window's, and returns the beacon of its datasets.
	Check(ctx context.Context, w audit.Window, b audit.Beacon) (era audit.Beacon, err error)
	// Roster is the set that committees of a window are drawn from.
	Roster(ctx context.Context, w audit.Window) (audit.Roster, error)
	// Instants say which windows have an audit, and when it begins.
	Instants() audit.Instants
	// Recent is the last known windows with an audit, without a request.
	Recent() (audit.Recent, error)
}

// Drawn is a window's beacon, and the beacon that the window's datasets are made of.
type Drawn struct {
	audit.Beacon
	Era audit.Beacon
}

// CheckRecord checks a record against the network's public facts: beacon, instant, dataset, members.
func CheckRecord(ctx context.Context, s Sight, r audit.Record, class market.Class) error {
	window := r.Answer.Window
	era, err := s.Check(ctx, window, r.Beacon)
	if err != nil {
		return fmt.Errorf("the beacon of window %d: %w", window, err)
	}
	if err := r.CheckInstant(s.Instants(), class); err != nil {
		return err
	}
	if err := r.CheckDataset(era); err != nil {
		return err
	}
	roster, err := s.Roster(ctx, window)
	if err != nil {
		return fmt.Errorf("reading the bonded set: %w", err)
	}
	return r.CheckMembers(roster)
}

// maxPassedAgo is the age of records that can be checked, in audits on average: older beacons and members are
// forgotten.
const maxPassedAgo = 2

// CheckPassed checks all of a record of a provider's last audits. After *audit.RuleError the record proves nothing;
// after other errors that is unknown.
func CheckPassed(ctx context.Context, s Sight, g market.Genesis, of sign.Key, r audit.Record) error {
	now, _, err := s.Window()
	if err != nil {
		return err
	}
	broken := func(rule audit.Rule, format string, args ...any) error {
		return &audit.RuleError{Rule: rule, Detail: fmt.Sprintf(format, args...)}
	}
	switch w := r.Answer.Window; {
	case r.Answer.Provider != of:
		return broken(audit.RuleUnit, "record of %s", r.Answer.Provider.Short())
	case r.WindowSlots != g.AuditSlots:
		return broken(audit.RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, g.AuditSlots)
	case w > now:
		return broken(audit.RuleTime, "window: got %d, want at most %d", w, now)
	case w < s.Instants().Ago(now, maxPassedAgo):
		return fmt.Errorf("record of window %d: too old in window %d: %w", w, now, chain.ErrNotFound)
	}
	if err := CheckRecord(ctx, s, r, ""); err != nil {
		return err
	}
	return r.Check(g.Domain())
}
