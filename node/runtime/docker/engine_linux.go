package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"

	"github.com/starling-network/starling/node/runtime"
)

// enginePatience bounds the first talk with the engine and every question that is answered from memory.
const enginePatience = 10 * time.Second

// engine is the known state of the container engine.
type engine struct {
	*client.Client
	socket   string // path
	root     string // data directory, on its machine
	platform string // "linux/amd64"
	user     string // uid:gid of programs, as the container numbers them
	shift    *owner // user's owner on this machine if it is another one
	mapped   bool   // the containers' root is not this machine's
}

// owner of files.
type owner struct{ uid, gid int }

// connect finds the engine and checks this runtime's requirements.
func connect(ctx context.Context, cfg Config) (*engine, error) {
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
		return nil, fmt.Errorf("%w: %s is not a socket of this machine (unix:///path); containers share directories with the peer, so both must be on one machine", runtime.ErrEngine, host)
	}
	cli, err := client.NewClientWithOpts(append(opts, client.WithHost(host))...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", runtime.ErrEngine, err)
	}
	e := &engine{Client: cli, socket: socket}
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	if err := e.inspect(ctx, cfg); err != nil {
		_ = cli.Close()
		return nil, err
	}
	return e, nil
}

func (e *engine) inspect(ctx context.Context, cfg Config) error {
	ping, err := e.Ping(ctx)
	if err != nil {
		return e.explain(err)
	}
	if versions.LessThan(ping.APIVersion, MinAPIVersion) {
		return fmt.Errorf("%w: it speaks API %.20q, needed is %s: install Docker 20.10 or newer", runtime.ErrEngine, ping.APIVersion, MinAPIVersion)
	}
	e.NegotiateAPIVersionPing(ping)
	info, err := e.Info(ctx)
	if err != nil {
		return e.explain(err)
	}
	version, err := e.ServerVersion(ctx)
	if err != nil {
		return e.explain(err)
	}
	e.root, e.platform = info.DockerRootDir, version.Os+"/"+version.Arch
	if version.Os != "linux" {
		return fmt.Errorf("%w: it runs %s containers, needed are linux ones", runtime.ErrEngine, version.Os)
	}
	if !info.MemoryLimit || !info.PidsLimit || !info.CPUCfsQuota {
		return fmt.Errorf("%w: it cannot limit memory, CPU and processes (a rootless engine needs cgroup v2 with delegated controllers)", runtime.ErrEngine)
	}
	if _, known := info.Runtimes[cfg.Runtime]; cfg.Runtime != "" && !known {
		return fmt.Errorf("%w: it knows no OCI runtime %q, only %s: install it and name it under \"runtimes\" in the engine's daemon.json",
			runtime.ErrEngine, cfg.Runtime, strings.Join(slices.Sorted(maps.Keys(info.Runtimes)), ", "))
	}
	return e.security(info, cfg)
}

// security reads the engine's report about filters and user namespaces.
func (e *engine) security(info system.Info, cfg Config) error {
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
		return fmt.Errorf("%w: its system call filter (seccomp) is off: start dockerd without --seccomp-profile=unconfined, or allow it in the configuration", runtime.ErrEngine)
	}
	uid, gid := os.Getuid(), os.Getgid()
	switch {
	case rootless: // the container's root is the engine's user
		if info, err := os.Stat(e.socket); err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(uid) {
			return fmt.Errorf("%w: it runs rootless as another user: run the peer as that user", runtime.ErrEngine)
		}
		uid, gid, e.mapped = 0, 0, true
	case remapped:
		mapped, err := remappedRoot(e.root)
		if err != nil {
			return fmt.Errorf("%w: %w", runtime.ErrEngine, err)
		}
		if uid != 0 {
			return fmt.Errorf("%w: it maps users (userns-remap), so the peer must be root to give mounts to user %d: run it as root, or use a rootless engine", runtime.ErrEngine, mapped.uid)
		}
		e.shift = &mapped
		uid, gid, e.mapped = 0, 0, true
	}
	e.user = fmt.Sprintf("%d:%d", uid, gid)
	return nil
}

// remappedRoot is the owner on this machine of the containers' root: an engine with userns-remap keeps its data in
// "…/UID.GID".
func remappedRoot(root string) (owner, error) {
	u, g, ok := strings.Cut(filepath.Base(root), ".")
	uid, err := strconv.Atoi(u)
	gid, err2 := strconv.Atoi(g)
	if !ok || err != nil || err2 != nil || uid < 1 || gid < 1 {
		return owner{}, fmt.Errorf("it maps users, but its data directory %s does not say to whom", root)
	}
	return owner{uid, gid}, nil
}

// Probe asks the engine whether it is there.
func (r *Runtime) Probe(ctx context.Context) error {
	_, err := r.engine.Ping(ctx)
	return r.engine.explain(err)
}

// explain adds a remedy to an error of the connection to the engine.
func (e *engine) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "permission denied while trying to connect"):
		return fmt.Errorf("%w: no permission for %s: add the user to group docker (usermod -aG docker NAME) and log in anew: %w", runtime.ErrEngine, e.socket, err)
	case disconnected(err):
		return fmt.Errorf("%w at %s: is Docker installed and running? %w", runtime.ErrEngine, e.socket, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w at %s in time: %w", runtime.ErrEngine, e.socket, err)
	}
	return err
}

// disconnected says that the error is the connection's and not the engine's answer.
func disconnected(err error) bool {
	var op *net.OpError
	return client.IsErrConnectionFailed(err) || errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// create makes a container. A cancelled caller does not interrupt it: the engine would go on, and finish when nobody
// looks for the container any more.
func (e *engine) create(ctx context.Context, cfg *container.Config, host *container.HostConfig, name string) (id string, err error) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyPatience)
	defer cancel()
	made, err := e.ContainerCreate(patient, cfg, host, nil, nil, name)
	if err == nil {
		err = ctx.Err()
	}
	return made.ID, err
}

// unlimit lifts the CPU limit of a container that is to end. Where that fails, the container ends later.
func (e *engine) unlimit(ctx context.Context, id string) {
	_, _ = e.ContainerUpdate(ctx, id, container.UpdateConfig{Resources: container.Resources{CPUQuota: -1}})
}

// absent reports whether the engine does not have the named object.
func absent(err error) bool { return errdefs.IsNotFound(err) }
