package sandbox

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/blkiodev"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/images"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
	"github.com/starling-network/starling/node/runtime/volume"
)

const (
	// GuardMiB and GuardPids are the guard's allowance in addition to the program's.
	GuardMiB = 24
	// GaugeMiB is the allowance of a probe of the lease beside both: it must not cost the program its memory.
	GaugeMiB = 32
	// kernelMiB is the additional allowance for an OCI runtime of the operator, which may have its own kernel.
	kernelMiB = 64
	GuardPids = 32
	// ioWeight is the weight of a container's disk accesses, if the disk's scheduler has weights; an engine's default
	// is 500.
	ioWeight = 100
	// WriteIOPS is how many times in a second a container may write to its volume, up to about a MiB each time: a loop
	// of small writes that are all waited for would have the whole disk wait.
	WriteIOPS = 1000
	// FirstShares is the weight of an execution that others wait for; an engine's default is 1024.
	FirstShares = 8 * 1024
	// hostname is the name of containers without a network.
	hostname = "starling"
)

// Maker makes the configuration of containers for programs.
type Maker struct {
	// Runtime is the OCI runtime that programs run under; "" is the engine's default.
	Runtime string
	// Layers makes containers of specs with a layer run under package ociruntime.
	Layers bool

	engine  *engine.Engine
	peer    string
	guard   string // path of the binary
	noUsers error  // why all programs have one user
}

// New returns the maker of an engine's sandboxes, for the containers of a peer with the guard in the binary at a path,
// under an OCI runtime or, if that is "", the engine's own.
func New(e *engine.Engine, peer, guard, runtime string) *Maker {
	return &Maker{Runtime: runtime, engine: e, peer: peer, guard: guard}
}

// Command is the guard's program: entrypoint and arguments as an engine would join them, the image's environment with
// the spec's on top.
func (m *Maker) Command(s runtime.Spec, img images.Config) (guard.Command, error) {
	argv := s.Argv(img.Entrypoint, img.Cmd)
	if len(argv) == 0 || argv[0] == "" {
		return guard.Command{}, fmt.Errorf("%w: it names no program: give an entrypoint or arguments",
			runtime.ErrBadImage)
	}
	env := map[string]string{}
	for _, kv := range img.Env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	if _, asked := env[engine.VisibleDevices]; asked || len(s.GPUs) > 0 {
		env[engine.VisibleDevices] = engine.Visible(s.GPUs)
	}
	if s.User > 0 && !m.Layered(s) {
		for k, v := range map[string]string{"HOME": "/tmp", "USER": "job", "LOGNAME": "job"} {
			if env[k] == "" {
				env[k] = v
			}
		}
	}
	maps.Copy(env, s.Env)
	maps.Copy(env, s.SecretEnv)
	c := guard.Command{Argv: argv, Dir: "/"}
	if img.WorkDir != "" {
		c.Dir = img.WorkDir
	}
	if s.WorkDir != "" {
		c.Dir = s.WorkDir
	}
	for k, v := range env {
		c.Env = append(c.Env, k+"="+v)
	}
	slices.Sort(c.Env)
	return c, nil
}

// Container is the container around the guard: nothing of the program's is in it but its limits and mounts.
func (m *Maker) Container(s runtime.Spec, img images.Config) *container.Config {
	env := []string{engine.VisibleDevices + "=" + engine.Visible(s.GPUs)}
	for _, kv := range img.Env {
		// A name without a value removes the image's variable: variables are for the program, not for the guard. The
		// image's driver requirements are for NVIDIA's hook.
		k, _, _ := strings.Cut(kv, "=")
		if k != engine.VisibleDevices && !strings.HasPrefix(k, "NVIDIA_REQUIRE_") {
			env = append(env, k)
		}
	}
	return &container.Config{
		Image: img.ID, Entrypoint: []string{guard.Path, guard.Subcommand}, Cmd: []string{}, Env: env,
		User: m.userOf(s).name, WorkingDir: "/",
		Hostname:    hostname,
		Labels:      engine.Labels(m.peer, s.Dir),
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}
}

// Host is the sandbox.
func (m *Maker) Host(s runtime.Spec, img images.Config, mounts []mount.Mount) *container.HostConfig {
	l := s.Limits.WithDefaults()
	memory := (int64(l.MemoryMiB) + GuardMiB + GaugeMiB) << 20
	if m.Runtime != "" {
		memory += kernelMiB << 20
	}
	pids := int64(l.Pids) + GuardPids
	noInit := false
	h := &container.HostConfig{
		Runtime: m.Runtime, NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"},
		RestartPolicy: container.RestartPolicy{Name: "no"},
		CapDrop:       []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, ReadonlyRootfs: true, Init: &noInit,
		IpcMode: "private", CgroupnsMode: "private", OomScoreAdj: engine.GuardAdj, ShmSize: int64(l.ShmMiB) << 20,
		Mounts: append(mounts,
			mount.Mount{Type: mount.TypeBind, Source: filepath.Join(s.Dir, rundir.ControlDir),
				Target: runtime.ControlDir, ReadOnly: true},
			mount.Mount{Type: mount.TypeBind, Source: m.guard, Target: guard.Path, ReadOnly: true}),
		Tmpfs: m.tmpfs(s, img),
		Resources: container.Resources{
			Memory: memory, MemorySwap: memory, PidsLimit: &pids,
			Ulimits: []*units.Ulimit{{Name: "core"}},
		},
	}
	if s.Overlay == nil { // which has its own hosts file; many programs look up their own name
		h.ExtraHosts = []string{hostname + ":127.0.0.1"}
	}
	if m.Layered(s) {
		inNamespace(h)
	}
	if l.MilliCPU > 0 {
		// The engine's NanoCPUs may not be more than the machine has; a quota may. The kernel's smallest quota is 1 ms.
		h.CPUPeriod = 100_000
		if l.MilliCPU < 10 {
			h.CPUPeriod = 1_000_000
		}
		h.CPUQuota = max(int64(l.MilliCPU)*h.CPUPeriod/1000, 1000)
	}
	if s.Overlay != nil && s.Overlay.First && l.MilliCPU > 0 {
		h.CPUShares = FirstShares
	}
	if len(s.GPUs) > 0 {
		h.DeviceRequests = []container.DeviceRequest{{Driver: "nvidia", DeviceIDs: s.GPUs,
			Capabilities: [][]string{{"gpu", "compute", "utility"}}}}
	}
	return h
}

// LimitIO puts a container's writes to its volumes' devices behind those of the peer, whose answers wait for its disk.
func LimitIO(h *container.HostConfig, devices ...uint64) {
	h.BlkioWeight = ioWeight
	for _, device := range devices {
		if unix.Major(device) == volume.Major {
			limit := &blkiodev.ThrottleDevice{Path: fmt.Sprintf("/dev/loop%d", unix.Minor(device)), Rate: WriteIOPS}
			h.BlkioDeviceWriteIOps = append(h.BlkioDeviceWriteIOps, limit)
		}
	}
}

// tmpfs are the places in memory: /run and /tmp, and the image's volumes, which would be directories without limit. In
// a container with a layer /tmp is in that, package ociruntime removes the others, and secrets have their own place.
func (m *Maker) tmpfs(s runtime.Spec, img images.Config) map[string]string {
	// runc gives a place the mode that the image has there, so it is the user's own
	user, _, _ := strings.Cut(m.userOf(s).name, ":")
	options := fmt.Sprintf("rw,nosuid,nodev,mode=1777,uid=%s,size=%dm", user, s.Limits.WithDefaults().MemoryMiB)
	places := map[string]string{"/run": options, "/tmp": options + ",exec"}
	for _, v := range img.Volumes {
		places[v] = options + ",exec"
	}
	if m.Layered(s) {
		delete(places, "/tmp")
		if len(s.Secrets) > 0 {
			places[runtime.SecretsDir] = options + ",noexec"
		}
	}
	for _, m := range s.Mounts {
		delete(places, m.Guest)
	}
	return places
}
