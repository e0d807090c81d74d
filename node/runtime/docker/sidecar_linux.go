package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-units"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

const (
	// sidecarMiB and sidecarPids are the allowance of a sidecar: a guard that waits.
	sidecarMiB  = 32
	sidecarPids = 32
	// tunDevice is given to sidecars alone.
	tunDevice = "/dev/net/tun"
)

// sidecar is the peer's view of the container that holds the network of an execution with an overlay: the only one with
// a capability, with no program in it but the guard.
type sidecar struct {
	container string // the engine's ID
	conn      *guard.Conn

	asking  sync.Mutex // one question at a time
	nextID  uint32
	answers chan answer   // unasked ones are dropped
	over    chan struct{} // closed when its guard, or this peer, is gone
}

func newSidecar(container string, conn *guard.Conn) *sidecar {
	return &sidecar{container: container, conn: conn, answers: make(chan answer, 1), over: make(chan struct{})}
}

// sidecarName is found again from nothing but the directory.
func sidecarName(dir string) string { return containerName(dir) + "-net" }

// beginBeside makes the sidecar and the container that joins its network at once, as far as the engine lets it.
func (r *Runtime) beginBeside(ctx context.Context, e *execution, s runtime.Spec, cfg *container.Config, host *container.HostConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running, done := make(chan struct{}), make(chan struct{})
	var made *sidecar
	var failed error // before err: a container that cannot join says less
	go func() {
		defer close(done)
		if made, failed = r.startSidecar(ctx, s, e.state.Token, running); failed != nil {
			cancel()
		}
	}()
	err := r.begin(ctx, e, s, cfg, host, func() error {
		select {
		case <-running:
			if r.cfg.Runtime == "" {
				return nil
			}
			<-done // a network stack of the container's own takes the device as it is when the container starts
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
		e.net, e.state.Sidecar = made, made.container
	}
	if failed != nil && !(err != nil && errors.Is(failed, context.Canceled)) {
		return failed
	}
	return err
}

// startSidecar makes the sidecar. The remains of a failure are found by its name. running is closed as soon as other
// containers can join its network; its device is made when startSidecar returns.
func (r *Runtime) startSidecar(ctx context.Context, s runtime.Spec, token string, running chan<- struct{}) (*sidecar, error) {
	if err := r.hasOverlay(); err != nil {
		return nil, err
	}
	l, err := listen(filepath.Join(s.Dir, netDir))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	id, err := r.createSidecar(ctx, s)
	if err == nil {
		err = r.engine.ContainerStart(ctx, id, container.StartOptions{})
	}
	if err != nil {
		return nil, r.sidecarError(err)
	}
	close(running)
	conn, _, err := r.accept(ctx, l, id, "", readyPatience)
	if err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(s.Dir, netDir, guard.SocketFile))
	// It outlives the guard of the program, which must not find its network gone while it waits for a peer.
	a, err := greet(ctx, conn, guard.NetRequest{Op: guard.NetMake, Address: s.Overlay.Address, Bits: s.Overlay.PrefixBits, MTU: s.Overlay.MTU, Grace: r.cfg.Grace + endPatience, Token: token})
	if err == nil && a.Error != "" {
		err = fmt.Errorf("%w: %s", runtime.ErrNoOverlay, a.Error)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newSidecar(id, conn), nil
}

// sidecarError classifies the engine's error about the start of a sidecar.
func (r *Runtime) sidecarError(err error) error {
	if strings.Contains(err.Error(), tunDevice) {
		return fmt.Errorf("%w: the engine cannot give %s: %w", runtime.ErrNoOverlay, tunDevice, err)
	}
	return r.engine.explain(err)
}

// createSidecar makes its container, of an image that has no file: nothing of a buyer's is in it.
func (r *Runtime) createSidecar(ctx context.Context, s runtime.Spec) (id string, err error) {
	for again := false; ; again = true {
		image, err := r.empty.get(ctx, r.engine, again)
		if err != nil {
			return "", err
		}
		cfg, host := r.sidecarConfig(s, image)
		id, err := r.engine.create(ctx, cfg, host, sidecarName(s.Dir))
		if err == nil || again || !absent(err) { // somebody may have cleaned the engine of images
			return id, err
		}
	}
}

func (r *Runtime) sidecarConfig(s runtime.Spec, image string) (*container.Config, *container.HostConfig) {
	memory, pids, noInit := int64(sidecarMiB)<<20, int64(sidecarPids), false
	cfg := &container.Config{
		Image: image, Entrypoint: []string{guard.NetPath, guard.Subcommand, guard.NetSubcommand}, Cmd: []string{}, User: "0:0", WorkingDir: "/",
		Env:      []string{visibleDevices + "=" + visible(nil)},
		Hostname: s.Overlay.Hostname, // which the containers that join it take over
		Labels:   map[string]string{labelPeer: r.cfg.Peer, labelDir: s.Dir},
	}
	return cfg, &container.HostConfig{
		NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}, RestartPolicy: container.RestartPolicy{Name: "no"},
		CapDrop: []string{"ALL"}, CapAdd: []string{"NET_ADMIN"}, SecurityOpt: []string{"no-new-privileges"}, ReadonlyRootfs: true, Init: &noInit,
		IpcMode: "none", CgroupnsMode: "private", OomScoreAdj: guardAdj, Sysctls: r.overlaySysctls(),
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: filepath.Join(s.Dir, netDir), Target: runtime.ControlDir, ReadOnly: true},
			{Type: mount.TypeBind, Source: r.guard, Target: guard.NetPath, ReadOnly: true}},
		Resources: container.Resources{
			Memory: memory, MemorySwap: memory, PidsLimit: &pids, Ulimits: []*units.Ulimit{{Name: "core"}},
			Devices: []container.DeviceMapping{{PathOnHost: tunDevice, PathInContainer: tunDevice, CgroupPermissions: "rw"}},
		},
	}
}

// overlaySysctls are set in the network of an execution before anybody is in it: no IPv6, pings and low ports without a capability,
// packets that shrink where the way takes no larger ones, and BBR where the machine allows it, since it does not take loss for congestion.
func (r *Runtime) overlaySysctls() map[string]string {
	_, group, _ := strings.Cut(r.engine.user, ":")
	set := map[string]string{"net.ipv4.ping_group_range": group + " " + group, "net.ipv4.tcp_mtu_probing": "1",
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

// joinSidecar makes a container one of those in the sidecar's network: it has no network, name or files of such of its own.
func (r *Runtime) joinSidecar(s runtime.Spec, cfg *container.Config, host *container.HostConfig) {
	cfg.Hostname = ""
	host.NetworkMode = container.NetworkMode("container:" + sidecarName(s.Dir))
	for path := range s.Overlay.AllFiles() {
		if own := overlaySource(s.Dir, path); filepath.Dir(path) != runtime.OverlayDir {
			host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: own, Target: path, ReadOnly: true})
		}
	}
	if s.Overlay.Alone {
		return
	}
	host.Mounts = append(host.Mounts,
		mount.Mount{Type: mount.TypeBind, Source: r.guard, Target: runtime.AgentPath, ReadOnly: true},
		mount.Mount{Type: mount.TypeBind, Source: filepath.Join(s.Dir, filesDir, filepath.Base(runtime.OverlayDir)), Target: runtime.OverlayDir, ReadOnly: true})
}

// watch reads the sidecar's messages until its connection ends.
func (s *sidecar) watch() {
	defer close(s.over)
	for {
		b, files, err := s.conn.Receive()
		if err != nil {
			return
		}
		a, err := guard.DecodeAnswer(b)
		if err != nil {
			guard.CloseFiles(files)
			continue
		}
		select {
		case s.answers <- answer{a, files}:
		default:
			guard.CloseFiles(files)
		}
	}
}

// ask puts a question and waits for its answer.
func (s *sidecar) ask(ctx context.Context, req guard.NetRequest) (answer, error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	select {
	case stale := <-s.answers: // to a question that was given up
		guard.CloseFiles(stale.files)
	default:
	}
	s.nextID++
	req.ID = s.nextID
	if err := s.conn.Send(req); err != nil {
		return answer{}, fmt.Errorf("%w: asking for its network: %w", runtime.ErrEnded, err)
	}
	for {
		select {
		case a := <-s.answers:
			if a.ID == req.ID && a.Error == "" {
				return a, nil
			}
			guard.CloseFiles(a.files)
			if a.ID == req.ID {
				return answer{}, errors.New(a.Error)
			}
		case <-s.over:
			return answer{}, runtime.ErrEnded
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}
}

// end lets a sidecar end that nobody needs any more.
func (s *sidecar) end() {
	_ = s.conn.Send(guard.NetRequest{Op: guard.NetEnd})
}

// watchNet ends the execution when its network is gone: the program would wait for its fellows without end.
func (e *execution) watchNet() {
	if e.net != nil {
		e.net.watch()
	}
	select {
	case <-e.over:
		return
	case <-e.gone:
		return
	default:
	}
	e.logger.Warn("the network of an execution is gone", "id", e.id)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := e.resume(ctx); err != nil && !errors.Is(err, runtime.ErrEnded) {
		e.logger.Warn("cannot resume an execution whose network is gone", "id", e.id, "error", err)
	}
	e.send(guard.Request{Op: guard.OpKill, Reason: runtime.ReasonLost})
	if err := e.force(ctx); err != nil {
		e.logger.Warn("cannot end an execution whose network is gone", "id", e.id, "error", err)
	}
}

// network finds an execution that runs and has an overlay.
func (r *Runtime) network(h runtime.Handle) (*execution, error) {
	e, err := r.find(h)
	switch {
	case err != nil:
		return nil, err
	case e.state.Sidecar == "":
		return nil, runtime.ErrNoOverlay
	case e.ended() || e.net == nil:
		return nil, runtime.ErrEnded
	}
	return e, nil
}

// Tun asks the sidecar for its device.
func (r *Runtime) Tun(ctx context.Context, h runtime.Handle) (*os.File, error) {
	e, err := r.network(h)
	if err != nil {
		return nil, err
	}
	a, err := e.net.ask(ctx, guard.NetRequest{Op: guard.NetTun})
	if err != nil {
		return nil, fmt.Errorf("asking for the device of %s: %w", h.ID, err)
	}
	if len(a.files) != 1 {
		guard.CloseFiles(a.files)
		return nil, fmt.Errorf("asking for the device of %s: the sidecar gave %d", h.ID, len(a.files))
	}
	return a.files[0], nil
}

// SetMTU asks the sidecar, which alone may change it.
func (r *Runtime) SetMTU(ctx context.Context, h runtime.Handle, mtu int) error {
	if err := runtime.CheckMTU(mtu); err != nil {
		return err
	}
	e, err := r.network(h)
	if err != nil {
		return err
	}
	if _, err := e.net.ask(ctx, guard.NetRequest{Op: guard.NetMTU, MTU: mtu}); err != nil {
		return fmt.Errorf("changing the MTU of %s: %w", h.ID, err)
	}
	return nil
}

// SetFiles writes them where the container sees them.
func (r *Runtime) SetFiles(_ context.Context, h runtime.Handle, files map[string][]byte) error {
	if err := runtime.CheckOverlayFiles(files); err != nil {
		return err
	}
	e, err := r.network(h)
	if err != nil {
		return err
	}
	return e.files.write(e.dir, files)
}

// overlayFiles writes the files of an execution's overlay, one change at a time.
type overlayFiles struct{ mu sync.Mutex }

func (o *overlayFiles) write(dir string, files map[string][]byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return writeOverlay(dir, files)
}
