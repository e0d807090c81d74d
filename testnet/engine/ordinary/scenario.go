//go:build linux

// Package ordinary runs images made without Starling in mind on real peers: `docker build` builds them from unchanged
// Dockerfiles and Debian's packages, and a buyer runs them by the command line. One provider's engine has the OCI
// runtime starling, the other's does not; each image runs on both. testnet/scenarios/images.sh shows it.
//
//	debootstrap ──▶ debian:bookworm ──▶ docker build ──▶ registry ──▶ starling run ──▶ provider with layers
//	                                       │                                     └──▶ provider without
//	                                       └── proxy ──▶ Debian's and PyPI's packages
package ordinary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/scenarios"
)

// stepTime bounds one step. It is long, because nothing is measured by it and the machine may be busy.
const stepTime = 20 * time.Minute

// modes are the two kinds of engines, by the number of their provider.
var modes = []string{layered: "with layers", 1: "without"}

const (
	layered = 0
	// failed is the exit code of starling run for a failed program.
	failed = 1
)

// world is a running scenario.
type world struct {
	scenarios.Options
	engines  []*engine.Engine
	registry *engine.Registry
	proxy    *proxy
	net      *testnet.Network
	record   string // the file of templates that ran; may be empty
}

// Choice is a choice of images: those of Only, or if that is empty the quick ones, and with All the slow ones too.
type Choice struct {
	All  bool
	Only string // names, separated by commas
	// Templates are names of built-in templates, or "all". If it is not empty, only they are run, beside those of Only.
	Templates string
	// Record is optional: the file that lists the templates whose smoke run passed.
	Record string
}

func (c Choice) images() (chosen []image, err error) {
	only := slices.DeleteFunc(strings.Split(c.Only, ","), func(name string) bool { return name == "" })
	var known []string
	for _, i := range images {
		known = append(known, i.name)
		if slices.Contains(only, i.name) || len(only) == 0 && c.Templates == "" && (c.All || !i.slow) {
			chosen = append(chosen, i)
		}
	}
	for _, name := range only {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("image %q: unknown: want some of %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// Run runs the scenario with the chosen images. The rows are the observations. It returns an error if the scenario
// failed to run, engine.ErrUnavailable if this machine cannot run it.
func Run(ctx context.Context, o scenarios.Options, c Choice) (rows []scenarios.Row, err error) {
	chosen, err := c.images()
	if err != nil {
		return nil, err
	}
	templates, err := chooseTemplates(c.Templates)
	if err != nil {
		return nil, err
	}
	if err := available(); err != nil {
		return nil, err
	}
	w := &world{Options: o, record: c.Record}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return scenarios.Play(ctx, o, stepTime, append(w.steps(chosen), append(w.templateSteps(templates),
		scenarios.Step{What: "no container is left", Run: w.leavesNothing})...))
}

func available() error {
	if err := engine.Available(); err != nil {
		return err
	}
	for _, program := range []string{"docker", "debootstrap"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: %s is not installed (Debian: docker.io debootstrap)", engine.ErrUnavailable, program)
		}
	}
	return nil
}

func (w *world) start(ctx context.Context) error {
	config := filepath.Join(w.Dir, "daemon.json")
	entry := fmt.Sprintf(`{"runtimes": {"starling": {"path": %q, "runtimeArgs": ["oci-runtime"]}}}`,
		filepath.Join(filepath.Dir(w.Binary), "starling-guard"))
	if err := errors.Join(os.MkdirAll(w.Dir, 0o700), os.WriteFile(config, []byte(entry), 0o600)); err != nil {
		return err
	}
	for _, args := range [][]string{{"--config-file", config}, nil} {
		e, err := engine.Start(ctx, engine.Options{Args: args})
		if err != nil {
			return err
		}
		w.engines = append(w.engines, e)
	}
	l, err := w.engines[0].Net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.proxy = newProxy(l)
	if w.registry, err = engine.NewRegistry(w.engines[0].Net); err != nil {
		return err
	}
	w.Say("making %s from packages, only at the first run", base)
	if err := makeBase(ctx, w.engines[0].Host()); err != nil {
		return err
	}
	w.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(w.Dir, "net"), Binary: w.Binary, Providers: len(modes), Buyers: 1, Free: true, Say: w.Say,
		Env:    []string{"XDG_CACHE_HOME=" + filepath.Join(w.Dir, "cache")},
		Engine: func(i int) string { return w.engines[i].Host() }, Registries: w.registry.Addrs(),
		Unit: unit,
	})
	return err
}

// unit is a provider's unit, large enough for a database or a notebook.
var unit = config.Unit{MilliCPU: 1000, MemoryMiB: 1024, DiskMiB: 1024}

// steps builds each image, and runs it in both modes.
func (w *world) steps(chosen []image) (steps []scenarios.Step) {
	for _, i := range chosen {
		steps = append(steps, scenarios.Step{What: i.name + ": build", Run: func(ctx context.Context) (string, error) {
			return w.builds(ctx, i)
		}})
		for m, mode := range modes {
			steps = append(steps, scenarios.Step{What: i.name + ": " + mode,
				Run: func(ctx context.Context) (string, error) {
					return w.compares(ctx, m, i)
				}})
		}
	}
	for m, mode := range modes {
		if len(chosen) == 0 || chosen[0].name != scratchImage {
			break
		}
		steps = append(steps, scenarios.Step{What: "scratch: " + mode, Run: func(ctx context.Context) (string, error) {
			return w.scratch(ctx, m)
		}})
	}
	return steps
}

func (w *world) tag(name string) string { return w.registry.Addr + "/" + name + ":v1" }

// builds builds an image, runs it by docker run, and pushes it.
func (w *world) builds(ctx context.Context, i image) (string, error) {
	host := w.engines[0].Host()
	if err := i.build(ctx, host, w.proxy.url(), w.Dir, w.tag(i.name)); err != nil {
		return "", err
	}
	if err := i.runs(ctx, host, w.tag(i.name)); err != nil {
		return "", err
	}
	_, err := docker(ctx, host, "push", "-q", w.tag(i.name))
	return "from images/" + i.name + "/Dockerfile, run by docker run, pushed", err
}

// compares runs an image in a mode. With layers it must run as intended. Without them its program may fail or have
// other output, because it lacks its user or a writable root.
func (w *world) compares(ctx context.Context, mode int, i image) (string, error) {
	got, s, err := w.runs(ctx, mode, i.want, w.tag(i.name))
	switch {
	case err == nil || mode == layered:
		return got, err
	case s.Code == failed:
		return "does not run: " + complaint(s), nil
	case s.Code == 0:
		text := strings.TrimSpace(s.Out)
		return "runs, but not as its user: " + strings.TrimSpace(text[strings.LastIndex(text, "\n")+1:]), nil
	}
	return got, err
}

// complaint returns the first line of a failed program: of its standard output, else of its errors, which follow the
// report that the job runs.
func complaint(s scenarios.Said) string {
	text := s.Out
	if strings.TrimSpace(text) == "" {
		_, text, _ = strings.Cut(s.Err, " ranks done\n")
	}
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return first
}

// runs runs an image on the provider of a mode, and checks that the program's output contains a text.
func (w *world) runs(ctx context.Context, mode int, want string, args ...string) (string, scenarios.Said, error) {
	others := []string{"run", "--timeout", "10m", "--retries", "0"}
	for i, p := range w.net.Providers() {
		if i != mode {
			others = append(others, "--exclude", p.Key.String())
		}
	}
	cmd := exec.CommandContext(ctx, w.Binary,
		append(append([]string{"--home", w.net.Buyers()[0].Home}, others...), args...)...)
	began := time.Now()
	s, err := scenarios.Command{Cmd: cmd}.Run()
	if err != nil {
		return "", s, err
	}
	for line := range strings.Lines(s.Out) {
		if strings.Contains(line, want) {
			took := time.Since(began).Round(100 * time.Millisecond)
			return fmt.Sprintf("%s (%v)", strings.TrimSpace(line), took), s, nil
		}
	}
	return "", s, fmt.Errorf("want %q: %v", want, s)
}

// scratchImage is the image of scratch, the first of images.
const scratchImage = "user"

// scratch writes into the scratch directory, within its size and beyond that of the lease. /dev/shm has its own size.
func (w *world) scratch(ctx context.Context, mode int) (string, error) {
	const script = `set -e; f=$(mktemp); head -c 300M /dev/zero >$f; echo "$(stat -c %s $f) bytes in $(dirname $f), ` +
		`/dev/shm of $(df --output=size -BM /dev/shm | tail -n 1 | tr -d ' ')"; ` +
		`head -c 2G /dev/zero >$STARLING_SCRATCH/more && echo unbounded`
	const want = "314572800 bytes in /scratch, /dev/shm of 200M"
	out, s, err := w.runs(ctx, mode, want,
		"--scratch", "300Mi", "--shm-size", "200Mi", "--entrypoint", "/bin/sh", w.tag(scratchImage), "--", "-c", script)
	if err == nil && s.Code != failed {
		err = fmt.Errorf("the disk is larger than that of the lease: %v", s)
	}
	return out, err
}

// leavesNothing waits until every container is gone.
func (w *world) leavesNothing(ctx context.Context) (string, error) {
	return scenarios.Until(ctx, func() (bool, string, error) {
		left := 0
		for _, e := range w.engines {
			list, err := e.Containers(ctx)
			if err != nil {
				return false, "", err
			}
			left += len(list)
		}
		return left == 0, fmt.Sprint(left, " containers"), nil
	})
}

func (w *world) close() error {
	var errs []error
	if w.net != nil {
		errs = append(errs, w.net.Stop())
	}
	if w.registry != nil {
		errs = append(errs, w.registry.Close())
	}
	if w.proxy != nil {
		errs = append(errs, w.proxy.close())
	}
	for _, e := range w.engines {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}
