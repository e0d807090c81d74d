package sidecar

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
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
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
func (m *Maker) CanOverlay(ctx context.Context) error {
	t := &m.trial
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.passed {
		return m.hasOverlay()
	}
	if t.failed != nil && time.Since(t.at) < trialAgain {
		return t.failed
	}
	err := m.hasOverlay()
	if err == nil {
		err = m.tryOverlay(ctx)
	}
	switch {
	case err == nil:
		t.passed = true
	case ctx.Err() != nil || errors.Is(err, runtime.ErrEngine): // no result about overlays
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
func (m *Maker) hasOverlay() error {
	info, err := os.Stat(TunDevice)
	if err != nil {
		return fmt.Errorf("%w: this machine has no %s: modprobe tun", runtime.ErrNoOverlay, TunDevice)
	}
	if m.engine.Mapped && info.Mode()&0o006 != 0o006 {
		return fmt.Errorf("%w: %s: not accessible to the engine's mapped users: chmod 0666 %s",
			runtime.ErrNoOverlay, TunDevice, TunDevice)
	}
	if info, err := os.Stat(m.cfg.Guard); err != nil || info.Mode()&0o005 != 0o005 {
		return fmt.Errorf("%w: %s: not executable for all users: chmod o+rx %s",
			runtime.ErrNoOverlay, m.cfg.Guard, m.cfg.Guard)
	}
	return nil
}

// tryOverlay starts a sidecar that no container joins. After a kill, the next New removes the remains.
func (m *Maker) tryOverlay(ctx context.Context) error {
	dir, err := os.MkdirTemp(m.cfg.Scratch, "trial-")
	if err != nil {
		return fmt.Errorf("trying an overlay: %w", err)
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("trying an overlay: %w", err)
	}
	s := runtime.Spec{ID: "trial", Dir: dir, Overlay: &runtime.Overlay{
		Address: netip.AddrFrom4([4]byte{10, 77, 0, 2}), PrefixBits: 16, MTU: runtime.MinMTU, Hostname: "trial",
	}}
	// owned containers are not swept away
	owner, err := os.OpenFile(filepath.Join(dir, rundir.OwnerFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("trying an overlay: %w", err)
	}
	defer owner.Close()
	place := filepath.Join(dir, rundir.NetDir)
	if err := errors.Join(rundir.Lock(owner), os.Mkdir(place, 0o755), os.Chmod(place, 0o755)); err != nil {
		return fmt.Errorf("trying an overlay: %w", err)
	}
	made, err := m.Start(ctx, s, rand.Text(), make(chan struct{}))
	if err == nil {
		made.End()
		_ = made.Close()
	}
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.EndPatience)
	defer cancel()
	if left := m.engine.Remove(patient, engine.SidecarName(dir)); left != nil {
		m.cfg.Logger.Warn("cannot remove the container of a trial; the next start of this peer will", "error", left)
	}
	if err != nil {
		return fmt.Errorf("trying an overlay: %w", err)
	}
	return nil
}
