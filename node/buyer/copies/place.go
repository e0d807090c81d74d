package copies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/p2p/blob"
)

const (
	// maxAttempts bounds the copies of a job that are bought, lost ones too.
	maxAttempts = 64
	// firstPause is the delay after a failed attempt; it doubles with each failed one after it, up to lastPause.
	firstPause, lastPause = 5 * time.Second, time.Hour
	// leastTime is the least rest of the time for which a copy is still placed.
	leastTime = time.Minute
	// keptPath is the path of the pack in a volume. No program sees it.
	keptPath = "/copy/pack"
)

// step brings the copies of one job closer to their number. The caller has the job's turn.
func (r *Room) step(ctx context.Context, id string) error {
	k, at, err := r.read(ctx, id)
	if err != nil || at != record.KeptOpen {
		return err
	}
	j, err := r.cfg.Jobs.Job(id)
	switch {
	case errors.Is(err, record.ErrNoJob):
		return r.discard(ctx, id, k)
	case err != nil:
		return err
	}
	if k.Pack == nil {
		return r.begin(ctx, j, k)
	}
	if err := r.stop(ctx, id, &k); err != nil {
		return err
	}
	if err := r.digest(ctx, id, &k); err != nil {
		return err
	}
	before := k.Copies
	seen, changed := r.look(&k)
	short := j.Spec.Copies != nil && seen.kept-seen.leaving < int(j.Spec.Copies.Count)
	rest := time.Until(k.Until)
	switch {
	case rest <= 0 && seen.kept+seen.placing == 0:
		return r.end(ctx, id, k, "the paid time has ended")
	case changed:
		if err := r.write(ctx, id, k); err != nil {
			return err
		}
		for i, c := range k.Copies {
			if c.Lost != "" && c.Lost != pastTime && before[i].Lost == "" && !c.Provider.IsZero() {
				r.cfg.Log.Warn("a copy of a job's outputs is lost", "job", id, "volume", c.Job, "provider", c.Provider,
					"reason", c.Lost)
			}
		}
	}
	r.need(id, k, short)
	if !short || seen.placing > 0 || rest < leastTime || len(k.Copies) >= maxAttempts || time.Now().Before(next(k)) {
		return r.resubmit(ctx, j, k)
	}
	if ok, err := r.obtain(ctx, id, k); !ok || err != nil {
		return err
	}
	k.Copies = append(k.Copies, record.Copy{At: time.Now()})
	if err := r.write(ctx, id, k); err != nil { // before the submission
		return err
	}
	return r.submit(ctx, j, k, len(k.Copies)-1)
}

// counts are the copies by their state.
type counts struct {
	kept    int
	leaving int // of the kept ones: their volumes end soon, and before the time of the copies
	placing int
}

// look updates the copies by the state of their volumes, and reports whether one has changed.
func (r *Room) look(k *record.Kept) (n counts, changed bool) {
	*k = k.Clone()
	for i := range k.Copies {
		c := &k.Copies[i]
		if c.Lost != "" {
			continue
		}
		if c.Job == "" {
			n.placing++
			continue
		}
		of, err := r.cfg.Jobs.Job(c.Job)
		if errors.Is(err, record.ErrNoJob) {
			c.Lost, changed = "its volume was removed", true
			continue
		} else if err != nil {
			n.placing++ // nothing is known of it: no other one is bought for it
			continue
		}
		switch s, why := state(of); s {
		case record.CopyKept:
			n.kept++
			if leaves(of, *k, time.Now()) {
				n.leaving++
			}
			if p := of.Ranks[0].Provider; c.Provider != p {
				c.Provider, c.Spot, changed = p, record.Spot{}, true
			}
		case record.CopyPlacing:
			n.placing++
		case record.CopyLost:
			c.Lost, changed = why, true
		}
	}
	return n, changed
}

// next returns the time before which no other copy is ordered: after failed attempts in a row, ever later.
func next(k record.Kept) time.Time {
	pause := time.Duration(0)
	for _, c := range slices.Backward(k.Copies) {
		if c.Lost == "" || !c.Provider.IsZero() {
			break
		}
		pause = min(max(2*pause, firstPause), lastPause)
	}
	if pause == 0 {
		return time.Time{}
	}
	return k.Copies[len(k.Copies)-1].At.Add(pause)
}

// begin packs the outputs of a job once it has succeeded.
func (r *Room) begin(ctx context.Context, j record.Job, k record.Kept) error {
	end, over := j.Result()
	switch {
	case !over:
		return nil
	case end != record.Succeeded:
		return r.end(ctx, j.ID, k, fmt.Sprintf("the job has %s", end))
	case len(outputs(j)) == 0 || j.Spec.Copies == nil:
		return r.end(ctx, j.ID, k, "the job has no outputs")
	}
	pack, key, err := archiver{r}.pack(ctx, j)
	if errors.Is(err, blob.ErrNotFound) {
		return nil // this peer has yet to fetch an output
	}
	if err != nil {
		return err
	}
	if k.Box, err = r.cfg.Boxes.Seal(r.cfg.Self, useKey, j.ID, []byte(key)); err != nil {
		return fmt.Errorf("sealing the key: %w", err)
	}
	k.Pack, k.Until = &pack, time.Now().Add(time.Duration(j.Spec.Copies.For))
	r.need(j.ID, k, true)
	return r.write(ctx, j.ID, k)
}

// stop stops the volumes of the copies that checks found lost, so that they are paid for no longer.
func (r *Room) stop(ctx context.Context, id string, k *record.Kept) error {
	for i := range k.Copies {
		if !k.Copies[i].Stop {
			continue
		}
		if err := r.cfg.Jobs.Stop(ctx, k.Copies[i].Job); err != nil && !errors.Is(err, record.ErrNoJob) {
			return fmt.Errorf("stopping volume %s: %w", k.Copies[i].Job, err)
		}
		*k = k.Clone()
		k.Copies[i].Stop = false
		if err := r.write(ctx, id, *k); err != nil {
			return err
		}
	}
	return nil
}

// obtain reports whether the pack is here. If it is not, the keepers are asked for it.
func (r *Room) obtain(ctx context.Context, id string, k record.Kept) (bool, error) {
	if ok, err := r.here(k.Pack.CID); ok || err != nil {
		return ok, err
	}
	changed, err := r.fetch(ctx, k)
	if changed {
		if err := r.write(ctx, id, k); err != nil {
			return false, err
		}
	}
	if errors.Is(err, record.ErrNoKeeper) {
		r.cfg.Log.Debug("a lost copy cannot be replaced now", "err", err)
		return false, nil
	}
	return err == nil, err
}

// resubmit submits the attempts of which a crash left open whether they were submitted.
func (r *Room) resubmit(ctx context.Context, j record.Job, k record.Kept) error {
	for i, c := range k.Copies {
		if c.Job == "" && c.Lost == "" {
			return r.submit(ctx, j, k, i)
		}
	}
	return nil
}

// submit orders the volume of an attempt, once however often it is called.
func (r *Room) submit(ctx context.Context, j record.Job, k record.Kept, i int) error {
	k = k.Clone()
	spec, err := r.spec(j, k, i)
	var of record.Job
	if err == nil {
		once := fmt.Sprintf("copy/%s/%d", j.ID, i)
		of, err = r.cfg.Jobs.Submit(ctx, record.Submission{Spec: spec, Key: j.Key, Once: once})
	}
	switch {
	case err == nil:
		k.Copies[i].Job = of.ID
	case refused(err):
		k.Copies[i].Lost = err.Error()
	default:
		return err
	}
	return r.write(ctx, j.ID, k)
}

// refused reports whether a job was not taken, and was not begun.
func refused(err error) bool {
	return errors.Is(err, record.ErrRefused) || errors.Is(err, record.ErrFunds) || errors.Is(err, job.ErrInvalid)
}

// spec returns the volume of an attempt. It excludes providers that have a copy. It also excludes the job's own
// providers, and providers that lost a copy, unless the last attempt found no provider.
func (r *Room) spec(j record.Job, k record.Kept, i int) (job.Job, error) {
	c := j.Spec.Copies
	if c == nil {
		return job.Job{}, fmt.Errorf("%w: the job has no copies", record.ErrRefused)
	}
	const unit = int64(market.DiskUnitMiB) << 20
	const beside = 1 << 20 // the provider makes a directory there, too
	source := job.CIDScheme + k.Pack.CID
	run := min(time.Until(k.Until).Round(time.Second), job.MaxRun)
	spec := job.Job{
		Name: fmt.Sprintf("copy-%s-%d", j.ID, i), Inputs: []job.Input{{Source: source, Path: keptPath}},
		Blobs: map[string]job.Blob{source: {CID: k.Pack.CID, Size: k.Pack.Size}},
		Resources: job.Resources{
			Class: market.Disk, Units: uint32((k.Pack.Size + beside + unit - 1) / unit),
			PerUnit: market.Resources{DiskMiB: market.DiskUnitMiB},
		},
		Placement: job.Placement{Exclude: r.without(j, k, i)}, Guardians: j.Spec.Guardians,
		Timeouts: job.Timeouts{Run: max(run, job.MinTime)},
		Payment:  job.Payment{MaxPrice: c.MaxPrice, Decimals: j.Spec.Payment.Decimals, Free: j.Spec.Payment.Free},
	}
	return spec.Complete(func(field string) bool { return field == "metadata.name" || field == "spec.timeouts.run" })
}

// without returns the providers that attempt i does not ask.
func (r *Room) without(j record.Job, k record.Kept, i int) []sign.Key {
	out := []sign.Key{r.cfg.Self}
	add := func(p sign.Key) {
		if !p.IsZero() && !slices.Contains(out, p) && len(out) < market.MaxExclude {
			out = append(out, p)
		}
	}
	for _, c := range k.Copies[:i] {
		if c.Lost == "" {
			add(c.Provider)
		}
	}
	if i > 0 && k.Copies[i-1].Lost != "" && k.Copies[i-1].Provider.IsZero() {
		return out
	}
	for _, c := range k.Copies[:i] {
		add(c.Provider)
	}
	for _, rank := range j.Ranks {
		add(rank.Provider)
	}
	return out
}

// need keeps the chunk list, and the pack until all of its copies are made.
func (r *Room) need(id string, k record.Kept, short bool) {
	var all []cid.Cid
	if c, err := blob.Parse(k.Chunks); err == nil {
		all = append(all, c)
	}
	if c, err := blob.Parse(k.Pack.CID); err == nil && short {
		all = append(all, c)
	}
	r.needs.Store(id, all)
}

// forget releases the blobs of a job.
func (r *Room) forget(id string, k record.Kept) {
	r.needs.Delete(id)
	if c, err := blob.Parse(k.Chunks); err == nil {
		r.cfg.Files.Drop(c)
	}
}

// write journals the entry of copies that are looked after.
func (r *Room) write(ctx context.Context, id string, k record.Kept) error {
	return record.Keepings.Write(ctx, r.cfg.Store, record.KeptOpen+id, k)
}

// end journals that the copies of a job are no longer looked after.
func (r *Room) end(ctx context.Context, id string, k record.Kept, why string) error {
	k.Over = why
	var b journal.Batch
	record.Keepings.Delete(&b, record.KeptOpen+id)
	record.Keepings.Put(&b, record.KeptOver+id, k)
	if err := b.Commit(ctx, r.cfg.Store); err != nil {
		return err
	}
	r.forget(id, k)
	return nil
}

// discard stops the volumes of a job that was removed, whose key nobody needs any more.
func (r *Room) discard(ctx context.Context, id string, k record.Kept) error {
	for _, c := range k.Copies {
		if c.Job == "" || c.Lost != "" && !c.Stop {
			continue
		}
		if err := r.cfg.Jobs.Stop(ctx, c.Job); err != nil && !errors.Is(err, record.ErrNoJob) {
			return err
		}
	}
	r.forget(id, k)
	return record.Keepings.Remove(ctx, r.cfg.Store, record.KeptOpen+id)
}
