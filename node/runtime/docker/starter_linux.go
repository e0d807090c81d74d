package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/images"
	"github.com/starling-network/starling/node/runtime/docker/link"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
	"github.com/starling-network/starling/node/runtime/docker/sandbox"
	"github.com/starling-network/starling/node/runtime/docker/sidecar"
)

// starter makes the containers of executions and has their guards start the programs.
type starter struct {
	cfg      Config
	guard    string // path of the binary
	engine   *engine.Engine
	sandbox  *sandbox.Maker
	sidecars *sidecar.Maker
	keeper   *keeper
}

// order is the guard's order.
func (b *starter) order(s runtime.Spec, img images.Config) (guard.Order, error) {
	c, err := b.sandbox.Command(s, img)
	if err != nil {
		return guard.Order{}, err
	}
	l := s.Limits.WithDefaults()
	o := guard.Order{Command: c, LogBytes: int64(l.LogMiB) << 20, WallTime: l.WallTime, Grace: b.cfg.Grace,
		DiskBytes: int64(l.DiskMiB) << 20, Secrets: s.Secrets, Token: rand.Text(),
		Identity: b.sandbox.Identity(s, img)}
	if s.Overlay != nil {
		o.Overlay = s.Overlay.Address
	}
	for _, m := range s.Mounts {
		if !m.ReadOnly && m.RoomMiB == 0 {
			o.Writable = append(o.Writable, m.Guest)
		}
	}
	return o, nil
}

// launch makes the container, and the sidecar of an overlay, and starts the program by its guard.
func (b *starter) launch(
	ctx context.Context, e *execution, s runtime.Spec, img images.Config, order guard.Order,
) error {
	mounts, held, err := b.sandbox.Mounts(s)
	if err != nil {
		return err
	}
	e.state.Measured, e.state.Volume, e.state.DiskBytes = held.Measured, held.Volume, held.Bytes
	order.Volume, order.Rooms = held.Size, held.Rooms
	cfg := b.sandbox.Container(s, img)
	host := b.sandbox.Host(s, img, mounts)
	sandbox.LimitIO(host, append(held.Devices, held.Device)...)
	if s.Overlay != nil {
		b.sidecars.Join(s, cfg, host)
		err = b.beginBeside(ctx, e, s, cfg, host)
	} else {
		err = b.begin(ctx, e, s, cfg, host, func() error { return nil })
	}
	if err != nil {
		return err
	}
	return e.run(ctx, order)
}

// begin makes the container, starts it when joinable lets it, and waits for its guard.
func (b *starter) begin(
	ctx context.Context, e *execution, s runtime.Spec, cfg *container.Config, host *container.HostConfig,
	joinable func() error,
) error {
	l, err := link.Listen(filepath.Join(e.dir, rundir.ControlDir))
	if err != nil {
		return err
	}
	defer l.Close()
	made, err := b.engine.Create(ctx, cfg, host, e.container)
	if err != nil {
		return b.createError(err, s)
	}
	e.container = made
	if err := joinable(); err != nil {
		return err
	}
	if err := b.engine.ContainerStart(ctx, e.container, container.StartOptions{}); err != nil {
		return b.createError(err, s)
	}
	conn, pid, err := link.Accept(ctx, l, b.engine, e.container, "", link.ReadyPatience)
	if err != nil {
		return err
	}
	if err := b.sandbox.Confirm(s, pid); err != nil {
		_ = conn.Close()
		return err
	}
	_ = os.Remove(filepath.Join(e.dir, rundir.ControlDir, guard.SocketFile))
	e.line.Connect(conn)
	e.state.Guard = pid
	return nil
}

// createError classifies the engine's error about the start of a container.
func (b *starter) createError(err error, s runtime.Spec) error {
	text := err.Error()
	switch {
	case engine.Disconnected(err):
		return b.engine.Explain(err)
	case strings.Contains(text, "could not select device driver"):
		return fmt.Errorf("%w: the engine cannot provide GPUs: "+
			"install the NVIDIA Container Toolkit and restart it: %w",
			runtime.ErrDevice, err)
	case len(s.GPUs) > 0 && (strings.Contains(text, "nvidia") || strings.Contains(text, "unknown device") ||
		strings.Contains(text, "CDI")):
		return fmt.Errorf("%w: %s: %w", runtime.ErrDevice, strings.Join(s.GPUs, ", "), err)
	case strings.Contains(text, "unable to find user") || strings.Contains(text, "/etc/passwd") ||
		strings.Contains(text, "/etc/group"):
		return &runtime.Failure{Class: runtime.ErrBadImage, Cause: err,
			Advice: "/etc/passwd or /etc/group of the image cannot be read"}
	case strings.Contains(text, "No such image"):
		return &runtime.Failure{Class: runtime.ErrBadImage, Advice: "no longer on this machine: pull the image again",
			Cause: err}
	}
	return err
}

// beginBeside starts the sidecar and the container that joins its network concurrently, as far as the engine allows.
func (b *starter) beginBeside(
	ctx context.Context, e *execution, s runtime.Spec, cfg *container.Config, host *container.HostConfig,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running, done := make(chan struct{}), make(chan struct{})
	var made *sidecar.Sidecar
	var failed error // takes precedence over err: a container that cannot join has the less exact error
	go func() {
		defer close(done)
		if made, failed = b.sidecars.Start(ctx, s, e.state.Token, running); failed != nil {
			cancel()
		}
	}()
	err := b.begin(ctx, e, s, cfg, host, func() error {
		select {
		case <-running:
			if b.sandbox.Runtime == "" {
				return nil
			}
			<-done // a container with its own network stack reads the device when it starts
			return failed
		case <-done:
			return failed
		}
	})
	if err != nil {
		cancel()
	}
	<-done
	if made != nil {
		e.net, e.state.Sidecar = made, made.ID
	}
	if failed != nil && !(err != nil && errors.Is(failed, context.Canceled)) {
		return failed
	}
	return err
}

// run starts the program by the guard and notes the data for a later process.
func (e *execution) run(ctx context.Context, order guard.Order) error {
	memory, err := guard.MemoryFile(order)
	if err != nil {
		return err
	}
	files := []*os.File{memory}
	defer func() { guard.CloseFiles(files) }()
	for _, name := range []string{rundir.LogFile(runtime.Stdout), rundir.LogFile(runtime.Stderr), rundir.ReportFile} {
		f, err := os.OpenFile(filepath.Join(e.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	a, err := e.line.Greet(ctx, guard.Request{Op: guard.OpRun}, files...)
	if err != nil {
		return err
	}
	if a.NoVolume {
		return fmt.Errorf("%w: %s", runtime.ErrNoVolume, a.Error)
	}
	if a.BadUser {
		return &runtime.Failure{Class: runtime.ErrBadImage, Advice: a.Error}
	}
	if a.Error != "" {
		return fmt.Errorf("%w: %s", runtime.ErrNoProgram, a.Error)
	}
	e.state.ID, e.state.Container, e.state.Started, e.state.WallTime = e.id, e.container, a.Started, order.WallTime
	return rundir.WriteState(e.dir, e.state)
}
