package jobcmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/imagecmd"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/sources"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/files/s3"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
)

// SubmitOptions are the flags that run and submit share.
type SubmitOptions struct {
	Detach, DryRun bool
	save           string
	wait           string // a key of untils
	attend         Attend // of a job that serves its user; nil: its log is followed
	guards         bool   // the user set the number of guardians
}

func (o *SubmitOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVarP(&o.Detach, "detach", "d", false,
		"give the job to guardians and print its id; do not wait")
	f.BoolVar(&o.DryRun, "dry-run", false,
		"estimate the cost as starling quote does; order nothing")
	o.WaitFlag(c)
	o.saveFlag(c)
}

// saveFlag adds --save.
func (o *SubmitOptions) saveFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.save, "save", "",
		"download the outputs on success to this directory, or s3://BUCKET/FOLDER")
}

// WaitFlag adds --wait.
func (o *SubmitOptions) WaitFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.wait, "wait", "result",
		"return at the result, or with paid after payment and refund")
}

// Check refuses flags that contradict each other.
func (o *SubmitOptions) Check() error {
	if untils[o.wait] == nil {
		return cli.Usagef("--wait: %.40q, want result or paid", o.wait)
	}
	if o.wait != "result" && o.Detach {
		return cli.WithHint(cli.Usagef("--wait %s needs the job's end, --detach does not wait for it", o.wait),
			"starling wait ID, later")
	}
	if o.save != "" && o.Detach {
		return cli.WithHint(cli.Usagef("--save needs the job's end, --detach does not wait for it"),
			"starling get ID DIR, later")
	}
	if inBucket(o.save) {
		if _, err := s3.ParseFolder(o.save); err != nil {
			return cli.Usagef("--save: %w", err)
		}
	}
	return nil
}

const followLong = `
With -d a job gets guardians if the network pays from escrows and it has no --idle: three peers that run it without
this computer and the peer it was submitted to. A majority of them pays for finished work and replaces lost ranks with
standbys. They keep the result until you are back. If fewer than the default of three are found, the job runs without
guardians.

--verify replicate has other providers repeat some results, drawn from the chain's blocks. It runs the program
deterministically, and needs a module, --out and a network with a chain. --probes measures whether the units are shared,
in at most a thousandth of the time, and warns or moves the rank to another provider.

Every source file is uploaded to the peer first, and providers get it from there. A source may also be an https:// URL:
providers read it from the internet, once for all ranks, and verify its SHA-256 before a program reads it. Give the
SHA-256 as https://HOST/PATH#sha256=HEX. Without it this command reads the URL once, and shows the SHA-256. A file of
the Hugging Face hub is hf://OWNER/MODEL[@REVISION]/PATH, or hf://datasets/OWNER/NAME/PATH; the hub has its SHA-256.
HF_TOKEN opens gated files: providers get signed URLs of them, valid for about an hour, and never the token.

ipfs://CID/PATH is a file or directory of IPFS (CIDs with SHA-256). This command reads its blocks from the gateway
IPFS_GATEWAY (default https://ipfs.io), checks each against its CID, and shows the SHA-256 of a file. Providers read a
file from the gateway's URL. A directory, and a file of a gateway that is not on the internet, such as a node of your
own, goes through this computer.

s3://BUCKET/KEY is an object of S3 or a compatible server, s3://BUCKET/FOLDER/ all objects of a folder, and
s3://BUCKET/FOLDER/*.bin those that match *, ? and [a-z]; write \* for a star. Set AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or AWS_PROFILE for a profile of ~/.aws/credentials; AWS_REGION; and for
other servers AWS_ENDPOINT_URL, with AWS_CA_BUNDLE if their certificate needs it. The keys stay on this computer.
Providers get a signed URL of each object, valid for the job's timeouts and an hour, at most 7 days, or until the
session ends; starling job rerun signs new ones. An object's SHA-256 comes from its checksum in S3,
or this command reads it once. Folders with more objects than the 250 inputs of a job, or with {rank}, and servers that
are not on the internet, are read through this computer, at most 64 GiB for each source. --save s3://BUCKET/FOLDER
writes the outputs there (see starling get --help).

The command then shows the job's log until the job ends: its standard output on standard output, the rest on standard
error, each line with its rank if there are several. An interrupt detaches; the job runs on. The exit code is 0 if the
job succeeded, else the code of the failure (starling --help has the list).

The command returns when the result is there. The peer then pays the cost of the job and refunds the rest of its
deposit, until the chain has finalized both. starling status shows this; --wait paid and starling wait wait for it.`

const runLong = `Orders leases, runs MODULE (a WASI program) or IMAGE (a container image) on all of them with ARGS,
meters and pays. If IMAGE has a tag and no digest, as debian:12, the tag is resolved once, when the job is
submitted; --dry-run shows its digest. If no registry has IMAGE and this computer's docker does, it is stored on the
peer as starling image push does, and providers of the job get it from there.` + followLong + `

A WASI program runs in a process of its own, which Linux confines beside the program's sandbox. It has the job's files,
no sockets and no other program. A container has no network access without --network internet, and its HEALTHCHECK is
ignored. If the provider's engine is set up for it, an image runs unchanged: with its USER and HOME, and a writable
root. On other providers, and with GPUs, USER is ignored, the root is read-only, and /tmp and /run are in memory.

` + terminalLong + `

A container's /dev/shm is part of its memory: half of it, or --shm-size. starling job port-forward reaches its ports.

With --copies COUNT:TIME[:PRICE], such as 3:30d:0.0002, other providers keep encrypted copies of the outputs after the
job succeeded. Each copy is a volume: PRICE is the highest price of its unit-hour, in tokens, and its cost is beside
the budget of the job. starling job copies shows the copies and their key; starling get fetches from them.

With --checkpoint /ckpt:5m the program finds its earlier /ckpt again after its rank moved to another provider, also if
this peer is gone and guardians run the job. Any framework's files will do: torch.save, Orbax, a Trainer's output_dir.
The provider packs the directory when nothing in it has changed for a second and no file is open for writing (half a
minute if one is). Two packs, the directory and all other files share the disk of the lease: request three times the
checkpoint's size with --disk (default 1Gi).

All files that a program writes share the disk of its lease: outputs (--out), a container's root, and /scratch, with
the size of --scratch. TMPDIR is /scratch; it is empty at each start and is not kept. A volume of starling volume is
kept, with a size of its own; the job runs where it is.

An order publishes the buyer's keys and the number, kind and duration of the units on its topic, and no address, price
or budget. Providers that are asked for a quote, and readers of the chain, see the payer and the payees. The provider
of a rank sees its program and files.`

const runExample = `  starling run --max-price 0.05 hello.wasm
  starling run -n 4 --max-price 0.05 -i shards/{rank}.bin:/data/shard.bin --out /out --save results \
    train.wasm -- --steps 200
  starling run -it --max-price 2.50 --gpus 1 --network internet pytorch/pytorch bash
  starling run --max-price 0.05 --network internet --secret-env HF_TOKEN=env:HF_TOKEN \
    ghcr.io/acme/train:v1 -- --steps 200
  starling run --max-price 2.50 --gpus "h100:8,vram>=80" ghcr.io/acme/train@sha256:…
  starling run -n 4 --max-price 0.05 --dry-run train.wasm
  starling run --max-price 0.05 -i https://example.org/w.bin:/data/w.bin train.wasm
  starling run --max-price 0.05 -i s3://bucket/model/:/model --out /out --save s3://bucket/run-1 train.wasm
  starling run -d --budget 0.25 --max-price 0.05 train.wasm
  starling run -d --guardians 5 --standbys 3 --max-price 0.05 train.wasm`

// NewRun makes the command `starling run` without templates. attend serves the user of -it.
func NewRun(a *cli.App, attend Attend) *cobra.Command {
	c, _ := RunOver(a, attend)
	return c
}

// Over runs a template's job with the flags and arguments of a command. see gets the job before; it is optional.
type Over func(ctx context.Context, d *jobfile.Draft, args []string, see func(job.Job) error) error

// RunOver makes the command `starling run`, and a function that runs a template's job with its flags.
func RunOver(a *cli.App, attend Attend) (*cobra.Command, Over) {
	var o SubmitOptions
	var flags *jobfile.Flags
	c := &cobra.Command{
		Use:     "run [flags] MODULE|IMAGE [-- ARGS]",
		Short:   "Run a program on other peers",
		Long:    runLong,
		Example: runExample,
		GroupID: cli.GroupJobs,
		Args:    func(c *cobra.Command, args []string) error { return runArgs(c, args, flags) },
	}
	c.SetFlagErrorFunc(flagOfProgram)
	flags = JobFlags(c)
	o.flags(c)
	run := func(ctx context.Context, d *jobfile.Draft, args []string, see func(job.Job) error) error {
		token, err := Token(a)
		if err != nil {
			return err
		}
		if err := a.WholeKeys(ctx, flags.Exclude); err != nil {
			return err
		}
		flags.Args = args
		plain, tty := flags.Terminal()
		spec, err := plain.Over(d, token)
		if err != nil {
			return err
		}
		if see != nil {
			if err := see(spec); err != nil {
				return err
			}
		}
		o.guards = c.Flags().Changed("guardians")
		if tty {
			if spec, err = kept(Attended(spec, c), o); err != nil {
				return err
			}
			o.attend = attend
		}
		return Submit(a, ctx, spec, o)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		flags.Module = args[0]
		return run(c.Context(), nil, args[1:], nil)
	}
	return c, run
}

// NewSubmit makes the command `starling submit`.
func NewSubmit(a *cli.App) *cobra.Command {
	var o SubmitOptions
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Run a job from a job file",
		Long: `Reads a job file (FILE may be - for standard input), orders leases, runs it, meters and pays. Relative
paths are relative to the file's directory. Unknown fields and values out of range are refused with their line.

  apiVersion: v1
  kind: Job
  metadata: {name: count-words}
  spec:
    module: build/words.wasm                a WASI program; or image: ghcr.io/acme/train:v1
    args: [--fast]
    count: 3                                number of ranks, leased all or none
    resources: {class: cpu, memory: 256Mi}  or gpus: 1, cpu: 0.5, disk: 1Gi, units: 2
    inputs:
      - {src: "parts/{rank}.txt", dst: /in/part.txt}
      - {src: "https://example.org/words.bin", sha256: 9f86d0…, dst: /in/words.bin}
      - {src: "s3://bucket/dictionaries/", dst: /in/dictionaries}
    outputs: [{src: /out}]
    volumes: {data: /data}                  of starling volume create
    checkpoint: {path: /ckpt, every: 5m}    directory to keep for a moved rank
    scratch: 50Gi                           temporary space at /scratch
    shmSize: 8Gi                            /dev/shm of a container, part of its memory
    timeouts: {queue: 2m, run: 10m}
    payment: {maxPrice: 0.05/unit-hour, budget: 0.03}

Every flag of starling run has a field; starling job validate shows a job with all defaults.` + followLong,
		Example: `  starling submit job.yaml
  starling submit --dry-run job.yaml
  starling submit --save results job.yaml
  id=$(starling submit -d job.yaml)`,
		GroupID: cli.GroupJobs,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := LoadJob(a, args[0])
			if err != nil {
				return err
			}
			o.guards = spec.Guardians > 0
			return Submit(a, c.Context(), spec, o)
		},
	}
	o.flags(c)
	return c
}

// Submit submits a job and follows it according to the options.
func Submit(a *cli.App, ctx context.Context, spec job.Job, o SubmitOptions) error {
	if err := o.Check(); err != nil {
		return err
	}
	if o.DryRun {
		if err := checkFiles(spec); err != nil {
			return err
		}
		return quote(a, ctx, spec)
	}
	if err := ready(a, ctx, o.save); err != nil {
		return err
	}
	c, g, j, err := HandIn(a, ctx, spec, o)
	if err != nil {
		return err
	}
	return Submitted(a, ctx, c, g, j, o)
}

// HandIn uploads a job's files and submits it, detached if the options require it.
func HandIn(a *cli.App, ctx context.Context, spec job.Job, o SubmitOptions) (c *api.Client, g market.Genesis,
	j record.Job, err error) {
	if err = checkFiles(spec); err != nil {
		return c, g, j, err
	}
	if g, err = a.Genesis(); err != nil {
		return c, g, j, err
	}
	if c, err = a.Client(); err != nil {
		return c, g, j, err
	}
	values, err := values(a, ctx, spec)
	if err != nil {
		return c, g, j, err
	}
	p := a.Progress()
	spec, err = sources.Upload(ctx, a, c, spec, p)
	p.Clear()
	if err != nil {
		return c, g, j, err
	}
	wanted := o.Detach && !o.guards && !g.Free && spec.Cluster == nil && spec.Idle == 0
	if wanted && (len(spec.Secrets) > 0 || spec.Registry != nil) {
		wanted = false
		a.Say("warning: a job with secrets has no guardians: it runs only while the peer that it was given to runs")
	}
	if wanted {
		spec = spec.Guarded(guardiansOfDetached)
	}
	a.WarnTrust(ctx, c)
	submit := func() (record.Job, error) {
		var key [16]byte
		if _, err := rand.Read(key[:]); err != nil {
			return record.Job{}, err
		}
		j, err := c.Submit(ctx, spec, values, hex.EncodeToString(key[:]))
		if err != nil {
			return j, fmt.Errorf("submitting job %s: %w", spec.Name, err)
		}
		pinned(a, spec.Image, j.Spec.Image)
		if o.Detach {
			return untilHeld(a, ctx, c, j)
		}
		return j, nil
	}
	if j, err = submit(); err != nil {
		if spec, err = imagecmd.LocalImage(ctx, a, c, spec, err); err != nil {
			return c, g, j, err
		}
		j, err = submit()
	}
	if err == nil && wanted && (j.Outcome == record.Failed || j.State == record.Failed) && !j.Detached.Engaged {
		a.Say("warning: job %s found no guardians, and stays in the history as failed: %s", j.ID, j.Reason)
		a.Say("warning: the job is submitted again without guardians: it runs only while the peer that it " +
			"was given to runs")
		spec = spec.Guarded(0)
		j, err = submit()
	}
	return c, g, j, err
}

// Submitted follows a submitted job according to the options.
func Submitted(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job, o SubmitOptions) error {
	if j.Warning != "" {
		a.Say("warning: %s", j.Warning)
	}
	switch {
	case o.Detach && a.Output == cli.OutputTable:
		fmt.Fprintln(a.Out, j.ID)
		a.Say("follow it with `starling logs -f %s`", j.ID)
		return nil
	case o.Detach:
		return a.Show(j, nil)
	case o.attend != nil:
		return o.attend(a, ctx, c, g, j)
	}
	return followToEnd(a, ctx, c, g, j, untils[o.wait], o.save)
}

// followToEnd shows a job's log until the job is over, then its outcome.
func followToEnd(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job, over until,
	to string) error {
	j, err := follow(a, ctx, c, g, j, over)
	if errors.Is(err, errDetached) {
		return nil
	}
	if err != nil {
		return err
	}
	a.Say("%s", Summary(g, j))
	if a.Output != cli.OutputTable {
		if err := a.Show(j, nil); err != nil {
			return err
		}
	}
	if err := cli.JobError(j); err != nil {
		if j.Code == record.CodeNoMatch {
			a.WarnAlone(ctx, c)
		}
		return cli.WithHint(err, "starling why %s", j.ID)
	}
	if to == "" {
		return nil
	}
	saved, err := save(a, ctx, c, j, cli.AllRanks, to)
	for _, s := range saved {
		a.Say("saved %s", s.Dir)
	}
	return err
}
