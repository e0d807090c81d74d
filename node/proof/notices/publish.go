package notices

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/p2p/discovery"
	"github.com/starling-network/starling/verify/notice"
)

// turn journals the changes and visits the places that are due.
func (k *Publisher) turn(ctx context.Context, t Table) error {
	slot, err := k.cfg.Slot()
	if err != nil {
		return nil // the hour is unknown yet, and nothing is traded
	}
	if err := k.journal(ctx, slot); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	pace := time.NewTicker(pass / mostPerPass)
	defer pace.Stop()
	for i, p := range k.plan(time.Now(), slot) {
		if i > 0 {
			select {
			case <-ctx.Done(): // the remaining ones fail at once
			case <-pace.C:
			}
		}
		g.Go(func() error {
			if err := k.visit(ctx, t, p); err != nil {
				k.failed(p.Place)
				k.cfg.Log.Debug("a unit's leases were not published", "provider", p.Provider.Short(),
					"unit", p.Unit.Short(), "err", err)
			}
			return nil
		})
	}
	return g.Wait()
}

// visit reads the notice of others at a place, keeps the double sales in it, and puts back the joint notice, unless it
// is there and was put lately. A peer without leases there puts back double sales only, so that they outlive their
// publishers.
func (k *Publisher) visit(ctx context.Context, t Table, of task) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	p, now := of.Place, time.Now()
	ours, err := k.ours(p)
	if err != nil {
		return err
	}
	var theirs notice.Notice
	b, err := t.GetValue(ctx, values, p.Marshal())
	switch {
	case err == nil:
		if theirs, err = k.read(p, b); err != nil {
			return fmt.Errorf("reading the notice of others: %w", err)
		}
	case !errors.Is(err, discovery.ErrNotFound):
		return err
	}
	joint := notice.Join(k.calendar, p, ours, theirs)
	if len(joint.Receipts) == 0 {
		return nil
	}
	proofs := joint.Conflicts(k.calendar, p)
	for _, c := range proofs {
		k.keep(ctx, c)
	}
	if len(ours.Receipts) == 0 && len(proofs) == 0 {
		return nil
	}
	out := joint.Marshal()
	if bytes.Equal(out, b) && now.Sub(of.since) < k.patient(p, republish) {
		k.said(p, of.since)
		return nil
	}
	if err := t.PutValue(ctx, values, p.Marshal(), out); err != nil {
		return err
	}
	k.said(p, now)
	if !bytes.Equal(out, b) {
		k.cfg.Log.Debug("a unit's leases are published", "provider", p.Provider.Short(), "unit", p.Unit.Short(),
			"receipts", len(joint.Receipts))
	}
	return nil
}
