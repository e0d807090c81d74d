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

// startTime bounds how long an engine may take until it answers.
const startTime = time.Minute

// programs are the programs of an engine, with their Debian packages.
var programs = []string{"dockerd", "containerd", "runc", "iptables", "ip"}

const packages = "docker.io runc iptables iproute2"

// ErrUnavailable means that no engine can be started on this machine; its text says why.
var ErrUnavailable = errors.New("no container engine can be started here")

// Available returns an error if there can be no engine here.
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
	Args []string // more arguments of dockerd
	Env  []string // more of its environment
}

// Engine is a dockerd. It dies with this process; its directory and the containers of one with --live-restore do not.
type Engine struct {
	Dir string
	Net *natlab.Namespace // where it and its registry live

	opts   Options
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts an engine in a new directory and returns when it answers. The error is ErrUnavailable where there can be
// none. Close it.
func Start(ctx context.Context, o Options) (*Engine, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "starling-engine-")
	if err != nil {
		return nil, err
	}
	e := &Engine{Dir: dir, opts: o}
	if err = os.Chmod(dir, 0o711); err == nil { // an engine that maps users wants it
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

// Host is its address, as DOCKER_HOST has it.
func (e *Engine) Host() string { return "unix://" + e.socket() }

func (e *Engine) socket() string { return filepath.Join(e.Dir, "sock") }

// run starts the daemon and waits until it answers. The kernel ends the daemon when the thread that started it ends, so
// that thread is kept for as long as it runs.
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
		runtime.LockOSThread() // and never unlocked: the thread is in another namespace
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
		_, err = io.Copy(io.Discard, res.Body) // a pull is done when its answer ends
		return err
	}
	return json.NewDecoder(res.Body).Decode(to)
}

// Container is one as the engine has it.
type Container struct {
	ID      string
	State   string // running, paused, exited, …
	Status  string // for people
	Command string
	Names   []string
}

// Sidecar reports whether it is a container that only holds a network. A peer that starts makes one that no job is in,
// to see whether it can, and takes it away again.
func (c Container) Sidecar() bool {
	return slices.ContainsFunc(c.Names, func(name string) bool { return strings.HasSuffix(name, "-net") })
}

// Containers lists all.
func (e *Engine) Containers(ctx context.Context) (all []Container, err error) {
	if err = e.Call(ctx, http.MethodGet, "/containers/json?all=1", nil, &all); err != nil {
		err = fmt.Errorf("listing containers: %w", err)
	}
	return all, err
}

// answers waits until the engine does.
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
			return fmt.Errorf("it ended: %s", e.cmd.ProcessState)
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

// Signal sends the daemon a signal that ends it and waits for its end.
func (e *Engine) Signal(sig syscall.Signal) {
	_ = e.cmd.Process.Signal(sig)
	<-e.exited
}

// Restart starts a daemon that has ended again, on its old state.
func (e *Engine) Restart(ctx context.Context) error {
	// A containerd dies with its daemon; where nobody reaps the dead, the new daemon takes it for alive.
	for _, f := range []string{"pid", "exec/containerd/containerd.pid"} {
		_ = os.Remove(filepath.Join(e.Dir, f))
	}
	return e.run(ctx)
}

// Close ends the daemon and removes all that it left.
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

// killRest ends the processes that a killed daemon left: its containerd, the shims and sandboxes of gVisor, by this
// directory in their command lines.
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
