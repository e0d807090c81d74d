package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

const (
	// MinAPIVersion is of the oldest engine that will do: Docker 20.10.
	MinAPIVersion = "1.41"
	// Patience bounds the first talk with the engine and every question that is answered from memory.
	Patience = 10 * time.Second
	// createPatience bounds the time in which a container is made.
	createPatience = 30 * time.Second
	// EndPatience is how long a container may take to be gone after its guard.
	EndPatience = 10 * time.Second
	// EndPoll is the polling interval for a container that is ending.
	EndPoll = 50 * time.Millisecond
)

// Engine is the known state of the container engine.
type Engine struct {
	*client.Client
	Socket   string   // path
	Root     string   // data directory, on its machine
	Platform string   // "linux/amd64"
	User     string   // uid:gid of programs, as the container numbers them
	Shift    *Owner   // User's owner on this machine if it is another one
	Mapped   bool     // the containers' root is not this machine's
	Runtimes []string // names of its OCI runtimes
}

// Owner of files.
type Owner struct{ UID, GID int }

// Config is the engine and the requirements that it has to meet.
type Config struct {
	// Host is the engine's address, as DOCKER_HOST has it; "" takes DOCKER_HOST or else the engine's usual socket.
	Host string
	// Runtime is an OCI runtime that the engine has to know; "" is its default.
	Runtime string
	// AllowNoSeccomp accepts an engine without its default system call filter.
	AllowNoSeccomp bool
}

// Connect finds the engine and checks the requirements. Errors are runtime.ErrEngine and name a remedy.
func Connect(ctx context.Context, cfg Config) (*Engine, error) {
	opts := []client.Opt{client.WithAPIVersionNegotiation()}
	host := cfg.Host
	if host == "" {
		host = os.Getenv(client.EnvOverrideHost)
	}
	if host == "" {
		host = client.DefaultDockerHost
	}
	socket, local := strings.CutPrefix(host, "unix://")
	if !local {
		return nil, fmt.Errorf("%w: %s is not a socket of this machine (unix:///path); "+
			"containers share directories with the peer, so both must be on one machine", runtime.ErrEngine, host)
	}
	cli, err := client.NewClientWithOpts(append(opts, client.WithHost(host))...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", runtime.ErrEngine, err)
	}
	e := &Engine{Client: cli, Socket: socket}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := e.inspect(ctx, cfg); err != nil {
		_ = cli.Close()
		return nil, err
	}
	return e, nil
}

func (e *Engine) inspect(ctx context.Context, cfg Config) error {
	ping, err := e.Ping(ctx)
	if err != nil {
		return e.Explain(err)
	}
	if versions.LessThan(ping.APIVersion, MinAPIVersion) {
		return fmt.Errorf("%w: API version: got %.20q, want %s: install Docker 20.10 or newer",
			runtime.ErrEngine, ping.APIVersion, MinAPIVersion)
	}
	e.NegotiateAPIVersionPing(ping)
	info, err := e.Info(ctx)
	if err != nil {
		return e.Explain(err)
	}
	version, err := e.ServerVersion(ctx)
	if err != nil {
		return e.Explain(err)
	}
	e.Runtimes = slices.Sorted(maps.Keys(info.Runtimes))
	e.Root, e.Platform = info.DockerRootDir, version.Os+"/"+version.Arch
	if version.Os != "linux" {
		return fmt.Errorf("%w: containers: got %s, want linux", runtime.ErrEngine, version.Os)
	}
	if !info.MemoryLimit || !info.PidsLimit || !info.CPUCfsQuota {
		return fmt.Errorf("%w: cannot limit memory, CPU and processes "+
			"(a rootless engine needs cgroup v2 with delegated controllers)", runtime.ErrEngine)
	}
	if _, known := info.Runtimes[cfg.Runtime]; cfg.Runtime != "" && !known {
		return fmt.Errorf("%w: OCI runtime: got %q, want one of %s: "+
			"install it and name it under \"runtimes\" in the engine's daemon.json",
			runtime.ErrEngine, cfg.Runtime, strings.Join(e.Runtimes, ", "))
	}
	return e.security(info, cfg)
}

// security reads the engine's report about filters and user namespaces.
func (e *Engine) security(info system.Info, cfg Config) error {
	filtered, rootless, remapped := false, false, false
	for _, o := range info.SecurityOptions {
		switch {
		case strings.HasPrefix(o, "name=seccomp"):
			filtered = !strings.Contains(o, "profile=unconfined")
		case o == "name=rootless":
			rootless = true
		case o == "name=userns":
			remapped = true
		}
	}
	if !filtered && !cfg.AllowNoSeccomp {
		return fmt.Errorf("%w: the system call filter (seccomp) is off: start dockerd without "+
			"--seccomp-profile=unconfined, or allow it in the configuration", runtime.ErrEngine)
	}
	uid, gid := os.Getuid(), os.Getgid()
	switch {
	case rootless: // the container's root is the engine's user
		if info, err := os.Stat(e.Socket); err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(uid) {
			return fmt.Errorf("%w: rootless, running as another user: run the peer as that user", runtime.ErrEngine)
		}
		uid, gid, e.Mapped = 0, 0, true
	case remapped:
		mapped, err := remappedRoot(e.Root)
		if err != nil {
			return fmt.Errorf("%w: %w", runtime.ErrEngine, err)
		}
		if uid != 0 {
			return fmt.Errorf("%w: the engine maps users (userns-remap), so only root can give mounts to user %d: "+
				"run the peer as root, or use a rootless engine", runtime.ErrEngine, mapped.UID)
		}
		e.Shift = &mapped
		uid, gid, e.Mapped = 0, 0, true
	}
	e.User = fmt.Sprintf("%d:%d", uid, gid)
	return nil
}

// remappedRoot is the owner on this machine of the containers' root: an engine with userns-remap keeps its data in
// "…/UID.GID".
func remappedRoot(root string) (Owner, error) {
	u, g, ok := strings.Cut(filepath.Base(root), ".")
	uid, err := strconv.Atoi(u)
	gid, err2 := strconv.Atoi(g)
	if !ok || err != nil || err2 != nil || uid < 1 || gid < 1 {
		return Owner{}, fmt.Errorf("user mapping: not found from the name of data directory %s", root)
	}
	return Owner{uid, gid}, nil
}

// Pid returns the engine's process.
func (e *Engine) Pid(ctx context.Context) (int, error) {
	conn, err := e.Dialer()(ctx)
	if err != nil {
		return 0, e.Explain(err)
	}
	defer conn.Close()
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return 0, errors.New("the connection to the container engine is no socket")
	}
	pid, err := guard.PidOf(raw)
	if err == nil && pid == 0 {
		err = errors.New("the container engine is no process that this peer sees")
	}
	return pid, err
}
