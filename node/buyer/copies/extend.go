package copies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

const (
	// maxAhead bounds the end of the time of copies, from now.
	maxAhead = 365 * 24 * time.Hour
	// A copy that ends before the time of all is replaced before it ends, by at least leastHandover and the time of the
	// pack at handoverRate, in bytes per second: its provider can still send the pack.
	leastHandover, handoverRate = time.Hour, 1 << 20
)

// handover is the time before the end of a copy at which another one is placed.
func handover(size int64) time.Duration {
	return leastHandover + time.Duration(size/handoverRate)*time.Second
}

// leaves reports whether a volume ends soon, and before the time of the copies.
func leaves(of record.Job, k record.Kept, now time.Time) bool {
	end := of.Until()
	return !end.IsZero() && end.Before(k.Until.Add(-leastTime)) && end.Sub(now) < handover(k.Pack.Size)
}

// Extend gives the copies of a job more time: their end is journalled, and each volume is extended to it at its price,
// if its provider agrees. A volume that ends before is replaced by one at another provider. It returns
// record.ErrNoCopies for a job without copies, and record.ErrRefused if the copies have no time yet, or none any
// longer. If no volume could be extended for a reason of this peer, it returns the reason, and the time stays.
func (r *Room) Extend(ctx context.Context, id string, by time.Duration) (record.ExtendedCopies, error) {
	j, err := r.cfg.Jobs.Job(id)
	if err != nil {
		return record.ExtendedCopies{}, err
	}
	turn := r.turn(j.ID)
	if err := turn.Acquire(ctx, 1); err != nil {
		return record.ExtendedCopies{}, err
	}
	defer turn.Release(1)
	k, at, err := r.read(ctx, j.ID)
	if err != nil {
		return record.ExtendedCopies{}, err
	}
	until := k.Until.Add(by)
	switch {
	case at != record.KeptOpen:
		err = fmt.Errorf("%w: the copies of job %s are kept no longer: %s", record.ErrRefused, j.ID, k.Over)
	case k.Pack == nil:
		err = fmt.Errorf("%w: the time of the copies of job %s begins when its outputs are here",
			record.ErrRefused, j.ID)
	case by < job.MinTime || by > job.MaxRun:
		err = fmt.Errorf("%w: %v more is not between %v and %v", record.ErrRefused, by, job.MinTime, job.MaxRun)
	case time.Until(until) > maxAhead:
		err = fmt.Errorf("%w: copies until %s: want at most %v from now", record.ErrRefused,
			until.UTC().Format(time.RFC3339), maxAhead)
	}
	if err != nil {
		return record.ExtendedCopies{}, err
	}
	before := k.Until
	k.Until = until
	if err := r.write(ctx, j.ID, k); err != nil { // before a request
		return record.ExtendedCopies{}, err
	}
	out := record.ExtendedCopies{Job: j.ID, Until: until, Copies: []record.ExtendedCopy{}}
	for _, c := range k.Copies {
		if c.Lost == "" {
			out.Copies = append(out.Copies, record.ExtendedCopy{Job: c.Job, Provider: c.Provider})
		}
	}
	if err := longer(ctx, r.cfg.Jobs, &out); err != nil {
		k.Until = before
		return record.ExtendedCopies{}, errors.Join(err, r.write(context.WithoutCancel(ctx), j.ID, k))
	}
	return out, nil
}

// longer extends the volumes of copies to their new end. It returns an error if each was refused by this peer.
func longer(ctx context.Context, jobs Jobs, out *record.ExtendedCopies) error {
	errs := make([]error, len(out.Copies))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range out.Copies {
		g.Go(func() error {
			errs[i] = extend(ctx, jobs, &out.Copies[i], out.Until)
			return nil
		})
	}
	_ = g.Wait()
	for i, err := range errs {
		if err != nil {
			out.Copies[i].State, out.Copies[i].Reason = record.NotExtended, err.Error()
		}
	}
	if slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}

// extend extends the volume of one copy until a time. It returns an error if nothing was requested of its provider.
func extend(ctx context.Context, jobs Jobs, c *record.ExtendedCopy, until time.Time) error {
	if c.Job == "" { // its submission is for the new time
		c.State = record.NoLease
		return nil
	}
	of, err := jobs.Job(c.Job)
	if err != nil {
		return err
	}
	end := of.Until()
	if end.IsZero() {
		end = time.Now().Add(of.Spec.Timeouts.Run)
	}
	by, most := until.Sub(end).Round(time.Second), job.MaxRun-of.Spec.Timeouts.Run
	c.Until = end
	switch {
	case by < job.MinTime:
		c.State = record.LongEnough
		return nil
	case most < job.MinTime:
		c.State, c.Reason = record.NotExtended, longest
		return nil
	}
	x, err := jobs.Extend(ctx, c.Job, min(by, most), noBudget)
	if err != nil {
		return err
	}
	for _, rank := range x.Ranks {
		c.State, c.Extra, c.Reason = rank.State, rank.Extra, rank.Reason
		if !rank.Provider.IsZero() {
			c.Provider = rank.Provider
		}
	}
	if !x.Until.IsZero() && c.State == record.Extended {
		c.Until = x.Until
	}
	if by > most && c.Reason == "" {
		c.Reason = longest
	}
	return nil
}

// longest is the reason of the end of a copy before the time of all.
var longest = fmt.Sprintf("a volume lasts at most %v", job.MaxRun)

// noBudget lets the budget of a volume, which is its whole cost, grow with its time.
const noBudget = market.Amount(0)
