package wasm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm/canonical"
	"github.com/starling-network/starling/node/runtime/wasm/compilecache"
)

// Name is the name of this runtime in orders and offers.
const Name = "wasm"

// DefaultGrace is the time that an execution runs without its peer's process.
const DefaultGrace = 30 * time.Second

// Config of a Runtime. Only CacheDir is needed.
type Config struct {
	CacheDir string        // of compiled modules; may be shared with other peers of the same user
	CacheMiB uint32        // size to which New prunes the cache; 0 is 1024
	Grace    time.Duration // time that executions run without a peer; 0 is DefaultGrace
	Command  []string      // starts a child, without the directory; nil is this binary with Subcommand
	Logger   *slog.Logger  // nil is slog.Default
}

// Runtime is the wasm runtime of one peer process.
type Runtime struct {
	cfg      Config
	mine     runtime.Table[*execution]
	confined sync.Once // logs the confinement of children
}

var (
	_ runtime.Runtime = (*Runtime)(nil)
	_ runtime.Logger  = (*Runtime)(nil)
	_ runtime.Checker = (*Runtime)(nil)
	_ runtime.Pauser  = (*Runtime)(nil)
	_ runtime.Gauger  = (*Runtime)(nil)
)

// New makes a Runtime that owns no executions yet. It starts nothing.
func New(cfg Config) (*Runtime, error) {
	if !filepath.IsAbs(cfg.CacheDir) {
		return nil, fmt.Errorf("wasm runtime: cache directory %q is not absolute", cfg.CacheDir)
	}
	if cfg.Grace <= 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.CacheMiB == 0 {
		cfg.CacheMiB = 1024
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Command == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("wasm runtime: finding own binary: %w", err)
		}
		cfg.Command = []string{self, Subcommand}
	}
	if err := os.MkdirAll(cfg.CacheDir, 0o700); err != nil {
		return nil, fmt.Errorf("wasm runtime: creating cache: %w", err)
	}
	if err := compilecache.Check(cfg.CacheDir); err != nil {
		return nil, fmt.Errorf("wasm runtime: %w", err)
	}
	compilecache.Prune(cfg.CacheDir, int64(cfg.CacheMiB)<<20)
	return &Runtime{cfg: cfg}, nil
}

// Name is "wasm".
func (r *Runtime) Name() string { return Name }

// CheckModule checks the first bytes of the file.
func (r *Runtime) CheckModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var head [len(canonical.Magic)]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:]) != canonical.Magic {
		return fmt.Errorf("%w: %w", runtime.ErrBadModule, canonical.ErrNoModule)
	}
	return nil
}

// Close gives up all executions without ending them, as the end of the process would. Each runs on for the grace, in
// which another Runtime may recover it. Calls that wait for an execution return ErrClosed.
func (r *Runtime) Close() error {
	r.mine.Close((*execution).disown)
	return nil
}

func (r *Runtime) find(h runtime.Handle) (*execution, error) { return r.mine.Find(Name, h) }

// add makes e one of this runtime's and begins to wait for its end.
func (r *Runtime) add(e *execution) error {
	return r.mine.Add(e.dir, e.id, e, func() { go e.watch() })
}

// Wait returns the execution's end.
func (r *Runtime) Wait(ctx context.Context, h runtime.Handle) (runtime.Exit, error) {
	e, err := r.find(h)
	if err != nil {
		return runtime.Exit{}, err
	}
	return e.wait(ctx)
}

// Stop makes runtime.StopFile appear in the guest, then ends the child. A seeded guest sees no request and is ended at
// once.
func (r *Runtime) Stop(ctx context.Context, h runtime.Handle, grace time.Duration) error {
	e, err := r.find(h)
	if err != nil {
		return err
	}
	if err := e.resume(); err != nil {
		return err
	}
	if s, err := readSpec(e.dir); err != nil || s.Spec.Seed != 0 {
		grace = 0
	}
	if grace > 0 {
		stop := filepath.Join(e.dir, controlDir, filepath.Base(runtime.StopFile))
		if err := os.WriteFile(stop, nil, 0o600); err != nil {
			r.cfg.Logger.Warn("cannot send a program the stop signal", "id", e.id, "error", err)
		}
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-e.over:
		case <-e.gone:
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return e.kill(ctx)
}

// Destroy ends the execution and removes its directory.
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
	if err := os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("removing execution directory: %w", err)
	}
	r.mine.Remove(h.Dir)
	e.disown()
	return nil
}

// Recover takes the execution's owner lock. It fails when another living process has it.
func (r *Runtime) Recover(ctx context.Context, h runtime.Handle) error {
	if _, err := r.find(h); !errors.Is(err, runtime.ErrNotFound) {
		return err
	}
	s, err := readSpec(h.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && s.Spec.ID != h.ID {
		return fmt.Errorf("%w: %s", runtime.ErrNotFound, h.ID)
	}
	if err != nil {
		return fmt.Errorf("recovering execution: %w", err)
	}
	owner, err := os.OpenFile(filepath.Join(h.Dir, ownerFile), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("recovering execution: %w", err)
	}
	e := newExecution(h.ID, h.Dir, owner)
	if err := e.takeOwnership(ctx); err != nil {
		_ = owner.Close()
		return fmt.Errorf("recovering execution: %w", err)
	}
	if err := e.resume(); err != nil { // a pause ends with the peer that made it
		r.cfg.Logger.Warn("cannot resume a recovered execution", "id", e.id, "error", err)
	}
	if err := r.add(e); err != nil {
		e.disown()
		if errors.Is(err, runtime.ErrExists) { // another Recover was faster
			return nil
		}
		return err
	}
	return nil
}

// Stats reads the usage from the kernel while the child runs, and then from its last status.
func (r *Runtime) Stats(_ context.Context, h runtime.Handle) (runtime.Stats, error) {
	e, err := r.find(h)
	if err != nil {
		return runtime.Stats{}, err
	}
	return e.stats()
}

// Logs follows a log file.
func (r *Runtime) Logs(ctx context.Context, h runtime.Handle, s runtime.Stream, offset int64) (io.ReadCloser, error) {
	e, err := r.find(h)
	if err != nil {
		return nil, err
	}
	return runtime.FollowLog(ctx, filepath.Join(e.dir, logFile(s)), s, offset, e.over, e.gone)
}
