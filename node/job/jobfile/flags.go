package jobfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
)

// Flags are the flags of `starling run` as a person typed them; an empty one was not given. Flags.Job reads them by
// the same rules as a job file, so that both ways of asking make the same Job.
type Flags struct {
	Name     string   // --name
	Labels   []string // --label key=value
	Module   string   // first argument: a WASI program, or a container image
	Args     []string // arguments after --
	Env      []string // --env KEY=VALUE
	Count    string   // --count
	Class    string   // --class
	Units    string   // --units
	GPUs     string   // --gpus
	Unproven bool     // --unproven
	CPU      string   // --cpu
	Memory   string   // --memory
	Disk     string   // --disk
	Regions  []string // --region
	Exclude  []string // --exclude
	Only     []string // --provider of starling volume create
	Spread   string   // --spread
	Inputs   []string // --input src=…,dst=… or SRC:DST
	Outputs  []string // --out PATH
	Volumes  []string // --volume NAME:/PATH
	Ckpt     string   // --checkpoint PATH[:EVERY]
	Copies   string   // --copies COUNT:TIME[:PRICE]
	Scratch  string   // --scratch
	Shm      string   // --shm-size
	Retries  string   // --retries
	Restart  string   // --restart
	Backoff  string   // --restart-backoff
	Queue    string   // --queue-timeout
	Pull     string   // --pull-timeout
	Start    string   // --start-timeout
	Run      string   // --timeout
	Stop     string   // --stop-timeout
	Keep     string   // --keep
	Idle     string   // --idle
	Guards   string   // --guardians
	Standbys string   // --standbys
	MaxPrice string   // --max-price
	Budget   string   // --budget
	Verify   string   // --verify
	Probes   string   // --probes

	Entrypoint   string   // --entrypoint
	WorkDir      string   // --workdir
	Network      string   // --network
	Secrets      []string // --secret NAME=FROM
	SecretEnv    []string // --secret-env VARIABLE=FROM
	RegistryAuth string   // --registry-auth docker or USER=FROM
	HealthCmd    string   // --health-cmd
	HealthTCP    string   // --health-tcp
	HealthHTTP   string   // --health-http
	HealthEvery  string   // --health-interval
	HealthWait   string   // --health-timeout
	HealthTries  string   // --health-retries
	HealthStart  string   // --health-start-period
	Webhooks     []string // --webhook

	// Flags that docker has and Starling has not; each is refused with its reason.
	Privileged bool     // --privileged
	CapAdd     []string // --cap-add
	Devices    []string // --device
	Security   []string // --security-opt
	PID, IPC   string   // --pid, --ipc
	Publish    []string // --publish
	TTY        bool     // --tty
	User       string   // --user
}

// flagOf is the flag for each field of a job file that has one.
var flagOf = map[string]string{
	"metadata.name": "--name", "metadata.labels": "--label", "spec.module": "MODULE", "spec.args": "ARGS",
	"spec.env": "--env", "spec.count": "--count", "spec.resources.class": "--class", "spec.resources.units": "--units",
	"spec.resources.gpus": "--gpus",
	"spec.resources.cpu":  "--cpu", "spec.resources.memory": "--memory", "spec.resources.disk": "--disk",
	"spec.resources.unproven": "--unproven",
	"spec.placement.regions":  "--region", "spec.placement.exclude": "--exclude", "spec.placement.spread": "--spread",
	"spec.inputs": "--input", "spec.outputs": "--out", "spec.scratch": "--scratch",
	"spec.checkpoint": "--checkpoint", "spec.copies": "--copies",
	"spec.volumes": "--volume", "spec.placement.only": "--provider",
	"spec.shmSize":     "--shm-size",
	"spec.restart.max": "--retries", "spec.timeouts.queue": "--queue-timeout", "spec.timeouts.run": "--timeout",
	"spec.restart.policy": "--restart", "spec.restart.backoff": "--restart-backoff",
	"spec.timeouts.pull":  "--pull-timeout",
	"spec.timeouts.start": "--start-timeout", "spec.timeouts.stop": "--stop-timeout", "spec.keep": "--keep",
	"spec.idle":      "--idle",
	"spec.guardians": "--guardians", "spec.standbys": "--standbys",
	"spec.image": "IMAGE", "spec.entrypoint": "--entrypoint", "spec.workDir": "--workdir", "spec.network": "--network",
	"spec.secrets": "--secret", "spec.registryAuth": "--registry-auth", "spec.health": "--health-cmd",
	"spec.health.tcp": "--health-tcp", "spec.health.http": "--health-http", "spec.health.interval": "--health-interval",
	"spec.health.timeout": "--health-timeout", "spec.health.retries": "--health-retries",
	"spec.health.startPeriod": "--health-start-period", "spec.webhooks": "--webhook",
	"spec.payment.maxPrice": "--max-price", "spec.payment.budget": "--budget",
	"spec.verify": "--verify", "spec.probes": "--probes",
}

// Terminal reports whether docker's -it was given, and returns the flags without it.
func (f Flags) Terminal() (rest Flags, given bool) {
	of := func(text string) bool { return text == "t" || text == "-t" } // -it and -i -t
	given = f.TTY || slices.ContainsFunc(f.Inputs, of)
	f.TTY, f.Inputs = false, slices.DeleteFunc(slices.Clone(f.Inputs), of)
	return f, given
}

// Job reads the flags for a network with this token. The error is an *Error with the flags as fields.
func (f Flags) Job(token Token) (job.Job, error) { return f.Over(nil, token) }

// Over reads the flags as Job does, over the job of a template: a flag replaces the template's field, or adds to its
// list. d is optional; if nil, Module is the program.
func (f Flags) Over(d *Draft, token Token) (job.Job, error) {
	f, f.TTY = f.Terminal()
	r := &flagReader{said: map[string]bool{}}
	j := f.start(d)
	f.program(r, &j)
	f.health(r, &j)
	j.Payment.Decimals, j.Payment.Free = token.Decimals, token.Free
	r.one("metadata.name", f.Name, func(s string) error { j.Name = s; return nil })
	j.Labels = with(j.Labels, r.pairs("metadata.labels", f.Labels))
	j.Env = with(j.Env, r.pairs("spec.env", f.Env))
	take(r, "spec.count", f.Count, &j.Count, parseCount)
	f.resources(r, &j)
	f.placement(r, &j)
	f.files(r, &j)
	f.never(r)
	f.volumes(r, &j)
	take(r, "spec.checkpoint", f.Ckpt, &j.Checkpoint, parseCheckpoint)
	take(r, "spec.copies", f.Copies, &j.Copies, parseCopies(token))
	take(r, "spec.scratch", f.Scratch, &j.ScratchMiB, parseMiB)
	take(r, "spec.shmSize", f.Shm, &j.ShmMiB, parseMiB)
	r.one("spec.restart.max", f.Retries, func(s string) error {
		n, err := parseCount(s)
		j.Restart.Max = int(n)
		return err
	})
	take(r, "spec.restart.policy", f.Restart, &j.Restart.Policy, asPolicy)
	take(r, "spec.restart.backoff", f.Backoff, &j.Restart.Backoff, parseSpan)
	take(r, "spec.timeouts.queue", f.Queue, &j.Timeouts.Queue, parseTime)
	take(r, "spec.timeouts.pull", f.Pull, &j.Timeouts.Pull, parseTime)
	take(r, "spec.timeouts.start", f.Start, &j.Timeouts.Start, parseTime)
	take(r, "spec.timeouts.run", f.Run, &j.Timeouts.Run, parseTime)
	take(r, "spec.timeouts.stop", f.Stop, &j.Timeouts.Stop, parseTime)
	take(r, "spec.keep", f.Keep, &j.Keep, parseSpan)
	take(r, "spec.idle", f.Idle, &j.Idle, parseSpan)
	take(r, "spec.guardians", f.Guards, &j.Guardians, parseCount)
	take(r, "spec.standbys", f.Standbys, &j.Standbys, parseCount)
	take(r, "spec.payment.maxPrice", f.MaxPrice, &j.Payment.MaxPrice,
		func(s string) (market.Price, error) { return parsePrice(s, token) })
	take(r, "spec.payment.budget", f.Budget, &j.Payment.Budget,
		func(s string) (market.Amount, error) { return parseMoney(s, token) })
	take(r, "spec.verify", f.Verify, &j.Verify, asVerify)
	take(r, "spec.probes", f.Probes, &j.Probes, asProbes)
	if len(r.problems) == 0 {
		var err error
		j, err = j.Complete(func(field string) bool { return r.said[field] || d.has(field) })
		r.problems = problemsOf(err)
	}
	for i, p := range r.problems {
		if f.GPUs != "" && p.Field == "spec.resources.class" {
			p.Field = fieldGPUs
		}
		r.problems[i] = d.locate(p, r.said)
	}
	if err := r.problems.err(); err != nil {
		return job.Job{}, err
	}
	return j, nil
}

// files reads inputs and outputs.
func (f *Flags) files(r *flagReader, j *job.Job) {
	for _, text := range f.Inputs {
		if text == "t" || text == "-t" { // -it and -i -t of docker
			f.TTY = true
		} else if in, err := parseInput(text); err != nil {
			r.problems.add("spec.inputs", "%v", err)
		} else {
			j.Inputs = append(j.Inputs, in)
		}
	}
	for _, text := range f.Outputs {
		j.Outputs = append(j.Outputs, job.Output{Path: text})
	}
}

func (f Flags) resources(r *flagReader, j *job.Job) {
	if f.Class != "" || f.Units != "" { // other units than the GPUs of a template
		j.Resources.Units, j.Resources.PerUnit.VRAMMiB, j.Resources.MinCapability = 0, 0, 0
	}
	take(r, "spec.resources.class", f.Class, &j.Resources.Class, asClass)
	take(r, "spec.resources.units", f.Units, &j.Resources.Units, parseCount)
	r.one("spec.resources.gpus", f.GPUs, func(s string) error {
		asked, err := parseGPUs(s)
		if err == nil && (f.Class != "" || f.Units != "") {
			err = errors.New(gpusSay)
		}
		ask(&j.Resources, asked)
		return err
	})
	j.Resources.Unproven = f.Unproven
	take(r, "spec.resources.cpu", f.CPU, &j.Resources.PerUnit.MilliCPU, parseCPU)
	take(r, "spec.resources.memory", f.Memory, &j.Resources.PerUnit.MemoryMiB, parseMiB)
	take(r, "spec.resources.disk", f.Disk, &j.Resources.PerUnit.DiskMiB, parseMiB)
}

func (f Flags) placement(r *flagReader, j *job.Job) {
	for _, text := range f.Regions {
		j.Placement.Regions = append(j.Placement.Regions, market.Region(text))
	}
	for _, text := range f.Exclude {
		k, err := asProvider(text)
		if err != nil {
			r.problems.add("spec.placement.exclude", "%v", err)
			continue
		}
		j.Placement.Exclude = append(j.Placement.Exclude, k)
	}
	for _, text := range f.Only {
		k, err := asProvider(text)
		if err != nil {
			r.problems.add("spec.placement.only", "%v", err)
			continue
		}
		j.Placement.Only = append(j.Placement.Only, k)
	}
	r.one("spec.placement.spread", f.Spread, func(s string) error {
		j.Placement.Pack = s == "pack"
		if s != "peer" && s != "pack" {
			return fmt.Errorf("%.40q, want peer (every rank on another peer) or pack", s)
		}
		return nil
	})
}

// parseInput reads "src=shards/{rank}.bin,dst=/data/shard.bin" or, as docker's -v, "shard.bin:/data/shard.bin". The
// source may be a URL: "https://example.org/w.bin#sha256=…:/data/w.bin".
func parseInput(text string) (job.Input, error) {
	if rest, ok := strings.CutPrefix(text, "src="); ok {
		if i := strings.LastIndex(rest, ",dst="); i >= 0 {
			return job.Input{Source: filePath(rest[:i]), Path: rest[i+len(",dst="):]}, nil
		}
	} else if i := strings.LastIndex(text, ":/"); i > 0 && !strings.HasPrefix(text[i:], "://") {
		if strings.HasSuffix(text, ":ro") || strings.HasSuffix(text, ":rw") {
			return job.Input{}, fmt.Errorf("%.80q: an input is a copy and has no mode: want %s", text,
				text[:len(text)-3])
		}
		return job.Input{Source: filePath(text[:i]), Path: text[i+1:]}, nil
	}
	return job.Input{}, fmt.Errorf("%.80q is not an input: want SRC:DST, such as data.bin:/data/data.bin", text)
}

// filePath is a source without the scheme of files: file:PATH and file:///PATH are paths.
func filePath(source string) string {
	path, ok := strings.CutPrefix(source, "file:")
	if !ok {
		return source
	}
	if rest, ok := strings.CutPrefix(path, "//"); ok && strings.HasPrefix(rest, "/") {
		return rest
	}
	return path
}

// flagFor returns the flag of a field of the job file.
func flagFor(field string) string {
	for above := field; ; {
		if flag, ok := flagOf[above]; ok {
			return flag
		}
		i := strings.LastIndexAny(above, ".[")
		if i < 0 {
			return field
		}
		above = above[:i]
	}
}

// flagReader collects the problems and remembers which flags were given.
type flagReader struct {
	problems problems
	said     map[string]bool
}

func (r *flagReader) one(field, text string, read func(string) error) {
	if text == "" {
		return
	}
	r.said[field] = true
	if err := read(text); err != nil {
		r.problems.add(field, "%v", err)
	}
}

func (r *flagReader) pairs(field string, texts []string) map[string]string {
	m := map[string]string{}
	for _, text := range texts {
		k, v, ok := strings.Cut(text, "=")
		if _, twice := m[k]; !ok || twice {
			r.problems.add(field, "%.80q: want NAME=VALUE, each name once", text)
			continue
		}
		m[k] = v
	}
	return m
}

func take[T any](r *flagReader, field, text string, to *T, parse func(string) (T, error)) {
	r.one(field, text, func(s string) error {
		v, err := parse(s)
		*to = v
		return err
	})
}

// Token is the unit of a network's prices. A free network has none: every price on it is 0.
type Token struct {
	Decimals uint8
	Free     bool
}
