//go:build linux

package scenario

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/runtime/volume"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/scenarios"
)

// training is the scenario of containers with checkpoints, on a free network. Providers are killed one after the other,
// and each job continues with the next. The first and the last provider's engine has the OCI runtime starling and maps
// users, the other's has not.
type training struct {
	world
	jobs []*trained
}

// trained is a job of the scenario.
type trained struct {
	framework string
	user      string // of the image
	uid       int    // of its program where users are mapped
	id        string
	begins    int    // times that its program began
	saved     int    // step in the checkpoint that the buyer's peer had before the last kill
	cid       string // its digest
}

// trainers is the number of providers of the scenario.
const trainers = 3

// RunCheckpoints runs the scenario of checkpoints. Rows and errors are as Run's. starling-guard is beside Binary.
func RunCheckpoints(ctx context.Context, o scenarios.Options) (rows []scenarios.Row, err error) {
	if err := engine.Available(); err != nil {
		return nil, err
	}
	w := &training{world: world{Options: o}, jobs: []*trained{
		{framework: "torch", user: "trainer", uid: 1234}, {framework: "orbax"},
		{framework: "trainer", user: "4321", uid: 4321},
	}}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return scenarios.Play(ctx, o, stepTime, []scenarios.Step{
		{What: "torch.save, Orbax and Trainer write checkpoints, each as its image's user", Run: w.begins},
		{What: "their provider is killed: they continue on one without mapped users", Run: w.moves(1)},
		{What: "that is killed, too: they continue on another with mapped users", Run: w.moves(2)},
		{What: "the killed providers start again, and the jobs are stopped", Run: w.ends},
		{What: "no container is left", Run: w.leavesNothing},
		{What: "no file system and no file of a program is left", Run: func(ctx context.Context) (string, error) {
			return noVolumes(ctx, w.net.Providers())
		}},
	})
}

func (w *training) start(ctx context.Context) error {
	settings := filepath.Join(w.Dir, "daemon.json")
	entry := fmt.Sprintf(`{"runtimes": {"starling": {"path": %q, "runtimeArgs": ["oci-runtime"]}}}`,
		filepath.Join(filepath.Dir(w.Binary), "starling-guard"))
	box := filepath.Join(w.Dir, "box")
	if err := errors.Join(os.MkdirAll(w.Dir, 0o700), os.WriteFile(settings, []byte(entry), 0o600),
		engine.Build(box, "github.com/starling-network/starling/testnet/engine/box")); err != nil {
		return err
	}
	for _, args := range [][]string{{"--config-file", settings}, nil} {
		e, err := engine.Start(ctx, engine.Options{Args: args})
		if err != nil {
			return err
		}
		w.engines = append(w.engines, e)
	}
	var err error
	if w.registry, err = engine.NewRegistry(); err != nil {
		return err
	}
	w.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(w.Dir, "net"), Binary: w.Binary, Providers: trainers, Late: []int{1, 2}, Buyers: 1,
		Units: 4, Free: true, Interval: 50, Connected: 1, Say: w.Say,
		Env:        []string{"XDG_CACHE_HOME=" + filepath.Join(w.Dir, "cache")},
		Engine:     func(i int) string { return w.engines[i%len(w.engines)].Host() },
		Registries: w.registry.Addrs(), Unit: config.Unit{MilliCPU: 500, MemoryMiB: 256, DiskMiB: 64},
	})
	return err
}

// begins submits the jobs and waits until each has a checkpoint.
func (w *training) begins(ctx context.Context) (string, error) {
	for _, t := range w.jobs {
		image, err := w.registry.Push(t.framework, func(cfg *v1.ConfigFile) { cfg.Config.User = t.user },
			engine.File{Path: "/box", From: filepath.Join(w.Dir, "box")},
			engine.File{Path: "/etc/passwd", Text: "trainer:x:1234:1234::/:/box\n", Mode: 0o644})
		if err != nil {
			return "", err
		}
		out, err := w.done(ctx, "run", "-d", "--checkpoint", ckptFlag, "--disk", "64Mi", "--timeout", "30m",
			"--queue-timeout", "10m", image, "--", "train", t.framework)
		if err != nil {
			return "", err
		}
		t.id = strings.TrimSpace(out)
	}
	return w.all(func(t *trained) (string, error) {
		if err := w.packed(ctx, t); err != nil {
			return "", err
		}
		return w.continued(ctx, t, 0, true)
	})
}

// ckptFlag is the directory of the programs' checkpoints and their interval.
const ckptFlag = "/ckpt:1s"

// beginning begins the line in which a program reports the step after which it continues.
const beginning = "begins at "

// all runs f for all jobs at once.
func (w *training) all(f func(t *trained) (string, error)) (string, error) {
	got, failed := make([]string, len(w.jobs)), make([]error, len(w.jobs))
	var wg sync.WaitGroup
	for i, t := range w.jobs {
		wg.Go(func() {
			if got[i], failed[i] = f(t); failed[i] != nil {
				why, _ := w.done(context.Background(), "why", t.id)
				log, _ := w.done(context.Background(), "logs", t.id)
				failed[i] = fmt.Errorf("%s: %w\n%s\n%s", t.framework, failed[i], scenarios.Tail(why),
					scenarios.Tail(log))
			}
			got[i] = t.framework + " " + got[i]
		})
	}
	wg.Wait()
	return strings.Join(got, "; "), errors.Join(failed...)
}

// packed waits until the buyer's peer has a checkpoint of a step after the last, and downloads it.
func (w *training) packed(ctx context.Context, t *trained) error {
	dir, err := os.MkdirTemp(w.Dir, "ckpt-")
	if err != nil {
		return err
	}
	_, err = scenarios.Until(ctx, func() (bool, string, error) {
		if err := os.RemoveAll(dir); err != nil {
			return false, "", err
		}
		s, err := w.starling(ctx, "job", "checkpoints", t.id, "--get", dir, "-o", "json")
		if err != nil || s.Code != 0 {
			return false, s.String(), err
		}
		var shown []struct {
			CID string `json:"cid"`
		}
		if err := json.Unmarshal([]byte(s.Out), &shown); err != nil || len(shown) != 1 {
			return false, s.Out, err
		}
		step, err := stepIn(dir, t.framework)
		done := shown[0].CID != t.cid && step > t.saved
		if done {
			t.saved, t.cid = step, shown[0].CID
		}
		return done, fmt.Sprintf("step %d, was %d", step, t.saved), err
	})
	return err
}

// stepIn returns the newest step in a downloaded checkpoint.
func stepIn(dir, framework string) (newest int, err error) {
	if framework == "torch" {
		b, err := os.ReadFile(filepath.Join(dir, "model.pt"))
		if err != nil || len(b) < 8 {
			return 0, errors.Join(err, errors.New("no step"))
		}
		return int(binary.LittleEndian.Uint64(b)), nil
	}
	all, err := os.ReadDir(dir)
	for _, e := range all {
		if n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "checkpoint-")); err == nil {
			newest = max(newest, n)
		}
	}
	return newest, err
}

// moves starts provider to and kills the one before. Each job must continue after the newest step that its buyer's
// peer had.
func (w *training) moves(to int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if err := w.net.Providers()[to].Start(ctx); err != nil {
			return "", err
		}
		if err := w.net.Providers()[to-1].Kill(); err != nil {
			return "", err
		}
		return w.all(func(t *trained) (string, error) {
			got, err := w.continued(ctx, t, t.saved, to%len(w.engines) == 0)
			if err != nil {
				return "", err
			}
			return got, w.packed(ctx, t)
		})
	}
}

// continued waits until a job's program began once more, and checks its user and that it began at a step or later.
func (w *training) continued(ctx context.Context, t *trained, least int, mapped bool) (string, error) {
	line, begun := "", 0
	_, err := scenarios.Until(ctx, func() (bool, string, error) {
		log, err := w.done(ctx, "logs", t.id)
		n := strings.Count(log, beginning)
		if err != nil || n <= t.begins {
			return false, scenarios.Tail(log), err
		}
		t.begins = n
		line, _, _ = strings.Cut(log[strings.LastIndex(log, beginning):], "\n")
		_, err = fmt.Sscanf(line, beginning+"%d", &begun)
		return true, line, err
	})
	if err == nil && begun < least {
		err = fmt.Errorf("a program %s: want step %d at least", line, least)
	}
	if want := fmt.Sprintf("as user %d", t.uid); err == nil && mapped && !strings.HasSuffix(line, want) {
		err = fmt.Errorf("the user of a program: got %q, want %q", line, want)
	}
	return line, err
}

// ends starts the killed providers again, which still have the programs' containers, and stops the jobs.
func (w *training) ends(ctx context.Context) (string, error) {
	for _, p := range w.net.Providers()[:trainers-1] {
		if err := p.Start(ctx); err != nil {
			return "", err
		}
	}
	return w.all(func(t *trained) (string, error) {
		if _, err := w.done(ctx, "stop", t.id); err != nil {
			return "", err
		}
		s, err := w.starling(ctx, "wait", t.id)
		if err == nil && !strings.Contains(s.Err, "stopped") {
			err = fmt.Errorf("waiting for a stopped job: %v", s)
		}
		return "stopped", err
	})
}

func (w *training) close() error {
	return errors.Join(w.world.close(), volume.Release(w.Dir)) // a failed scenario leaves programs
}
