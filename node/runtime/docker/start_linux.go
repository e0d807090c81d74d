package docker

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

const (
	// readyPatience bounds the time from a started container to its guard's first word, and of the program's start.
	readyPatience = 30 * time.Second
	// acceptSlice is how often a container is looked at that should have a guard and does not connect.
	acceptSlice = 250 * time.Millisecond
	// tokenPatience bounds the time from a guard's connection to its token. A program that keeps connecting keeps its own guard away.
	tokenPatience = time.Second
)

// Start creates the directory and the container and returns when the program runs.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Handle, error) {
	h := runtime.Handle{Runtime: Name, ID: s.ID, Dir: s.Dir}
	if err := s.Check(); err != nil {
		return h, err
	}
	if s.Image == "" {
		return h, &runtime.SpecError{Field: "Image", Reason: "is missing: this runtime runs container images"}
	}
	img, err := r.imageConfig(ctx, s.Image)
	if err != nil {
		return h, err
	}
	r.images.use(ctx, img)
	order, err := r.order(s, img)
	if err != nil {
		return h, err
	}
	if err := r.mine.Open(); err != nil {
		return h, err
	}
	owner, err := prepareDir(s)
	if err != nil {
		return h, err
	}
	e := r.newExecution(s.ID, s.Dir, owner)
	e.state.GPUs, e.state.UUIDs, e.state.Token = len(s.GPUs), s.GPUs, order.Token
	if err = r.launch(ctx, e, s, img, order); err == nil {
		err = r.add(e)
	}
	if err != nil {
		e.disown()
		patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer cancel()
		left := []string{e.container}
		if s.Overlay != nil {
			left = append(left, sidecarName(s.Dir))
		}
		for _, c := range left {
			if removal := r.end(patient, c); removal != nil {
				r.cfg.Logger.Warn("container of a failed start is left for the next start of this peer to remove", "container", c, "error", removal)
			}
		}
		_ = os.RemoveAll(s.Dir)
		return h, fmt.Errorf("starting %s: %w", s.ID, err)
	}
	return h, nil
}

func (r *Runtime) newExecution(id, dir string, owner *os.File) *execution {
	e := newExecution(id, dir, owner, r.engine, r.cfg.Logger)
	e.tidy = func() {
		_ = r.mine.While(func() {
			for _, c := range e.containers() {
				r.tasks.Go(func() { r.tidyUp(c) })
			}
		})
	}
	return e
}

// tidyUp removes a container, again and again if the engine is away, as when it was stopped and took the container with
// it. If it still exists when this runtime closes, Destroy or the next New removes it.
func (r *Runtime) tidyUp(container string) {
	for wait := tidyFirst; r.remove(r.ctx, container) != nil; wait = min(2*wait, tidyMost) {
		select {
		case <-time.After(wait):
		case <-r.ctx.Done():
			return
		}
	}
}

// order is the guard's order.
func (r *Runtime) order(s runtime.Spec, img imageConfig) (guard.Order, error) {
	c, err := command(s, img)
	if err != nil {
		return guard.Order{}, err
	}
	l := s.Limits.WithDefaults()
	o := guard.Order{Command: c, LogBytes: int64(l.LogMiB) << 20, WallTime: l.WallTime, Grace: r.cfg.Grace,
		DiskBytes: int64(l.DiskMiB) << 20, Secrets: s.Secrets, Token: rand.Text()}
	if s.Overlay != nil {
		o.Overlay = s.Overlay.Address
	}
	for _, m := range s.Mounts {
		if !m.ReadOnly {
			o.Writable = append(o.Writable, m.Guest)
		}
	}
	return o, nil
}

// prepareDir makes the directory and takes its owner lock. The lock file's creation decides between two starts in one.
func prepareDir(s runtime.Spec) (*os.File, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating execution directory: %w", err)
	}
	owner, err := os.OpenFile(filepath.Join(s.Dir, ownerFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w in %s", runtime.ErrExists, s.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("creating lock: %w", err)
	}
	entries, err := os.ReadDir(s.Dir)
	if err == nil && len(entries) != 1 {
		_ = os.Remove(owner.Name())
		_ = owner.Close()
		return nil, fmt.Errorf("%w: %s is not empty", runtime.ErrExists, s.Dir)
	}
	control := filepath.Join(s.Dir, controlDir)
	err = errors.Join(err, lock(owner), os.Chmod(s.Dir, 0o700), os.Mkdir(control, 0o755), os.Chmod(control, 0o755),
		// mount point of the guard's binary
		os.WriteFile(filepath.Join(control, filepath.Base(guard.Path)), nil, 0o644))
	if err == nil && s.Overlay != nil {
		err = prepareOverlay(s)
	}
	if err != nil {
		_ = os.RemoveAll(s.Dir)
		_ = owner.Close()
		return nil, fmt.Errorf("preparing execution directory: %w", err)
	}
	return owner, nil
}

// lock takes a lock that dies with this process, or fails.
func lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return nil
}

// launch makes the container, beside it the sidecar where there is an overlay, and has its guard start the program.
func (r *Runtime) launch(ctx context.Context, e *execution, s runtime.Spec, img imageConfig, order guard.Order) error {
	mounts, disk, err := r.hostMounts(s)
	if err != nil {
		return err
	}
	e.state.Measured, e.state.Volume, e.state.DiskBytes = disk.measured, disk.volume, disk.bytes
	order.Volume = disk.size
	cfg := r.containerConfig(s, img)
	host := r.hostConfig(s, img, mounts)
	limitIO(host, disk.device)
	if s.Overlay != nil {
		r.joinSidecar(s, cfg, host)
		err = r.beginBeside(ctx, e, s, cfg, host)
	} else {
		err = r.begin(ctx, e, s, cfg, host, func() error { return nil })
	}
	if err != nil {
		return err
	}
	return e.run(ctx, order)
}

// begin makes the container, starts it when joinable lets it, and waits for its guard.
func (r *Runtime) begin(ctx context.Context, e *execution, s runtime.Spec, cfg *container.Config, host *container.HostConfig, joinable func() error) error {
	l, err := listen(filepath.Join(e.dir, controlDir))
	if err != nil {
		return err
	}
	defer l.Close()
	made, err := r.engine.create(ctx, cfg, host, e.container)
	if err != nil {
		return r.createError(err, s)
	}
	e.container = made
	if err := joinable(); err != nil {
		return err
	}
	if err := r.engine.ContainerStart(ctx, e.container, container.StartOptions{}); err != nil {
		return r.createError(err, s)
	}
	conn, pid, err := r.accept(ctx, l, e.container, "", readyPatience)
	if err != nil {
		return err
	}
	_ = os.Remove(filepath.Join(e.dir, controlDir, guard.SocketFile))
	e.conn, e.state.Guard = conn, pid
	return nil
}

// createError classifies the engine's error about the start of a container.
func (r *Runtime) createError(err error, s runtime.Spec) error {
	text := err.Error()
	switch {
	case disconnected(err):
		return r.engine.explain(err)
	case strings.Contains(text, "could not select device driver"):
		return fmt.Errorf("%w: the engine cannot hand out GPUs: install the NVIDIA Container Toolkit and restart it: %w", runtime.ErrDevice, err)
	case len(s.GPUs) > 0 && (strings.Contains(text, "nvidia") || strings.Contains(text, "unknown device") || strings.Contains(text, "CDI")):
		return fmt.Errorf("%w: %s: %w", runtime.ErrDevice, strings.Join(s.GPUs, ", "), err)
	case strings.Contains(text, "No such image"):
		return &runtime.Failure{Class: runtime.ErrBadImage, Advice: "it is not on this machine any more: pull it again", Cause: err}
	}
	return err
}

// listen makes the socket in a control directory that the guard connects to. The path of a socket may have 108 bytes only, which a data
// directory can exceed: it is named through a descriptor of its directory.
func listen(control string) (*net.UnixListener, error) {
	d, err := os.Open(control)
	if err != nil {
		return nil, fmt.Errorf("opening control directory: %w", err)
	}
	defer d.Close()
	path := filepath.Join(control, guard.SocketFile)
	_ = os.Remove(path) // of an earlier process
	short := fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), guard.SocketFile)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: short})
	if err != nil {
		return nil, fmt.Errorf("listening for the guard: %w", err)
	}
	l.SetUnlinkOnClose(false) // that name is gone by then
	// The program's user may be another one; the directory above lets nobody else come here.
	if err := os.Chmod(path, 0o666); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("opening socket to the guard: %w", err)
	}
	return l, nil
}

// accept waits for the guard of a container: a connection with the token. An empty token, at a start, when no program
// runs yet, accepts any connection. pid is a process of the container: the guard, or the process that makes connections
// for it in a sandbox with a kernel of its own.
func (r *Runtime) accept(ctx context.Context, l *net.UnixListener, container, token string, patience time.Duration) (conn *guard.Conn, pid int, err error) {
	deadline := time.Now().Add(patience)
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for ctx.Err() == nil {
		if time.Now().After(deadline) { // also where a program keeps connecting in its guard's stead
			return nil, 0, fmt.Errorf("the guard did not connect within %v", patience)
		}
		_ = l.SetDeadline(time.Now().Add(acceptSlice))
		if ctx.Err() != nil {
			break
		}
		c, err := l.AcceptUnix()
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return nil, 0, fmt.Errorf("waiting for the guard: %w", err)
			}
			if err := r.lives(ctx, container); err != nil {
				return nil, 0, err
			}
			continue
		}
		conn := guard.NewConn(c)
		pid, err := conn.Pid()
		if err == nil && pid > 0 && (token == "" || shows(conn, token)) {
			return conn, pid, nil
		}
		_ = conn.Close()
		if token == "" {
			return nil, 0, fmt.Errorf("%w: its containers are not processes of this machine", runtime.ErrEngine)
		}
	}
	return nil, 0, ctx.Err()
}

// shows reports whether the first message on a connection is the token.
func shows(conn *guard.Conn, token string) bool {
	_ = conn.SetDeadline(time.Now().Add(tokenPatience))
	b, files, err := conn.Receive()
	guard.CloseFiles(files)
	if err != nil || conn.SetDeadline(time.Time{}) != nil {
		return false
	}
	a, err := guard.DecodeAnswer(b)
	return err == nil && subtle.ConstantTimeCompare([]byte(a.Token), []byte(token)) == 1
}

// errNotRunning says that a container ended before its guard said anything.
var errNotRunning = errors.New("its container has ended")

// lives asks the engine whether the container runs. When the engine does not answer, nothing is known.
func (r *Runtime) lives(ctx context.Context, container string) error {
	info, err := r.engine.ContainerInspect(ctx, container)
	switch {
	case absent(err):
		return errNotRunning
	case err != nil:
		return r.engine.explain(err)
	case info.State == nil:
		return errNotRunning
	case !info.State.Running:
		return fmt.Errorf("%w with code %d: %s", errNotRunning, info.State.ExitCode, info.State.Error)
	}
	return nil
}

// run starts the program by the guard and notes the data for a later process.
func (e *execution) run(ctx context.Context, order guard.Order) error {
	memory, err := guard.MemoryFile(order)
	if err != nil {
		return err
	}
	files := []*os.File{memory}
	defer func() { guard.CloseFiles(files) }()
	for _, name := range []string{logFile(runtime.Stdout), logFile(runtime.Stderr), reportFile} {
		f, err := os.OpenFile(filepath.Join(e.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	a, err := greet(ctx, e.conn, guard.Request{Op: guard.OpRun}, files...)
	if err != nil {
		return err
	}
	if a.NoVolume {
		return fmt.Errorf("%w: %s", runtime.ErrNoVolume, a.Error)
	}
	if a.Error != "" {
		return fmt.Errorf("%w: %s", runtime.ErrNoProgram, a.Error)
	}
	e.state.ID, e.state.Container, e.state.Started, e.state.WallTime = e.id, e.container, a.Started, order.WallTime
	return writeFile(e.dir, stateFile, e.state)
}

// greet says the first words to a guard and hears its first.
func greet(ctx context.Context, conn *guard.Conn, req any, files ...*os.File) (guard.Answer, error) {
	_ = conn.SetDeadline(time.Now().Add(readyPatience))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := conn.Send(req, files...)
	var b []byte
	if err == nil {
		var unasked []*os.File
		b, unasked, err = conn.Receive()
		guard.CloseFiles(unasked)
	}
	if ctx.Err() != nil {
		return guard.Answer{}, ctx.Err()
	}
	if err != nil {
		return guard.Answer{}, fmt.Errorf("talking to the guard: %w", err)
	}
	if !stop() {
		return guard.Answer{}, ctx.Err()
	}
	_ = conn.SetDeadline(time.Time{})
	return guard.DecodeAnswer(b)
}
