package auditing

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/local"
	rules "github.com/starling-network/starling/verify/audit"
)

// maxAnchored bounds the audits that are searched for anchored ones.
const maxAnchored = 256

// Hardware opens the device that answers audits for a unit.
type Hardware = func(ctx context.Context, u market.Unit, asked audit.Asked) (device.Device, error)

// own opens the device of this machine.
func own(ctx context.Context, u market.Unit, asked audit.Asked) (device.Device, error) {
	return local.Open(ctx, u, asked.Walk.Bytes())
}

// idle is a seller with idle units that answer audits.
type idle struct {
	Seller
	room *Room
}

// Units implements audit.Seller.
func (i idle) Units(ctx context.Context) ([]audit.Unit, func(), error) { return i.room.idleUnits(ctx) }

// idleUnits returns the unleased units with the hardware that answers for each. The least recently audited come first.
func (r *Room) idleUnits(ctx context.Context) ([]audit.Unit, func(), error) {
	last := map[market.UnitID]rules.Window{}
	for _, p := range r.audits.Shelf().State().All() {
		last[p.Unit] = max(last[p.Unit], p.Window)
	}
	unleased := r.cfg.Seller.Idle()
	r.cfg.Cache.Idle(unleased)
	slices.SortStableFunc(unleased, func(a, b market.Unit) int { return cmp.Compare(last[a.ID], last[b.ID]) })
	var out []audit.Unit
	for _, u := range unleased {
		if len(out) == audit.MaxUnits {
			break
		}
		claim := audit.Claim{ID: u.ID, Class: u.Class, Resources: u.Resources}
		asked, err := audit.ByPlan(claim)
		var d device.Device
		if err == nil {
			d, err = r.device(ctx, u, asked)
		}
		if err != nil {
			r.cfg.Log.Warn("a unit cannot be audited", "unit", u.ID, "class", u.Class, "err", err)
			continue
		}
		out = append(out, audit.Unit{Claim: claim, Device: d})
	}
	return out, func() {
		for _, u := range out {
			if err := u.Device.Close(); err != nil {
				r.cfg.Log.Warn("a device is not closed", "unit", u.ID, "err", err)
			}
		}
	}, nil
}

// device returns the device of a unit. A processor is opened anew: its dataset is small and quickly filled, and an idle
// peer need not keep it.
func (r *Room) device(ctx context.Context, u market.Unit, asked audit.Asked) (device.Device, error) {
	if u.Class.Family() == local.Processors {
		return r.cfg.Hardware(ctx, u, asked)
	}
	d, err := r.cfg.Cache.Take(ctx, u, func() (device.Device, error) { return r.cfg.Hardware(ctx, u, asked) })
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", u.Serial, err)
	}
	return d, nil
}

// Records returns the newest record of each of this peer's units; none if it sells nothing.
func (r *Room) Records() (out []rules.Record) {
	if r.cfg.Seller == nil {
		return nil
	}
	kept := r.audits.Shelf().State()
	for _, p := range kept.All() {
		if p.Record.IsZero() {
			continue
		}
		b, err := kept.Record(p.Record)
		if err != nil {
			continue // only the newest of each unit is there
		}
		if r, err := rules.UnmarshalRecord(b); err == nil {
			out = append(out, r)
		}
	}
	return out
}

// Anchored returns the newest anchored records of this peer's units, at most most.
func (r *Room) Anchored(most int) (out []sign.Hash) {
	past := r.audits.Shelf().State().All()
	slices.SortStableFunc(past, func(x, y audit.Past) int { return cmp.Compare(y.Window, x.Window) })
	for _, p := range past[:min(len(past), maxAnchored)] {
		if p.Anchored == "" || p.Record.IsZero() {
			continue
		}
		// Only the newest of each unit is there.
		if _, err := r.audits.Shelf().State().Record(p.Record); err == nil && len(out) < most {
			out = append(out, p.Record)
		}
	}
	return out
}
