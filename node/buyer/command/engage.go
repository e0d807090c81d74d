package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/buyer/voice"
	"github.com/starling-network/starling/node/job"
)

// Engage finds guardians for a new job and hands it to them.
func (d *Command) Engage() {
	ctx, cancel := context.WithCancel(d.Context())
	d.mu.Lock()
	d.engaging = cancel
	d.mu.Unlock()
	d.cfg.Tasks.Go(func() {
		defer cancel()
		err := d.engage(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.Post(jobs.EngagementFailed{Reason: err.Error()})
		default:
			d.Report(run.Event{Ev: jobs.GuardiansEngaged{Epoch: 1}, Amend: run.Amend(func(j *record.Job) {
				j.Detached = j.Detached.Clone()
				j.Detached.Engaged, j.Detached.Epoch = true, 1
			})})
		}
	})
}

// engage returns once guardians have taken the job.
func (d *Command) engage(ctx context.Context) error {
	until := time.Now().Add(engageTime)
	for {
		err := d.engageOnce(ctx)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if time.Now().After(until) {
			return fmt.Errorf("no %d peers guard the job: %w (guard.accept of their configuration lets peers do so; "+
				"--guardians 0 does without)", d.Snapshot().Spec.Guardians, err)
		}
		if err := run.Pause(ctx, retry); err != nil {
			return err
		}
	}
}

func (d *Command) engageOnce(ctx context.Context) error {
	j := d.Snapshot()
	// The files may be large. If one guardian never receives them, there is time for another.
	ctx, cancel := context.WithTimeout(ctx, j.Spec.Timeouts.Queue/2)
	defer cancel()
	if len(j.Detached.Guardians) == 0 {
		members, err := d.cfg.Search.Guardians(ctx, j, d.unwilling)
		if err != nil {
			return err
		}
		if err := d.Save(ctx, func(j *record.Job) {
			j.Detached = j.Detached.Clone()
			j.Detached.Guardians = voice.GuardiansOf(members)
		}); err != nil {
			return err
		}
		j = d.Snapshot()
		if err := d.Voice().Engage(j.Detached, nil); err != nil {
			return err
		}
	}
	e, err := d.engagement(j)
	if err != nil {
		return err
	}
	if err = d.panel().Engage(ctx, e); err != nil {
		var no *guardian.NotEngaged
		if errors.As(err, &no) {
			d.unwilling = append(d.unwilling, no.By...)
		}
		return errors.Join(err, d.anew(context.WithoutCancel(ctx), j, err))
	}
	var names []string
	for _, m := range j.Detached.Guardians {
		names = append(names, m.Key.Short())
	}
	detail := fmt.Sprintf("by %v, threshold %d", names, d.Voice().Keys().Threshold)
	d.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Guarded, Detail: detail})
	return nil
}

// engagement returns the job as handed to its guardians. From then on the guardians may read its files.
func (d *Command) engagement(j record.Job) (e guardian.Engagement, err error) {
	until := j.Created.Add(j.Spec.Timeouts.Queue + j.Spec.Timeouts.Run + voice.KeptFor)
	e = guardian.Engagement{Key: d.Voice().Secret(), Until: until}
	if e.Files, err = filesOf(j.Spec.Blobs); err != nil {
		return e, err
	}
	if e.File, err = json.Marshal(File{ID: j.ID, Spec: Public(j.Spec), Created: j.Created}); err != nil {
		return e, err
	}
	if err := voice.Share(d.cfg.Host, d.cfg.Files, j.Detached, e.Files); err != nil {
		return e, err
	}
	for _, a := range d.cfg.Host.Addrs() {
		e.Addrs = append(e.Addrs, a.String())
	}
	return e, nil
}

// complete returns true once the guardians have the job's files, which they fetch when their wages are on chain. It
// returns false if that fails.
func (d *Command) complete(ctx context.Context) bool {
	e, err := d.engagement(d.Snapshot())
	e.Complete = true
	if err == nil {
		err = d.panel().Engage(ctx, e)
	}
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.Debug("guardians do not have a job's files yet", "job", d.ID, "err", err)
	}
	return err == nil
}

// anew starts a search for other guardians. Nothing was signed for the job yet. It gets another key, because the
// guardians that accepted it hold the old key.
func (d *Command) anew(ctx context.Context, j record.Job, why error) error {
	d.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Guarded,
		Detail: "searching for other guardians: " + record.Clean(why.Error())})
	call, done := context.WithTimeout(ctx, dismissTime)
	_ = d.panel().Dismiss(call)
	done()
	anew, err := d.cfg.Voices.Detached(j.ID, j.Spec)
	if err != nil {
		return err
	}
	j.Detached = anew
	guard, err := d.cfg.Voices.Of(j)
	if err != nil {
		return err
	}
	if err := d.Save(ctx, func(j *record.Job) { j.Detached = anew }); err != nil {
		return err
	}
	d.mu.Lock()
	old := d.voice
	d.voice = guard
	d.mu.Unlock()
	d.SetVoice(guard)
	old.Guardians().Close()
	return nil
}

const (
	// dismissTime bounds the dismissal of guardians that did not all take the job.
	dismissTime = 3 * time.Second
	// retry is the interval between searches for guardians.
	retry = time.Second
	// engageTime bounds the search for enough guardians. A job without guardians then fails at once, like a job without
	// an offer.
	engageTime = 8 * time.Second
)

// File is the part of a detached job that never changes, as its guardians keep it.
type File struct {
	ID      string    `json:"id"`
	Spec    job.Job   `json:"spec"`
	Created time.Time `json:"created"`
}

// Public returns a job without the parts that only its owner needs.
func Public(spec job.Job) job.Job {
	spec.Webhooks = nil
	return spec
}

func filesOf(blobs map[string]job.Blob) ([]guardian.File, error) {
	var out []guardian.File
	seen := map[string]bool{}
	for source, bl := range blobs {
		if seen[bl.CID] || !bl.Here() {
			continue
		}
		seen[bl.CID] = true
		c, err := cid.Parse(bl.CID)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		out = append(out, guardian.File{CID: c, Size: bl.Size})
	}
	slices.SortFunc(out, func(a, b guardian.File) int { return bytes.Compare(a.CID.Bytes(), b.CID.Bytes()) })
	return out, nil
}
