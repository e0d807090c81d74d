package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
)

// submitOptions are the flags that run and submit share.
type submitOptions struct {
	detach, dryRun bool
	save           string
	wait           string // a key of untils
	guards         bool   // the user said how many guardians there are to be
}

func (o *submitOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVarP(&o.detach, "detach", "d", false, "do not wait for the job: hand it to guardians, which keep it going without this computer, and print its id")
	f.BoolVar(&o.dryRun, "dry-run", false, "ask the market what the job would cost, as starling quote does, and order nothing")
	o.waitFlag(c)
	f.StringVar(&o.save, "save", "", "download the outputs into this directory when the job succeeded")
}

func (o *submitOptions) waitFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.wait, "wait", "result", "return when the result is there, or with paid when all that it owes is paid and the rest of its money is back, too")
}

func (o *submitOptions) check() error {
	if untils[o.wait] == nil {
		return Usagef("--wait: %.40q, want result or paid", o.wait)
	}
	if o.wait != "result" && o.detach {
		return WithHint(Usagef("--wait %s needs the job's end, --detach does not wait for it", o.wait), "starling wait ID, later")
	}
	if o.save != "" && o.detach {
		return WithHint(Usagef("--save needs the job's end, --detach does not wait for it"), "starling get ID DIR, later")
	}
	return nil
}

const followLong = `
With -d a job is given guardians where the network pays from escrows: three peers that keep it going when this computer and the
peer it was given to are gone, pay for what is worked by a majority of them, and take standbys for what is lost. They keep the
result until you are back.

Every source file is uploaded to the peer first. Then the job's log is shown until it ends: its standard output here on
standard output, the rest on standard error, each line with its rank where there are several. An interrupt detaches; the
job goes on. The exit code is 0 when the job succeeded, else it says why not (starling --help has the list).

It returns when the result is there. The peer then pays what the job owes and takes the rest of its money back, which takes as long as
the chain takes to make that final; starling status shows it, and --wait paid and starling wait wait for it.`

func newRun(a *App) *cobra.Command {
	var o submitOptions
	c := &cobra.Command{
		Use:   "run [flags] MODULE|IMAGE [-- ARGS]",
		Short: "Run a program on other peers",
		Long: `Orders leases, runs MODULE, a WASI program, or IMAGE, a container image by digest, on all of them with ARGS, meters and
pays.` + followLong,
		Example: `  starling run --max-price 0.05 hello.wasm
  starling run -n 4 --max-price 0.05 -i shards/{rank}.bin:/data/shard.bin --out /out --save results train.wasm -- --steps 200
  starling run --max-price 0.05 --network internet --secret-env HF_TOKEN=env:HF_TOKEN ghcr.io/acme/train@sha256:… -- --steps 200
  starling run --max-price 2.50 --gpus "h100:8,vram>=80" ghcr.io/acme/train@sha256:…
  starling run -n 4 --max-price 0.05 --dry-run train.wasm
  starling run -d --budget 0.25 --max-price 0.05 train.wasm
  starling run -d --guardians 5 --standbys 3 --max-price 0.05 train.wasm`,
		GroupID: groupJobs,
		Args: func(c *cobra.Command, args []string) error {
			switch at := c.ArgsLenAtDash(); {
			case len(args) == 0 || at == 0:
				return WithHint(Usagef("run needs a module"), "%s", c.UseLine())
			case at < 0 && len(args) > 1 || at > 1:
				return WithHint(Usagef("run does not take %q", args[1]), "arguments of the program come after --: starling run %s -- %s", args[0], args[1])
			}
			return nil
		},
	}
	flags := JobFlags(c)
	o.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		token, err := a.Token()
		if err != nil {
			return err
		}
		if err := a.wholeKeys(c.Context(), flags.Exclude); err != nil {
			return err
		}
		flags.Module, flags.Args = args[0], args[1:]
		spec, err := flags.Job(token)
		if err != nil {
			return err
		}
		o.guards = c.Flags().Changed("guardians")
		return a.submit(c.Context(), spec, o)
	}
	return c
}

func newSubmit(a *App) *cobra.Command {
	var o submitOptions
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Run a job from a job file",
		Long: `Reads a job file (FILE may be - for standard input), orders leases, runs it, meters and pays. Relative paths in the file
are taken from where it lies.` + followLong,
		Example: `  starling submit job.yaml
  starling submit --dry-run job.yaml
  starling submit --save results job.yaml
  id=$(starling submit -d job.yaml)`,
		GroupID: groupJobs,
		Args:    exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := a.LoadJob(args[0])
			if err != nil {
				return err
			}
			o.guards = spec.Guardians > 0
			return a.submit(c.Context(), spec, o)
		},
	}
	o.flags(c)
	return c
}

// submit hands a job in and follows it as far as the options say.
func (a *App) submit(ctx context.Context, spec job.Job, o submitOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.dryRun {
		if err := checkFiles(spec); err != nil {
			return err
		}
		return a.quote(ctx, spec)
	}
	c, g, j, err := a.handIn(ctx, spec, o)
	if err != nil {
		return err
	}
	return a.submitted(ctx, c, g, j, o)
}

// handIn uploads a job's files and submits it, detached as the options say.
func (a *App) handIn(ctx context.Context, spec job.Job, o submitOptions) (c *api.Client, g market.Genesis, j buyer.Job, err error) {
	if err = checkFiles(spec); err != nil {
		return c, g, j, err
	}
	if g, err = a.genesis(); err != nil {
		return c, g, j, err
	}
	if c, err = a.Client(); err != nil {
		return c, g, j, err
	}
	values, err := a.values(ctx, spec)
	if err != nil {
		return c, g, j, err
	}
	p := a.progress()
	blobs, err := upload(ctx, c, spec, p)
	p.clear()
	if err != nil {
		return c, g, j, err
	}
	if spec, err = spec.WithBlobs(blobs); err != nil {
		return c, g, j, err
	}
	wanted := o.detach && !o.guards && !g.Free && spec.Cluster == nil
	if wanted && (len(spec.Secrets) > 0 || spec.Registry != nil) {
		wanted = false
		a.say("warning: a job with secrets has no guardians: it goes on only while the peer that it was given to runs")
	}
	if wanted {
		spec = spec.Guarded(guardiansOfDetached)
	}
	submit := func() (buyer.Job, error) {
		var key [16]byte
		if _, err := rand.Read(key[:]); err != nil {
			return buyer.Job{}, err
		}
		j, err := c.Submit(ctx, spec, values, hex.EncodeToString(key[:]))
		if err != nil {
			return j, fmt.Errorf("submitting job %s: %w", spec.Name, err)
		}
		if o.detach {
			return a.untilHeld(ctx, c, j)
		}
		return j, nil
	}
	j, err = submit()
	if err == nil && wanted && (j.Outcome == buyer.Failed || j.State == buyer.Failed) && !j.Detached.Engaged {
		a.say("warning: %s", j.Reason)
		a.say("warning: the job is submitted without guardians: it goes on only while the peer that it was given to runs")
		spec = spec.Guarded(0)
		j, err = submit()
	}
	return c, g, j, err
}

// guardiansOfDetached is how many guardians a detached job has that does not say.
const guardiansOfDetached = 3

// untilHeld waits until a job with guardians goes on without this computer, or has ended before.
func (a *App) untilHeld(ctx context.Context, c *api.Client, j buyer.Job) (buyer.Job, error) {
	if j.Detached == nil {
		return j, nil
	}
	p := a.progress()
	defer p.clear()
	for {
		var err error
		if j, err = api.GetJob.Call(ctx, c, api.ByID{ID: j.ID}); err != nil {
			return j, fmt.Errorf("handing job %s to its guardians: %w", j.ID, err)
		}
		switch {
		case j.Outcome != "" || j.State.Ended():
			return j, nil
		case j.Detached.Held:
			p.clear()
			a.say("%d guardians hold the job: it goes on without this computer", len(j.Detached.Guardians))
			return j, nil
		case !j.Detached.Engaged:
			p.status("job %s: finding %d guardians", j.ID, j.Spec.Guardians)
		case j.State != buyer.Running:
			p.status("job %s: taking %d leases", j.ID, j.Spec.Count)
		default:
			p.status("job %s: handing it to its guardians", j.ID)
		}
		select {
		case <-ctx.Done():
			return j, &Error{Code: ExitFailed, Err: fmt.Errorf("job %s is not held by its guardians yet; it needs the peer that it was given to", j.ID), Hint: "starling why " + j.ID}
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// submitted follows a job that was handed in as far as the options say.
func (a *App) submitted(ctx context.Context, c *api.Client, g market.Genesis, j buyer.Job, o submitOptions) error {
	if j.Warning != "" {
		a.say("warning: %s", j.Warning)
	}
	switch {
	case o.detach && a.output == outputTable:
		fmt.Fprintln(a.Out, j.ID)
		a.say("follow it with `starling logs -f %s`", j.ID)
		return nil
	case o.detach:
		return a.Show(j, nil)
	}
	return a.followToEnd(ctx, c, g, j, untils[o.wait], o.save)
}

// followToEnd shows a job's log until it is over, then its outcome.
func (a *App) followToEnd(ctx context.Context, c *api.Client, g market.Genesis, j buyer.Job, over until, save string) error {
	j, err := a.follow(ctx, c, g, j, over)
	if errors.Is(err, errDetached) {
		return nil
	}
	if err != nil {
		return err
	}
	a.say("%s", summary(g, j))
	if a.output != outputTable {
		if err := a.Show(j, nil); err != nil {
			return err
		}
	}
	if err := JobError(j); err != nil {
		if j.Code == buyer.CodeNoMatch {
			a.warnAlone(ctx, c)
		}
		return WithHint(err, "starling why %s", j.ID)
	}
	if save == "" {
		return nil
	}
	saved, err := download(ctx, c, j, allRanks, save)
	for _, s := range saved {
		a.say("saved %s", s.Dir)
	}
	return err
}

// known returns the API of the peer, and its network's genesis.
func (a *App) known() (*api.Client, market.Genesis, error) {
	c, err := a.Client()
	if err != nil {
		return nil, market.Genesis{}, err
	}
	g, err := a.genesis()
	return c, g, err
}

// genesis are the facts of this home directory's network.
func (a *App) genesis() (market.Genesis, error) {
	if err := a.introduced(); err != nil {
		return market.Genesis{}, err
	}
	home, err := a.Home()
	if err != nil {
		return market.Genesis{}, err
	}
	g, err := node.LoadGenesis(home)
	if err != nil {
		code := ExitUsage
		if errors.Is(err, fs.ErrNotExist) {
			code = ExitUnreachable // without it no peer runs here
		}
		return g, &Error{Code: code, Err: err, Hint: "set the peer up with `starling init --genesis FILE`, or say which one with --home"}
	}
	return g, nil
}
