package docker

import (
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/volume"
)

const (
	// labelPeer and labelDir are on every container: its peer, and its execution's directory.
	labelPeer = "network.starling.peer"
	labelDir  = "network.starling.dir"

	// guardMiB and guardPids are the guard's allowance beside the program's.
	guardMiB = 24
	// gaugeMiB is the allowance of a probe of the lease beside both: it must not cost the program its memory.
	gaugeMiB = 32
	// kernelMiB is the allowance of an OCI runtime of the operator's choice beside all three: it may bring a kernel of
	// its own.
	kernelMiB = 64
	guardPids = 32
	// ioWeight is that of a container's disk accesses, where the disk's scheduler knows weights; an engine's default is 500.
	ioWeight = 100
	// writeIOPS is how many times in a second a container may write to its volume, up to about a MiB each time: a loop of small writes that
	// are all waited for would have the whole disk wait.
	writeIOPS = 1000
	// firstShares is the weight of an execution that others wait for; an engine's default is 1024.
	firstShares = 8 * 1024
	// guardAdj is how much sooner than others the guard is killed when the machine has no memory left; its program goes first.
	guardAdj = 500
)

// containerName is found again from nothing but the directory.
func containerName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "starling-" + hex.EncodeToString(sum[:12])
}

// command is the guard's program: entrypoint and arguments as an engine would join them, the image's environment with
// the spec's on top.
func command(s runtime.Spec, img imageConfig) (guard.Command, error) {
	argv := slices.Clone(img.entrypoint)
	if s.Entrypoint != nil {
		argv = slices.Clone(s.Entrypoint)
	}
	switch {
	case len(s.Args) > 0:
		argv = append(argv, s.Args...)
	case s.Entrypoint == nil:
		argv = append(argv, img.cmd...)
	}
	if len(argv) == 0 || argv[0] == "" {
		return guard.Command{}, fmt.Errorf("%w: it names no program: give an entrypoint or arguments", runtime.ErrBadImage)
	}
	env := map[string]string{}
	for _, kv := range img.env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	if _, asked := env[visibleDevices]; asked || len(s.GPUs) > 0 {
		env[visibleDevices] = visible(s.GPUs)
	}
	if s.User > 0 {
		for k, v := range map[string]string{"HOME": "/tmp", "USER": "job", "LOGNAME": "job"} {
			if env[k] == "" {
				env[k] = v
			}
		}
	}
	maps.Copy(env, s.Env)
	maps.Copy(env, s.SecretEnv)
	c := guard.Command{Argv: argv, Dir: "/"}
	if img.workDir != "" {
		c.Dir = img.workDir
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

// visibleDevices is the variable that NVIDIA's hook reads: the devices that a container may see.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

func visible(gpus []string) string {
	if len(gpus) == 0 {
		return "void" // an image that says "all" must not get any where that hook is the default
	}
	return strings.Join(gpus, ",")
}

// containerConfig is the container around the guard: nothing of the program's is in it but its limits and mounts.
func (r *Runtime) containerConfig(s runtime.Spec, img imageConfig) *container.Config {
	env := []string{visibleDevices + "=" + visible(s.GPUs)}
	for _, kv := range img.env {
		// A name alone removes the image's variable: it is for the program, not for the guard. The image's requirements
		// of a driver are for NVIDIA's hook.
		k, _, _ := strings.Cut(kv, "=")
		if k != visibleDevices && !strings.HasPrefix(k, "NVIDIA_REQUIRE_") {
			env = append(env, k)
		}
	}
	return &container.Config{
		Image: img.id, Entrypoint: []string{guard.Path, guard.Subcommand}, Cmd: []string{}, Env: env, User: r.userOf(s).name, WorkingDir: "/",
		Hostname:    "starling",
		Labels:      map[string]string{labelPeer: r.cfg.Peer, labelDir: s.Dir},
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}
}

// hostConfig is the sandbox.
func (r *Runtime) hostConfig(s runtime.Spec, img imageConfig, mounts []mount.Mount) *container.HostConfig {
	l := s.Limits.WithDefaults()
	memory := (int64(l.MemoryMiB) + guardMiB + gaugeMiB) << 20
	if r.cfg.Runtime != "" {
		memory += kernelMiB << 20
	}
	pids := int64(l.Pids) + guardPids
	noInit := false
	h := &container.HostConfig{
		Runtime: r.cfg.Runtime, NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}, RestartPolicy: container.RestartPolicy{Name: "no"},
		CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, ReadonlyRootfs: true, Init: &noInit,
		IpcMode: "private", CgroupnsMode: "private", OomScoreAdj: guardAdj, ShmSize: int64(l.MemoryMiB) << 19,
		Mounts: append(mounts,
			mount.Mount{Type: mount.TypeBind, Source: filepath.Join(s.Dir, controlDir), Target: runtime.ControlDir, ReadOnly: true},
			mount.Mount{Type: mount.TypeBind, Source: r.guard, Target: guard.Path, ReadOnly: true}),
		Tmpfs: r.tmpfs(s, img),
		Resources: container.Resources{
			Memory: memory, MemorySwap: memory, PidsLimit: &pids,
			Ulimits: []*units.Ulimit{{Name: "core"}},
		},
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
		h.CPUShares = firstShares
	}
	if len(s.GPUs) > 0 {
		h.DeviceRequests = []container.DeviceRequest{{Driver: "nvidia", DeviceIDs: s.GPUs, Capabilities: [][]string{{"gpu", "compute", "utility"}}}}
	}
	return h
}

// limitIO puts a container's writes behind the peer's: the peer's journal waits for the disk before it answers
// anything.
func limitIO(h *container.HostConfig, device uint64) {
	h.BlkioWeight = ioWeight
	if device != 0 && unix.Major(device) == volume.Major {
		path := fmt.Sprintf("/dev/loop%d", unix.Minor(device))
		h.BlkioDeviceWriteIOps = []*blkiodev.ThrottleDevice{{Path: path, Rate: writeIOPS}}
	}
}

// tmpfs are the places in memory: /run and /tmp, and the image's volumes, which would otherwise be directories of the engine
// without any limit.
func (r *Runtime) tmpfs(s runtime.Spec, img imageConfig) map[string]string {
	user, _, _ := strings.Cut(r.userOf(s).name, ":") // runc gives a place the mode that the image has there, so it is the user's own
	options := fmt.Sprintf("rw,nosuid,nodev,mode=1777,uid=%s,size=%dm", user, s.Limits.WithDefaults().MemoryMiB)
	places := map[string]string{"/run": options, "/tmp": options + ",exec"}
	for _, v := range img.volumes {
		places[v] = options + ",exec"
	}
	for _, m := range s.Mounts {
		delete(places, m.Guest)
	}
	return places
}
