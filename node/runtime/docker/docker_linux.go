package docker

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/gauge"
)

// Runtime is the docker runtime of one peer process.
type Runtime struct {
	cfg    Config
	engine *engine
	guard  string // path of the binary
	empty  emptyImage
	fetch  *fetch.Client
	images *shelf
	trial  trial

	noVolume error // why this machine has no volumes
	noUsers  error // why all programs have one user

	stop  context.CancelFunc // ends tasks
	ctx   context.Context    // of tasks
	tasks sync.WaitGroup     // background work: removals, the sweep

	mine    runtime.Table[*execution]
	fastest gauge.Fastest // of GPUs that were gauged
}

var (
	_ runtime.Runtime  = (*Runtime)(nil)
	_ runtime.Logger   = (*Runtime)(nil)
	_ runtime.Pauser   = (*Runtime)(nil)
	_ runtime.Attacher = (*Runtime)(nil)
	_ runtime.Gauger   = (*Runtime)(nil)
	_ runtime.Dialer   = (*Runtime)(nil)
	_ runtime.Images   = (*Runtime)(nil)
	_ runtime.Prober   = (*Runtime)(nil)
	_ runtime.Volumer  = (*Runtime)(nil)

	_ runtime.Networker = (*Runtime)(nil)
)

var peerPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

// New connects to the engine and makes a Runtime that owns no executions yet. Containers of this peer that have ended
// are removed; those that run and are not recovered within the grace are ended then. Errors are ErrEngine and name a
// remedy.
func New(ctx context.Context, cfg Config) (*Runtime, error) {
	if len(cfg.Peer) > 128 || !peerPattern.MatchString(cfg.Peer) {
		return nil, fmt.Errorf("docker runtime: %q is not a name for this peer's containers", cfg.Peer)
	}
	if cfg.Grace <= 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.MaxImageMiB == 0 {
		cfg.MaxImageMiB = DefaultMaxImageMiB
	}
	if cfg.ImagesPercent == 0 {
		cfg.ImagesPercent = DefaultImagesPercent
	}
	if cfg.FreeMiB == 0 {
		cfg.FreeMiB = DefaultFreeMiB
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	binary, err := guardBinary(cfg.Guard)
	if err != nil {
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	reader, err := fetch.New(cfg.Registries)
	if err != nil {
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	e, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	r := &Runtime{cfg: cfg, engine: e, guard: binary, fetch: reader, images: newShelf(cfg, e)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	if _, err := r.sweep(ctx); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	if err := r.tryRuntime(ctx); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	r.tryVolumes(ctx)
	r.tryUsers()
	r.tasks.Go(r.sweepLater)
	r.tasks.Go(r.keepFloor)
	return r, nil
}

// guardBinary finds the binary that is mounted into containers, and refuses one that would not run there.
func guardBinary(path string) (string, error) {
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("finding own binary: %w", err)
		}
		path = self
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding guard: %w", err)
	}
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading guard: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s is dynamically linked and would not run in a container: build it with CGO_ENABLED=0", path)
		}
	}
	return path, nil
}

// Name is "docker".
func (r *Runtime) Name() string { return Name }

// Close gives up all executions without ending them, as the end of the process would: each goes on for the grace, in
// which another Runtime may recover it. Calls that wait for one return ErrClosed.
func (r *Runtime) Close() error {
	r.mine.Close((*execution).disown)
	r.stop()
	r.tasks.Wait()
	return r.engine.Close()
}

func (r *Runtime) find(h runtime.Handle) (*execution, error) { return r.mine.Find(Name, h) }

// add makes e one of this runtime's and begins to wait for its end.
func (r *Runtime) add(e *execution) error {
	return r.mine.Add(e.dir, e.id, e, func() {
		r.tasks.Go(e.watch)
		if e.conn != nil && len(e.state.Measured) > 0 {
			r.tasks.Go(e.watchDisk)
		}
		if e.conn != nil && e.state.Sidecar != "" {
			r.tasks.Go(e.watchNet)
		}
	})
}

// Wait returns the execution's end.
func (r *Runtime) Wait(ctx context.Context, h runtime.Handle) (runtime.Exit, error) {
	e, err := r.find(h)
	if err != nil {
		return runtime.Exit{}, err
	}
	return e.wait(ctx)
}

// Stop makes runtime.StopFile appear, sends SIGTERM when half the grace or a second has passed, and kills at its end.
func (r *Runtime) Stop(ctx context.Context, h runtime.Handle, grace time.Duration) error {
	e, err := r.find(h)
	if err != nil || e.ended() {
		return err
	}
	if err := e.resume(ctx); err != nil && !errors.Is(err, runtime.ErrEnded) {
		return err
	}
	if grace > 0 {
		if err := os.WriteFile(filepath.Join(e.dir, controlDir, guard.StopFile), nil, 0o644); err != nil {
			r.cfg.Logger.Warn("cannot ask a program to stop", "id", e.id, "error", err)
		}
		first := min(grace/2, time.Second)
		if e.within(ctx, first) {
			return nil
		}
		e.send(guard.Request{Op: guard.OpTerm})
		if e.within(ctx, grace-first) {
			return nil
		}
	}
	return e.kill(ctx)
}

// Destroy ends the execution and removes its containers and directory.
func (r *Runtime) Destroy(ctx context.Context, h runtime.Handle) error {
	if err := r.Recover(ctx, h); errors.Is(err, runtime.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	e, err := r.find(h)
	if err != nil {
		return err
	}
	if err := e.kill(ctx); err != nil {
		return err
	}
	for _, c := range e.containers() {
		if err := r.remove(ctx, c); err != nil {
			return fmt.Errorf("removing container: %w", err)
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("removing execution directory: %w", err)
	}
	r.mine.Remove(h.Dir)
	e.disown()
	return nil
}

// Logs follows a log file.
func (r *Runtime) Logs(ctx context.Context, h runtime.Handle, s runtime.Stream, offset int64) (io.ReadCloser, error) {
	e, err := r.find(h)
	if err != nil {
		return nil, err
	}
	return runtime.FollowLog(ctx, filepath.Join(e.dir, logFile(s)), s, offset, e.over, e.gone)
}

// Stats asks the guard while the program runs; after the end and while it is paused, they are the last known.
func (r *Runtime) Stats(ctx context.Context, h runtime.Handle) (runtime.Stats, error) {
	e, err := r.find(h)
	if err != nil {
		return runtime.Stats{}, err
	}
	return e.stats(ctx)
}
