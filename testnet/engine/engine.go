//go:build linux

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/testnet/natlab"
)

// startTime bounds the start of an engine.
const startTime = time.Minute

// programs are the programs of an engine, with their Debian packages.
var programs = []string{"dockerd", "containerd", "runc", "iptables", "ip"}

const packages = "docker.io runc iptables iproute2"

// ErrUnavailable means that no engine can be started on this machine; its text has the reason.
var ErrUnavailable = errors.New("no container engine can be started here")

// Available returns an error if no engine can run on this machine.
func Available() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it needs root", ErrUnavailable)
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: %s is not installed (Debian: %s)", ErrUnavailable, program, packages)
		}
	}
	return nil
}

// Options of an engine.
type Options struct {
	Args []string // additional arguments of dockerd
	Env  []string // additional environment variables
}

// Engine is a dockerd. It ends with this process; its directory remains, and its containers with --live-restore.
type Engine struct {
	Dir string
	Net *natlab.Namespace // namespace of the engine and its registry

	opts   Options
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts an engine in a new directory and returns when it answers. The caller must Close it. The error is
// ErrUnavailable if this machine cannot run one.
func Start(ctx context.Context, o Options) (*Engine, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "starling-engine-")
	if err != nil {
		return nil, err
	}
	e := &Engine{Dir: dir, opts: o}
	if err = os.Chmod(dir, 0o711); err == nil { // needed by an engine that maps users
		e.Net, err = natlab.NewNamespace()
	}
	if err == nil {
		err = e.run(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Host is the engine's address in the form of DOCKER_HOST.
func (e *Engine) Host() string { return "unix://" + e.socket() }

func (e *Engine) socket() string { return filepath.Join(e.Dir, "sock") }

// run starts the daemon and waits until it answers. The kernel ends the daemon with the thread that started it, so run
// keeps that thread.
func (e *Engine) run(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(e.Dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("dockerd", append([]string{"--data-root", e.Dir + "/data", "--exec-root", e.Dir + "/exec",
		"--pidfile", e.Dir + "/pid", "-H", e.Host()}, e.opts.Args...)...)
	cmd.Env = append(os.Environ(), e.opts.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is in another namespace
		err := e.Net.Enter()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting the container engine: %w", err)
	}
	e.cmd, e.exited = cmd, exited
	if err := e.answers(ctx); err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("the container engine did not start: %w\n%s", err, said[max(0, len(said)-2000):])
	}
	return nil
}

// Call calls the engine's API, with a JSON body if body is not nil, and decodes the answer into to, if not nil. The
// engine's error message is in the error.
func (e *Engine) Call(ctx context.Context, method, path string, body, to any) error {
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.socket())
		}}
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, &content)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return fmt.Errorf("the engine answers %s: %s", res.Status, bytes.TrimSpace(said))
	}
	if to == nil {
		_, err = io.Copy(io.Discard, res.Body) // a pull ends with its response
		return err
	}
	return json.NewDecoder(res.Body).Decode(to)
}

// Container is a container as the engine reports it.
type Container struct {
	ID      string
	State   string // running, paused, exited, …
	Status  string // human-readable
	Command string
	Names   []string
}

// Sidecar reports whether the container only holds a network. A starting peer creates and removes a sidecar without a
// job, to test whether it can.
func (c Container) Sidecar() bool {
	return slices.ContainsFunc(c.Names, func(name string) bool { return strings.HasSuffix(name, "-net") })
}

// Containers lists all containers.
func (e *Engine) Containers(ctx context.Context) (all []Container, err error) {
	if err = e.Call(ctx, http.MethodGet, "/containers/json?all=1", nil, &all); err != nil {
		err = fmt.Errorf("listing containers: %w", err)
	}
	return all, err
}

// answers waits until the engine answers.
func (e *Engine) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		err := e.Call(ctx, http.MethodGet, "/_ping", nil, nil)
		if err == nil {
			return nil
		}
		select {
		case <-e.exited:
			return fmt.Errorf("the engine ended: %s", e.cmd.ProcessState)
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Running reports whether the daemon runs.
func (e *Engine) Running() bool {
	if e.cmd == nil {
		return false
	}
	select {
	case <-e.exited:
		return false
	default:
		return true
	}
}

// Signal sends the daemon a terminating signal and waits for its end.
func (e *Engine) Signal(sig syscall.Signal) {
	_ = e.cmd.Process.Signal(sig)
	<-e.exited
}

// Restart starts an ended daemon again, on its old state.
func (e *Engine) Restart(ctx context.Context) error {
	// A containerd ends with its daemon. If no process reaps it, the new daemon takes it for alive.
	for _, f := range []string{"pid", "exec/containerd/containerd.pid"} {
		_ = os.Remove(filepath.Join(e.Dir, f))
	}
	return e.run(ctx)
}

// Close ends the daemon and removes all its files.
func (e *Engine) Close() error {
	if e.Running() {
		e.Signal(syscall.SIGTERM)
	}
	e.killRest()
	mounts, err := os.ReadFile("/proc/self/mounts")
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if f := strings.Fields(lines[i]); len(f) > 1 && strings.HasPrefix(f[1], e.Dir+"/") {
			err = errors.Join(err, syscall.Unmount(f[1], syscall.MNT_DETACH))
		}
	}
	if e.Net != nil {
		err = errors.Join(err, e.Net.Close())
	}
	return errors.Join(err, os.RemoveAll(e.Dir))
}

// killRest ends the remaining processes of a killed daemon: its containerd, the shims and sandboxes of gVisor. It
// recognizes them by this directory in their command lines.
func (e *Engine) killRest() {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		line, _ := os.ReadFile(p + "/cmdline")
		program, args, _ := strings.Cut(string(line), "\x00")
		base := filepath.Base(program)
		if (strings.HasPrefix(base, "containerd") || strings.HasPrefix(base, "runsc")) &&
			strings.Contains(args, e.Dir+"/exec") {
			if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}
