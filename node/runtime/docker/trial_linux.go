package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/disk"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/images"
	"github.com/starling-network/starling/node/runtime/docker/ociruntime"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
)

// trialDiskMiB is the size of the volume of a trial.
const trialDiskMiB = 1

// tryRuntime starts a guard under Config.Runtime, if set, and removes it: some runtimes do not let a container connect
// to a socket of this machine.
func (b *starter) tryRuntime(ctx context.Context) error {
	if b.cfg.Runtime == "" {
		return nil
	}
	dir, err := trialDir(b.cfg.Scratch)
	if err != nil {
		return fmt.Errorf("trying the OCI runtime %s: %w", b.cfg.Runtime, err)
	}
	defer os.RemoveAll(dir)
	if err := b.try(ctx, runtime.Spec{ID: "trial", Dir: filepath.Join(dir, "run")}); err != nil {
		return fmt.Errorf("%w: containers under the OCI runtime %s cannot be used: %w: "+
			"gVisor needs --host-uds=open among the runtimeArgs in the engine's daemon.json; "+
			"containers that are virtual machines cannot connect to a socket of this machine",
			runtime.ErrEngine, b.cfg.Runtime, err)
	}
	return nil
}

// tryLayers finds out whether containers can have layers, by starting a guard in one and taking it away again. Where
// they cannot, images have a read-only root and a user that is not theirs, and the log names the remedy.
func (b *starter) tryLayers(ctx context.Context, volumes disk.Volumes) {
	entry := daemonEntry(b.guard)
	log := b.cfg.Logger.With("effect", "images run without their USER and with a read-only root")
	switch {
	case b.cfg.Runtime != "":
		log.Info("containers have no layers", "reason", "the configuration names an OCI runtime")
	case b.engine.Mapped:
		log.Info("containers have no layers", "reason", "the engine already maps users")
	case volumes.None() != nil:
		log.Info("containers have no layers", "reason", volumes.None())
	case !b.sandbox.RuntimeKnown():
		log.Info("containers have no layers", "reason", "the engine does not know the OCI runtime starling",
			"remedy", "add "+entry+" to the engine's daemon.json, systemctl reload docker, restart this peer")
	default:
		b.sandbox.Layers = true
		if err := b.tryLayer(ctx, volumes); err != nil {
			b.sandbox.Layers = false
			log.Warn("containers have no layers", "reason", err,
				"remedy", "the entry in the engine's daemon.json is to be "+entry+
					", with runc 1.1 or newer, Linux 5.19 or newer and the storage driver overlay2")
		}
	}
}

// daemonEntry returns the entry in the engine's daemon.json that makes layers possible, for a guard in a binary. The
// whole peer's binary is no OCI runtime: the entry then names the place where starling-guard would lie.
func daemonEntry(binary string) string {
	if self, err := ownBinary(); err == nil && self == binary {
		binary = beside(self)
	}
	return fmt.Sprintf(`{"runtimes": {%q: {"path": %q, "runtimeArgs": [%q]}}}`,
		ociruntime.Name, binary, ociruntime.Subcommand)
}

func (b *starter) tryLayer(ctx context.Context, volumes disk.Volumes) (err error) {
	dir, err := trialDir(b.cfg.Scratch)
	if err != nil {
		return fmt.Errorf("trying a layer: %w", err)
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "disk")
	defer func() { err = errors.Join(err, volumes.Release(at)) }()
	if err := volumes.Make(ctx, at, trialDiskMiB<<20); err != nil {
		return fmt.Errorf("trying a layer: %w", err)
	}
	s := runtime.Spec{ID: "trial", Dir: filepath.Join(dir, "run"), Layer: filepath.Join(at, "layer")}
	s.Limits.DiskMiB = trialDiskMiB
	if err := b.try(ctx, s); err != nil {
		return fmt.Errorf("trying a layer: %w", err)
	}
	return nil
}

func trialDir(scratch string) (string, error) {
	dir, err := os.MkdirTemp(scratch, "trial-")
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

// try starts a guard in a container of the image that has no file, and takes it away again.
func (b *starter) try(ctx context.Context, s runtime.Spec) error {
	image, err := b.sidecars.Empty(ctx, false)
	if err != nil {
		return err
	}
	owner, err := rundir.Prepare(s)
	if err != nil {
		return err
	}
	e := b.keeper.newExecution(s.ID, s.Dir, owner)
	defer e.disown()
	img := images.Config{ID: image}
	mounts, _, err := b.sandbox.Mounts(s)
	if err != nil {
		return err
	}
	host := b.sandbox.Host(s, img, mounts)
	err = b.begin(ctx, e, s, b.sandbox.Container(s, img), host, func() error { return nil })
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.EndPatience)
	defer cancel()
	if left := b.engine.Remove(patient, e.container); left != nil {
		b.cfg.Logger.Warn("cannot remove the container of a trial; the next start of this peer will",
			"error", left)
	}
	return err
}
