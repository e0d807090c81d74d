package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/attached"
	"github.com/starling-network/starling/node/runtime/docker/disk"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
	"github.com/starling-network/starling/node/runtime/docker/gauges"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/images"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
	"github.com/starling-network/starling/node/runtime/docker/sandbox"
	"github.com/starling-network/starling/node/runtime/docker/shelf"
	"github.com/starling-network/starling/node/runtime/docker/sidecar"
)

// Runtime is the docker runtime of one peer process.
type Runtime struct {
	cfg      Config
	engine   *engine.Engine
	images   *images.Images
	shelf    *shelf.Shelf
	sandbox  *sandbox.Maker
	sidecars *sidecar.Maker
	gauges   *gauges.Gauges

	volumes disk.Volumes

	keeper    *keeper
	starter   *starter
	recoverer *recoverer
}

var (
	_ runtime.Runtime  = (*Runtime)(nil)
	_ runtime.Logger   = (*Runtime)(nil)
	_ runtime.Pauser   = (*Runtime)(nil)
	_ runtime.Attacher = (*Runtime)(nil)
	_ runtime.Gauger   = (*Runtime)(nil)
	_ runtime.Dialer   = (*Runtime)(nil)
	_ runtime.Images   = (*Runtime)(nil)
	_ runtime.Loader   = (*Runtime)(nil)
	_ runtime.Prober   = (*Runtime)(nil)
	_ runtime.Sharer   = (*Runtime)(nil)
	_ runtime.Volumer  = (*Runtime)(nil)
	_ runtime.Shelver  = (*Runtime)(nil)

	_ runtime.Networker = (*Runtime)(nil)
)

var peerPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

// New connects to the engine and returns a Runtime without executions. It removes ended containers of this peer.
// Running containers that are not recovered within the grace are ended then. Its errors are ErrEngine and name a
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
	binary, err := guardBinary(cfg.Guard, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	reader, err := fetch.New(cfg.Registries)
	if err != nil {
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	needs := engine.Config{Host: cfg.Host, Runtime: cfg.Runtime, AllowNoSeccomp: cfg.AllowNoSeccomp}
	e, err := engine.Connect(ctx, needs)
	if err != nil {
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	kept := shelf.New(images.OnEngine(e), cfg.FreeMiB, cfg.ImagesPercent, cfg.Logger)
	have := images.New(e, reader, kept, int64(cfg.MaxImageMiB)<<20)
	made := sandbox.New(e, cfg.Peer, binary, cfg.Runtime)
	beside := sidecar.New(e, sidecar.Config{
		Peer: cfg.Peer, Guard: binary, Scratch: cfg.Scratch, Grace: cfg.Grace, Logger: cfg.Logger,
	})
	k := newKeeper(e, cfg)
	r := &Runtime{
		cfg: cfg, engine: e, images: have, shelf: kept, sandbox: made, sidecars: beside, gauges: gauges.New(cfg.GPU),
		keeper:    k,
		starter:   &starter{cfg: cfg, guard: binary, engine: e, sandbox: made, sidecars: beside, keeper: k},
		recoverer: &recoverer{engine: e, sidecars: beside, grace: cfg.Grace, log: cfg.Logger},
	}
	if _, err := k.sweep(ctx); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	if err := r.starter.tryRuntime(ctx); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("docker runtime: %w", err)
	}
	r.volumes = disk.TryVolumes(ctx, e, cfg.Scratch, cfg.Logger)
	r.sandbox.TryUsers(cfg.Logger)
	r.starter.tryLayers(ctx, r.volumes)
	k.begin()
	return r, nil
}

// Name is "docker".
func (r *Runtime) Name() string { return Name }

// Close gives up all executions without ending them, as the end of the process would. Each runs on for the grace, in
// which another Runtime may recover it. Calls that wait for an execution return ErrClosed.
func (r *Runtime) Close() error {
	r.keeper.close()
	return r.engine.Close()
}

// Wait returns the execution's end.
func (r *Runtime) Wait(ctx context.Context, h runtime.Handle) (runtime.Exit, error) {
	e, err := r.keeper.find(h)
	if err != nil {
		return runtime.Exit{}, err
	}
	return e.wait(ctx)
}

// Stop makes runtime.StopFile appear, sends SIGTERM when half the grace or a second has passed, and kills at its end.
func (r *Runtime) Stop(ctx context.Context, h runtime.Handle, grace time.Duration) error {
	e, err := r.keeper.find(h)
	if err != nil || e.ended() {
		return err
	}
	if err := e.resume(ctx); err != nil && !errors.Is(err, runtime.ErrEnded) {
		return err
	}
	if grace > 0 {
		if err := os.WriteFile(filepath.Join(e.dir, rundir.ControlDir, guard.StopFile), nil, 0o644); err != nil {
			r.cfg.Logger.Warn("cannot send a program the stop signal", "id", e.id, "error", err)
		}
		first := min(grace/2, time.Second)
		if e.within(ctx, first) {
			return nil
		}
		e.line.Send(guard.Request{Op: guard.OpTerm})
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
	e, err := r.keeper.find(h)
	if err != nil {
		return err
	}
	if err := e.kill(ctx); err != nil {
		return err
	}
	for _, c := range e.containers() {
		if err := r.engine.Remove(ctx, c); err != nil {
			return fmt.Errorf("removing container: %w", err)
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("removing execution directory: %w", err)
	}
	r.keeper.mine.Remove(h.Dir)
	e.disown()
	return nil
}

// Logs follows a log file.
func (r *Runtime) Logs(ctx context.Context, h runtime.Handle, s runtime.Stream, offset int64) (io.ReadCloser, error) {
	e, err := r.keeper.find(h)
	if err != nil {
		return nil, err
	}
	return runtime.FollowLog(ctx, filepath.Join(e.dir, rundir.LogFile(s)), s, offset, e.over, e.gone)
}

// Stats requests the usage from the guard while the program runs. After the end, and while the program is paused, it
// returns the last known usage.
func (r *Runtime) Stats(ctx context.Context, h runtime.Handle) (runtime.Stats, error) {
	e, err := r.keeper.find(h)
	if err != nil {
		return runtime.Stats{}, err
	}
	return e.stats(ctx)
}

// Probe reports an error if the engine does not answer.
func (r *Runtime) Probe(ctx context.Context) error {
	_, err := r.engine.Ping(ctx)
	return r.engine.Explain(err)
}

// HasImage reports whether the image is on this machine and can run.
func (r *Runtime) HasImage(ctx context.Context, ref string) bool { return r.images.Has(ctx, ref) }

// Pull downloads the image from its registry and gives it to the engine, which downloads nothing itself. Bytes are
// compressed ones.
func (r *Runtime) Pull(
	ctx context.Context, ref string, auth *runtime.RegistryAuth, progress func(done, total int64),
) error {
	return r.images.Pull(ctx, ref, auth, progress)
}

// PullVia is Pull without credentials, with the layers through via.
func (r *Runtime) PullVia(
	ctx context.Context, ref string, via runtime.Via, progress func(done, total int64),
) error {
	return r.images.PullVia(ctx, ref, via, progress)
}

// Load gives a pushed image to the engine, of its parts.
func (r *Runtime) Load(
	ctx context.Context, ref string, parts runtime.Parts, progress func(done, total int64),
) error {
	return r.images.Load(ctx, ref, parts, progress)
}

// Shelved lists the images that were brought for executions. Peers that share the engine share them.
func (r *Runtime) Shelved(ctx context.Context) ([]runtime.ShelvedImage, error) {
	all, err := r.shelf.Shelved(ctx)
	return all, r.engine.Explain(err)
}

// Unshelve removes an image that nothing uses.
func (r *Runtime) Unshelve(ctx context.Context, id string) error {
	return r.engine.Explain(r.shelf.Unshelve(ctx, id))
}

// MakeVolume makes dir a volume for the writable mounts of one execution. It returns runtime.ErrNoVolume if this
// machine has none: mounts given to Start are then measured.
func (r *Runtime) MakeVolume(ctx context.Context, dir string, bytes int64) error {
	return r.volumes.Make(ctx, dir, bytes)
}

// KeepsLayers reports whether images of specs with a layer run as they are.
func (r *Runtime) KeepsLayers() bool { return r.sandbox.Layers }

// Dial has the guard connect one end of a pair of sockets; the other is the connection.
func (r *Runtime) Dial(ctx context.Context, h runtime.Handle, port uint16) (net.Conn, error) {
	e, err := r.keeper.find(h)
	if err != nil {
		return nil, err
	}
	return attached.Dial(ctx, e.line, port)
}

// Attach starts the program by the guard, with the execution's limits, environment and secrets.
func (r *Runtime) Attach(ctx context.Context, h runtime.Handle, p runtime.Process) (int, error) {
	e, err := r.keeper.find(h)
	if err != nil {
		return 0, err
	}
	return attached.Run(ctx, e.line, p, false)
}

// Gauge returns a gauge of the execution's processors, or of its GPUs if it has any.
func (r *Runtime) Gauge(ctx context.Context, h runtime.Handle) (runtime.Gauge, error) {
	e, err := r.keeper.find(h)
	if err != nil {
		return nil, err
	}
	x := gauges.Execution{Line: e.line, Over: e.over, GPUs: e.state.GPUs, UUIDs: e.state.UUIDs}
	return r.gauges.Gauge(ctx, x)
}
