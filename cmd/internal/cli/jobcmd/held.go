package jobcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// guardiansOfDetached is the number of guardians of a detached job that sets none.
const guardiansOfDetached = 3

// untilHeld waits until the job runs without this computer, or has ended.
func untilHeld(a *cli.App, ctx context.Context, c *api.Client, j record.Job) (record.Job, error) {
	if j.Detached == nil {
		return j, nil
	}
	p := a.Progress()
	defer p.Clear()
	for {
		var err error
		if j, err = api.GetJob.Call(ctx, c, api.ByID{ID: j.ID}); err != nil {
			return j, fmt.Errorf("handing job %s to its guardians: %w", j.ID, err)
		}
		switch {
		case j.Outcome != "" || j.State.Ended():
			return j, nil
		case j.Detached.Held:
			p.Clear()
			a.Say("%d guardians hold the job: it runs without this computer", len(j.Detached.Guardians))
			if found := len(j.Detached.Standbys); found < int(j.Spec.Standbys) {
				a.Say("only %d of %d standbys were found; each can replace one lost rank", found, j.Spec.Standbys)
			}
			return j, nil
		case !j.Detached.Engaged:
			p.Status("job %s: finding %d guardians", j.ID, j.Spec.Guardians)
		case j.State != record.Running:
			p.Status("job %s: taking %d leases", j.ID, j.Spec.Count)
		default:
			p.Status("job %s: handing it to its guardians", j.ID)
		}
		select {
		case <-ctx.Done():
			return j, &cli.Error{Code: cli.ExitFailed,
				Err: fmt.Errorf("job %s is not held by its guardians yet; it needs the peer that it was given to",
					j.ID), Hint: "starling why " + j.ID}
		case <-time.After(100 * time.Millisecond):
		}
	}
}
