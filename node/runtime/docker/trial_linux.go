package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

// trialAgain is how long it is believed that this machine cannot give overlays.
const trialAgain = time.Minute

// trial is the knowledge whether this machine can give overlays.
type trial struct {
	mu     sync.Mutex
	passed bool
	failed error // ErrNoOverlay
	at     time.Time
}

// CanOverlay makes a sidecar and removes it, once: hardly anything else shows whether an engine, and a machine's other
// protections, allow one.
func (r *Runtime) CanOverlay(ctx context.Context) error {
	t := &r.trial
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.passed {
		return r.hasOverlay()
	}
	if t.failed != nil && time.Since(t.at) < trialAgain {
		return t.failed
	}
	err := r.hasOverlay()
	if err == nil {
		err = r.tryOverlay(ctx)
	}
	switch {
	case err == nil:
		t.passed = true
	case ctx.Err() != nil || errors.Is(err, runtime.ErrEngine): // says nothing about overlays
		return err
	default:
		if !errors.Is(err, runtime.ErrNoOverlay) {
			err = fmt.Errorf("%w: %w", runtime.ErrNoOverlay, err)
		}
		t.failed, t.at = err, time.Now()
	}
	return err
}

// hasOverlay returns an error that names the visibly missing part for an overlay, or nil.
func (r *Runtime) hasOverlay() error {
	info, err := os.Stat(tunDevice)
	if err != nil {
		return fmt.Errorf("%w: this machine has no %s: modprobe tun", runtime.ErrNoOverlay, tunDevice)
	}
	if r.engine.mapped && info.Mode()&0o006 != 0o006 {
		return fmt.Errorf("%w: the engine maps users, and %s is not everybody's: chmod 0666 %s", runtime.ErrNoOverlay, tunDevice, tunDevice)
	}
	if info, err := os.Stat(r.guard); err != nil || info.Mode()&0o005 != 0o005 {
		return fmt.Errorf("%w: %s cannot be run by everybody, as it must in its container: chmod o+rx %s", runtime.ErrNoOverlay, r.guard, r.guard)
	}
	return nil
}

// tryOverlay makes a sidecar that nobody joins. The next New finds the remains after a kill as any other.
func (r *Runtime) tryOverlay(ctx context.Context) error {
	dir, err := os.MkdirTemp(r.cfg.Scratch, "trial-")
	if err != nil {
		return fmt.Errorf("trying an overlay: %w", err)
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("trying an overlay: %w", err)
	}
	s := runtime.Spec{ID: "trial", Dir: dir, Overlay: &runtime.Overlay{Address: netip.AddrFrom4([4]byte{10, 77, 0, 2}), PrefixBits: 16, MTU: runtime.MinMTU, Hostname: "trial"}}
	// owned containers are not swept away
	owner, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("trying an overlay: %w", err)
	}
	defer owner.Close()
	if err := errors.Join(lock(owner), os.Mkdir(filepath.Join(dir, netDir), 0o755), os.Chmod(filepath.Join(dir, netDir), 0o755)); err != nil {
		return fmt.Errorf("trying an overlay: %w", err)
	}
	made, err := r.startSidecar(ctx, s, rand.Text(), make(chan struct{}))
	if err == nil {
		made.end()
		_ = made.conn.Close()
	}
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	if left := r.remove(patient, sidecarName(dir)); left != nil {
		r.cfg.Logger.Warn("the container of a trial is left for the next start of this peer to remove", "error", left)
	}
	if err != nil {
		return fmt.Errorf("trying an overlay: %w", err)
	}
	return nil
}

// tryRuntime starts a guard under the OCI runtime of Config, if that names one, and takes it away again: not every runtime lets a
// container come to a socket of this machine.
func (r *Runtime) tryRuntime(ctx context.Context) error {
	if r.cfg.Runtime == "" {
		return nil
	}
	dir, err := os.MkdirTemp(r.cfg.Scratch, "trial-")
	if err != nil {
		return fmt.Errorf("trying the OCI runtime %s: %w", r.cfg.Runtime, err)
	}
	defer os.RemoveAll(dir)
	s := runtime.Spec{ID: "trial"}
	if s.Dir, err = filepath.Abs(filepath.Join(dir, "run")); err != nil {
		return fmt.Errorf("trying the OCI runtime %s: %w", r.cfg.Runtime, err)
	}
	image, err := r.empty.get(ctx, r.engine, false)
	if err != nil {
		return err
	}
	owner, err := prepareDir(s)
	if err != nil {
		return fmt.Errorf("trying the OCI runtime %s: %w", r.cfg.Runtime, err)
	}
	e := r.newExecution(s.ID, s.Dir, owner)
	defer e.disown()
	img := imageConfig{id: image}
	err = r.begin(ctx, e, s, r.containerConfig(s, img), r.hostConfig(s, img, nil), func() error { return nil })
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	if left := r.remove(patient, e.container); left != nil {
		r.cfg.Logger.Warn("the container of a trial is left for the next start of this peer to remove", "error", left)
	}
	if err != nil {
		return fmt.Errorf("%w: containers under the OCI runtime %s cannot be used: %w: gVisor needs --host-uds=open among the runtimeArgs in "+
			"the engine's daemon.json; containers that are virtual machines do not come to a socket of this machine", runtime.ErrEngine, r.cfg.Runtime, err)
	}
	return nil
}
