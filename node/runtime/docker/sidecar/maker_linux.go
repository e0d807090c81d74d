package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-units"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/link"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
)

const (
	// MiB and Pids are the allowance of a sidecar: a guard that waits.
	MiB  = 32
	Pids = 32
	// TunDevice is available only to sidecars.
	TunDevice = "/dev/net/tun"
)

// Config is the peer that the sidecars belong to.
type Config struct {
	Peer    string
	Guard   string        // path of the binary
	Scratch string        // directory for trials; "" is the system's for temporary files
	Grace   time.Duration // of executions without a peer
	Logger  *slog.Logger
}

// Maker starts sidecars on an engine.
type Maker struct {
	cfg    Config
	engine *engine.Engine
	empty  emptyImage
	trial  trial
}

// New returns the maker of a peer's sidecars.
func New(e *engine.Engine, cfg Config) *Maker { return &Maker{cfg: cfg, engine: e} }

// Empty finds the image of sidecars, or makes it if it is missing; again, when the engine no longer has the one found
// before.
func (m *Maker) Empty(ctx context.Context, again bool) (string, error) {
	return m.empty.get(ctx, m.engine, again)
}

// Start makes the sidecar. The remains of a failure are found by its name. running is closed as soon as other
// containers can join its network; its device is made when Start returns.
func (m *Maker) Start(
	ctx context.Context, s runtime.Spec, token string, running chan<- struct{},
) (*Sidecar, error) {
	if err := m.hasOverlay(); err != nil {
		return nil, err
	}
	l, err := link.Listen(filepath.Join(s.Dir, rundir.NetDir))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	id, err := m.create(ctx, s)
	if err == nil {
		err = m.engine.ContainerStart(ctx, id, container.StartOptions{})
	}
	if err != nil {
		return nil, m.startError(err)
	}
	close(running)
	conn, _, err := link.Accept(ctx, l, m.engine, id, "", link.ReadyPatience)
	if err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(s.Dir, rundir.NetDir, guard.SocketFile))
	// It outlives the guard of the program, which must not find its network gone while it waits for a peer.
	a, err := link.Greet(ctx, conn, guard.NetRequest{
		Op: guard.NetMake, Address: s.Overlay.Address, Bits: s.Overlay.PrefixBits, MTU: s.Overlay.MTU,
		Grace: m.cfg.Grace + engine.EndPatience, Token: token,
	})
	if err == nil && a.Error != "" {
		err = fmt.Errorf("%w: %s", runtime.ErrNoOverlay, a.Error)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newSidecar(id, conn), nil
}

// startError classifies the engine's error about the start of a sidecar.
func (m *Maker) startError(err error) error {
	if strings.Contains(err.Error(), TunDevice) {
		return fmt.Errorf("%w: the engine cannot give %s: %w", runtime.ErrNoOverlay, TunDevice, err)
	}
	return m.engine.Explain(err)
}

// create makes its container, of an image that has no file: nothing of a buyer's is in it.
func (m *Maker) create(ctx context.Context, s runtime.Spec) (id string, err error) {
	for again := false; ; again = true {
		image, err := m.Empty(ctx, again)
		if err != nil {
			return "", err
		}
		cfg, host := m.config(s, image)
		id, err := m.engine.Create(ctx, cfg, host, engine.SidecarName(s.Dir))
		if err == nil || again || !engine.Absent(err) { // the image may have been removed from the engine
			return id, err
		}
	}
}

func (m *Maker) config(s runtime.Spec, image string) (*container.Config, *container.HostConfig) {
	memory, pids, noInit := int64(MiB)<<20, int64(Pids), false
	cfg := &container.Config{
		Image: image, Entrypoint: []string{guard.NetPath, guard.Subcommand, guard.NetSubcommand}, Cmd: []string{},
		User: "0:0", WorkingDir: "/",
		Env:      []string{engine.VisibleDevices + "=" + engine.Visible(nil)},
		Hostname: s.Overlay.Hostname, // which the containers that join it take over
		Labels:   engine.Labels(m.cfg.Peer, s.Dir),
	}
	return cfg, &container.HostConfig{
		NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"},
		RestartPolicy: container.RestartPolicy{Name: "no"},
		CapDrop:       []string{"ALL"}, CapAdd: []string{"NET_ADMIN"},
		SecurityOpt: []string{"no-new-privileges"}, ReadonlyRootfs: true, Init: &noInit,
		IpcMode: "none", CgroupnsMode: "private", OomScoreAdj: engine.GuardAdj, Sysctls: m.overlaySysctls(),
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: filepath.Join(s.Dir, rundir.NetDir), Target: runtime.ControlDir,
				ReadOnly: true},
			{Type: mount.TypeBind, Source: m.cfg.Guard, Target: guard.NetPath, ReadOnly: true}},
		Resources: container.Resources{
			Memory: memory, MemorySwap: memory, PidsLimit: &pids, Ulimits: []*units.Ulimit{{Name: "core"}},
			Devices: []container.DeviceMapping{
				{PathOnHost: TunDevice, PathInContainer: TunDevice, CgroupPermissions: "rw"},
			},
		},
	}
}

// overlaySysctls are set in the network of an execution before a container joins it. They disable IPv6, allow pings and
// low ports without a capability, and probe for a smaller path MTU. They select BBR where the machine allows it, since
// it does not treat loss as congestion.
func (m *Maker) overlaySysctls() map[string]string {
	// The program's groups may be any of this machine. An engine that maps users has fewer.
	groups := "0 2147483647"
	if m.engine.Mapped {
		_, group, _ := strings.Cut(m.engine.User, ":")
		groups = group + " " + group
	}
	set := map[string]string{"net.ipv4.ping_group_range": groups, "net.ipv4.tcp_mtu_probing": "1",
		"net.ipv4.ip_unprivileged_port_start": "0"}
	if _, err := os.Stat("/proc/sys/net/ipv6/conf"); err == nil {
		set["net.ipv6.conf.all.disable_ipv6"], set["net.ipv6.conf.default.disable_ipv6"] = "1", "1"
	}
	allowed, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	for _, name := range strings.Fields(string(allowed)) {
		if name == "bbr" {
			set["net.ipv4.tcp_congestion_control"] = name
		}
	}
	return set
}

// Join configures a container to join the sidecar's network, without its own network, host name or network files.
func (m *Maker) Join(s runtime.Spec, cfg *container.Config, host *container.HostConfig) {
	cfg.Hostname = ""
	host.NetworkMode = container.NetworkMode("container:" + engine.SidecarName(s.Dir))
	for path := range s.Overlay.AllFiles() {
		if own := rundir.OverlaySource(s.Dir, path); filepath.Dir(path) != runtime.OverlayDir {
			host.Mounts = append(host.Mounts,
				mount.Mount{Type: mount.TypeBind, Source: own, Target: path, ReadOnly: true})
		}
	}
	if s.Overlay.Alone {
		return
	}
	host.Mounts = append(host.Mounts,
		mount.Mount{Type: mount.TypeBind, Source: m.cfg.Guard, Target: runtime.AgentPath, ReadOnly: true},
		mount.Mount{Type: mount.TypeBind, Target: runtime.OverlayDir, ReadOnly: true,
			Source: filepath.Join(s.Dir, rundir.FilesDir, filepath.Base(runtime.OverlayDir))})
}

// Adopt takes the sidecar in a container over from an earlier process of the peer, once it has connected.
func (m *Maker) Adopt(
	ctx context.Context, l *net.UnixListener, dir, id, token string, patience time.Duration,
) (*Sidecar, error) {
	conn, _, err := link.Accept(ctx, l, m.engine, id, token, patience)
	if err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(dir, rundir.NetDir, guard.SocketFile))
	if _, err = link.Greet(ctx, conn, guard.NetRequest{Op: guard.NetAdopt}); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newSidecar(id, conn), nil
}
