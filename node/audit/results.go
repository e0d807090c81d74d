package audit

import (
	"context"
	"errors"
	"time"

	"github.com/starling-network/starling/node/audit/shelf"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/verify/audit"
)

// without returns the results of units whose audit failed.
func without(units []Unit, err error) (out []Result) {
	var broken *brokenError
	for _, u := range units {
		r := Result{Unit: u.Claim, Err: err}
		if errors.As(err, &broken) {
			r.Broken = 1
		}
		out = append(out, r)
	}
	return out
}

// keep puts the results of a window on the shelf.
func (s *Service) keep(ctx context.Context, window audit.Window, results []Result) error {
	for i := range results {
		r := &results[i]
		if r.Err == nil {
			r.Err = r.Record.CheckClass(r.Unit.Class, r.Unit.Resources)
		}
		if r.Err == nil {
			r.Err = r.Record.CheckInstant(s.cfg.Sight.Instants(), r.Unit.Class)
		}
		if r.Err != nil {
			s.cfg.Log.Warn("a unit was not passed", "unit", r.Unit.ID, "window", uint64(window), "err", r.Err)
		}
	}
	if err := s.cfg.Shelf.Keep(ctx, Audited(window, time.Now(), results...)...); err != nil {
		return err
	}
	select {
	case s.audited <- struct{}{}:
	default:
	}
	return nil
}

// report is the report of a window's result.
func (r Result) report() audit.Report {
	out := audit.Report{Result: audit.Absent, Broken: r.Broken}
	switch {
	case r.Err == nil:
		out.Result = audit.Passed
	case len(r.Record.Verdicts) > 0:
		out.Result = r.Record.Result(r.Unit.Class, r.Unit.Resources)
		if out.Result == audit.Passed { // but for something else
			out.Result = audit.Undecided
		}
	}
	return out
}

// Audited returns the results of a window as the shelf keeps them. A unit with a device that was closed during the
// audit is left out: a program had the unit, and a leased unit need not answer.
func Audited(window audit.Window, at time.Time, results ...Result) (out []shelf.Audited) {
	for _, r := range results {
		a := shelf.Audited{Unit: r.Unit.ID, Class: r.Unit.Class, Window: window, At: at, Report: r.report()}
		switch {
		case errors.Is(r.Err, device.ErrClosed):
			continue
		case r.Err != nil:
			a.Failed = r.Err.Error()
		default:
			a.Record = &r.Record
		}
		out = append(out, a)
	}
	return out
}
