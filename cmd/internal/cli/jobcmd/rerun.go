package jobcmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/sources"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

func newRerun(a *cli.App) *cobra.Command {
	var o SubmitOptions
	var count uint32
	var price, budget string
	var queue, run time.Duration
	c := &cobra.Command{
		Use:   "rerun ID",
		Short: "Run a job once more",
		Long: `Submits a job of this peer again, under a new id, with the stored program, inputs and secrets, and with
the changes in the flags. A budget that equalled the highest possible cost is recomputed for the changed job.

Inputs that providers read by signed URLs, as those of s3://, get new ones: this needs the keys of starling run, and
objects with the same content. Without keys the job keeps URLs that have not ended.`,
		Example: `  starling job rerun jk3v5q2a
  starling job rerun jk3v5q2a --count 8 --max-price 0.08
  starling job rerun -d jk3v5q2a --timeout 4h`,
		Args: cli.ExactArgs(1),
	}
	f := c.Flags()
	f.Uint32VarP(&count, "count", "n", 0, "new number of ranks")
	f.StringVar(&price, "max-price", "", "new highest price of a unit-hour, in tokens")
	f.StringVar(&budget, "budget", "", "new budget, in tokens")
	f.DurationVar(&queue, "queue-timeout", 0, "new time until all ranks have a lease")
	f.DurationVar(&run, "timeout", 0, "new run time after that")
	f.BoolVarP(&o.Detach, "detach", "d", false, "do not wait for the job; print its id")
	o.WaitFlag(c)
	o.saveFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := o.Check(); err != nil {
			return err
		}
		if err := ready(a, c.Context(), o.save); err != nil {
			return err
		}
		g, err := a.Genesis()
		if err != nil {
			return err
		}
		var ch job.Changes
		if f.Changed("count") {
			ch.Count = &count
		}
		if f.Changed("max-price") {
			n, err := cli.Amount("--max-price", price, g)
			if err != nil {
				return err
			}
			p := market.Price(n)
			ch.MaxPrice = &p
		}
		if f.Changed("budget") {
			n, err := cli.Amount("--budget", budget, g)
			if err != nil {
				return err
			}
			ch.Budget = &n
		}
		if s := job.Span(queue); f.Changed("queue-timeout") {
			ch.Queue = &s
		}
		if s := job.Span(run); f.Changed("timeout") {
			ch.Run = &s
		}
		client, err := a.Client()
		if err != nil {
			return err
		}
		j, err := again(a, c.Context(), client, args[0], ch)
		if err != nil {
			return fmt.Errorf("running job %s again: %w", args[0], err)
		}
		return Submitted(a, c.Context(), client, g, j, o)
	}
	return c
}

// again submits a job once more, with changes and with new URLs for its inputs with signed ones.
func again(a *cli.App, ctx context.Context, client *api.Client, id string, ch job.Changes) (j record.Job, err error) {
	if j, err = api.GetJob.Call(ctx, client, api.ByID{ID: id}); err != nil {
		return j, err
	}
	if spec, err := j.Spec.With(ch); err == nil { // the peer refuses others
		p := a.Progress()
		ch.URLs, err = sources.Sign(ctx, a, spec, p)
		p.Clear()
		if err != nil {
			return j, err
		}
	}
	var key [16]byte
	if _, err := rand.Read(key[:]); err != nil {
		return j, err
	}
	return api.RerunJob.Call(ctx, client, api.Rerun{ID: j.ID, Body: ch, Once: hex.EncodeToString(key[:])})
}
