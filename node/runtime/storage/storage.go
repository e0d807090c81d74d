// Package storage is the runtime of volumes: executions without a program, each of which is a directory for as long as
// it runs. Other executions mount the directory. Its bytes and files are limited by a file system of its own (package
// volume) where this machine has those, else by the runtimes that mount it.
//
//	Start ─▶ the directory exists ── Stop, Destroy ─▶ holders leave ─▶ it is removed, the execution has ended
//	              ▲        │
//	              └ Recover┘ of a later process, also after a restart of the machine
//
// A program that has the directory holds it (Hold), so that nothing writes into a directory that is being removed.
//
// # Files of an execution (Spec.Dir, mode 0700)
//
//	data/       the directory              started      written last by Start: its time
//	data.img    its file system, if any    ended.json   the end, written before the directory is removed
//
// A crash in Start leaves no file started, and the caller removes the rest by Remove. A crash in Stop leaves the file
// ended.json, and Recover removes the rest.
package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/volume"
	"github.com/starling-network/starling/p2p/blob/remove"
)

// Name is the name of the runtime.
const Name = market.Volume

// The files of an execution.
const (
	dataDir     = "data"
	imageFile   = "data.img"
	startedFile = "started"
	endedFile   = "ended.json"
)

// Config is the configuration of a Runtime.
type Config struct {
	// Unbounded makes plain directories, even if this machine has file systems for them.
	Unbounded bool
	Log       *slog.Logger
}

// Runtime keeps volumes. It implements runtime.Runtime and runtime.Storer.
type Runtime struct {
	cfg   Config
	all   runtime.Table[*execution]
	holds holds // a holder may come before Recover
}

var _ runtime.Storer = (*Runtime)(nil)

// execution is one volume.
type execution struct {
	dir  string
	turn chan struct{} // holds one token while the volume is not being removed
	over chan struct{} // closed at the end
	exit runtime.Exit  // once over is closed
}

// New returns a runtime without volumes.
func New(cfg Config) *Runtime { return &Runtime{cfg: cfg} }

// Name implements runtime.Runtime.
func (*Runtime) Name() string { return Name }

// Start makes the directory. It uses ID, Dir and Limits.DiskMiB of the spec. It returns runtime.ErrNoRoom if the disk
// is full.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Handle, error) {
	h := runtime.Handle{Runtime: Name, ID: s.ID, Dir: s.Dir}
	if err := h.Check(); err != nil {
		return h, err
	}
	if err := r.all.Open(); err != nil {
		return h, err
	}
	if entries, err := os.ReadDir(s.Dir); err == nil && len(entries) > 0 {
		return h, fmt.Errorf("%w in %s", runtime.ErrExists, s.Dir)
	}
	err := r.make(ctx, s)
	e := newExecution(s.Dir)
	e.exit.Started = time.Now()
	if err == nil {
		err = write(filepath.Join(s.Dir, startedFile), e.exit.Started)
	}
	if err == nil {
		err = r.all.Add(s.Dir, s.ID, e, func() {})
	}
	if err != nil {
		return h, errors.Join(err, volume.Release(s.Dir), remove.All(s.Dir))
	}
	return h, nil
}

// make makes the directory of a volume with the bounds that this machine can give it.
func (r *Runtime) make(ctx context.Context, s runtime.Spec) error {
	data := filepath.Join(s.Dir, dataDir)
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("making volume: %w", err)
	}
	bytes := int64(s.Limits.WithDefaults().DiskMiB) << 20
	err := volume.ErrUnavailable
	if !r.cfg.Unbounded {
		err = volume.Keep(ctx, data, filepath.Join(s.Dir, imageFile), bytes)
	}
	switch {
	case errors.Is(err, volume.ErrNoRoom):
		return fmt.Errorf("%w: %w", runtime.ErrNoRoom, err)
	case errors.Is(err, volume.ErrUnavailable):
		if !r.cfg.Unbounded {
			r.cfg.Log.Warn("a volume has no file system of its own: only WASI programs can mount it", "reason", err)
		}
		err = os.MkdirAll(data, 0o755)
	}
	if err == nil {
		err = os.Chmod(data, 0o777) // for the users of all its programs
	}
	if err != nil {
		return fmt.Errorf("making volume: %w", err)
	}
	return nil
}

func newExecution(dir string) *execution {
	e := &execution{dir: dir, turn: make(chan struct{}, 1), over: make(chan struct{})}
	e.turn <- struct{}{}
	return e
}

// Wait implements runtime.Runtime.
func (r *Runtime) Wait(ctx context.Context, h runtime.Handle) (runtime.Exit, error) {
	e, err := r.all.Find(Name, h)
	if err != nil {
		return runtime.Exit{}, err
	}
	select {
	case <-e.over:
		return e.exit, nil
	case <-ctx.Done():
		return runtime.Exit{}, ctx.Err()
	}
}

// Stop removes the directory. The execution ends with code 0; the grace has no meaning.
func (r *Runtime) Stop(ctx context.Context, h runtime.Handle, _ time.Duration) error {
	e, err := r.all.Find(Name, h)
	if err != nil {
		return err
	}
	return r.end(ctx, e)
}

// end waits for the holders of the directory to leave, records the end and removes the directory, once.
func (r *Runtime) end(ctx context.Context, e *execution) error {
	select {
	case <-e.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { e.turn <- struct{}{} }()
	select {
	case <-e.over:
		return nil
	default:
	}
	if err := r.holds.close(ctx, e.dir); err != nil {
		return err
	}
	exit := runtime.Exit{Started: e.exit.Started, Ended: time.Now()}
	if err := write(filepath.Join(e.dir, endedFile), exit); err != nil {
		return err
	}
	if err := Remove(e.dir); err != nil {
		return err
	}
	e.exit = exit
	close(e.over)
	return nil
}

// Remove removes the directory of the volume whose Spec.Dir is dir, in any state. The end of a volume is kept.
func Remove(dir string) error {
	err := volume.Release(dir)
	if err == nil {
		err = remove.All(filepath.Join(dir, dataDir))
	}
	if err == nil {
		err = os.Remove(filepath.Join(dir, imageFile))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing volume: %w", err)
	}
	return nil
}

// Destroy implements runtime.Runtime.
func (r *Runtime) Destroy(ctx context.Context, h runtime.Handle) error {
	e, err := r.all.Find(Name, h)
	switch {
	case err == nil:
		err = r.end(ctx, e)
	case errors.Is(err, runtime.ErrNotFound):
		err = nil // of an earlier process
	}
	if err == nil {
		err = errors.Join(Remove(h.Dir), remove.All(h.Dir))
	}
	if err == nil {
		r.all.Remove(h.Dir)
		r.holds.forget(h.Dir)
	}
	return err
}

// Recover takes a volume of an earlier process over. It returns runtime.ErrNotFound if its directory is gone.
func (r *Runtime) Recover(_ context.Context, h runtime.Handle) error {
	if _, err := r.all.Find(Name, h); !errors.Is(err, runtime.ErrNotFound) {
		return err
	}
	e := newExecution(h.Dir)
	if err := read(filepath.Join(h.Dir, startedFile), &e.exit.Started); err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrNotFound, err)
	}
	switch err := read(filepath.Join(h.Dir, endedFile), &e.exit); {
	case err == nil:
		close(e.over)
		err = Remove(h.Dir)
		if err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		if err := again(h.Dir); err != nil {
			return fmt.Errorf("%w: %w", runtime.ErrNotFound, err)
		}
	}
	return r.all.Add(h.Dir, h.ID, e, func() {})
}

// again makes the directory of a running volume accessible, after a restart of the machine, too.
func again(dir string) error {
	data, image := filepath.Join(dir, dataDir), filepath.Join(dir, imageFile)
	if _, err := os.Stat(image); err == nil {
		return volume.Remount(data, image)
	}
	_, err := os.Stat(data)
	return err
}

// Stats returns nothing: a volume uses no processor.
func (r *Runtime) Stats(_ context.Context, h runtime.Handle) (runtime.Stats, error) {
	_, err := r.all.Find(Name, h)
	return runtime.Stats{}, err
}

// Directory implements runtime.Storer.
func (r *Runtime) Directory(h runtime.Handle) (string, error) {
	e, err := r.all.Find(Name, h)
	if err != nil {
		return "", err
	}
	select {
	case <-e.over:
		return "", runtime.ErrEnded
	default:
	}
	return filepath.Join(h.Dir, dataDir), nil
}

// Hold implements runtime.Storer.
func (r *Runtime) Hold(h runtime.Handle) (gone <-chan struct{}, leave func()) {
	return r.holds.add(h.Dir)
}

// Close leaves the volumes to the next process.
func (r *Runtime) Close() error {
	r.all.Close(func(*execution) {})
	return nil
}

// write replaces a file by the JSON of v, durably.
func write(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// maxFile bounds the files of an execution that are read.
const maxFile = 4 << 10

func read(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(b) > maxFile {
		return fmt.Errorf("%s: %d bytes, at most %d", filepath.Base(path), len(b), maxFile)
	}
	return json.Unmarshal(b, v)
}
