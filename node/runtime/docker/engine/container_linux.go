package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/starling-network/starling/node/runtime/docker/ociruntime"
)

const (
	// LabelPeer and LabelDir are on every container: its peer, and its execution's directory.
	LabelPeer = "network.starling.peer"
	LabelDir  = "network.starling.dir"

	// GuardAdj is how much sooner than others the guard is killed when the machine has no memory left; its program goes
	// first.
	GuardAdj = 500
)

// Labels are those of a container of an execution with this directory.
func Labels(peer, dir string) map[string]string {
	return map[string]string{LabelPeer: peer, LabelDir: dir}
}

// ContainerName is found again from nothing but the directory.
func ContainerName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "starling-" + hex.EncodeToString(sum[:12])
}

// SidecarName is found again from nothing but the directory.
func SidecarName(dir string) string { return ContainerName(dir) + "-net" }

// ownName reports whether this runtime names a container of this directory so.
func ownName(name, dir string) bool { return name == ContainerName(dir) || name == SidecarName(dir) }

// Create makes a container. Cancelling ctx does not interrupt it: the engine would finish the container after its
// caller has stopped waiting for it.
func (e *Engine) Create(
	ctx context.Context, cfg *container.Config, host *container.HostConfig, name string,
) (id string, err error) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), createPatience)
	defer cancel()
	made, err := e.ContainerCreate(patient, cfg, host, nil, nil, name)
	if err == nil {
		err = ctx.Err()
	}
	return made.ID, err
}

// Unlimited lifts a container's CPU limit.
var Unlimited = container.UpdateConfig{Resources: container.Resources{CPUQuota: -1}}

// End removes a container that may be running or paused: some OCI runtimes cannot end a paused one.
func (e *Engine) End(ctx context.Context, id string) error {
	_ = e.ContainerUnpause(ctx, id)
	_, _ = e.ContainerUpdate(ctx, id, Unlimited)
	return e.Remove(ctx, id)
}

// Remove takes a container away from the engine.
func (e *Engine) Remove(ctx context.Context, id string) error {
	for {
		err := e.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, Absent(err):
			return nil
		case strings.Contains(err.Error(), "already in progress"): // by the task beside
			select {
			case <-time.After(EndPoll):
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return e.Explain(err)
	}
}

// state returns the state of a container. It returns ErrNotRunning if there is none, and the engine's failure.
func (e *Engine) state(ctx context.Context, id string) (*container.State, error) {
	info, err := e.ContainerInspect(ctx, id)
	switch {
	case Absent(err) || err == nil && info.State == nil:
		return nil, ErrNotRunning
	case err != nil:
		return nil, e.Explain(err)
	}
	return info.State, nil
}

// Lives requests the container's state. It returns nil if the container runs, ErrNotRunning if it does not, and the
// engine's failure.
func (e *Engine) Lives(ctx context.Context, id string) error {
	s, err := e.state(ctx, id)
	if err == nil && !s.Running {
		err = fmt.Errorf("%w with code %d: %s", ErrNotRunning, s.ExitCode, s.Error)
	}
	return err
}

// Thaw resumes a paused container. It returns ErrNotRunning if the container does not run.
func (e *Engine) Thaw(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	s, err := e.state(ctx, id)
	switch {
	case err != nil:
		return err
	case !s.Running:
		return ErrNotRunning
	case s.Paused:
		return e.Explain(e.ContainerUnpause(ctx, id))
	}
	return nil
}

// Container is one of this peer's containers.
type Container struct {
	ID, Dir string
	Running bool // or paused; false: it has ended, or has not begun
}

// Own lists the containers of a peer. An image can carry any label, so a container counts only if this runtime gave its
// name, which does not occur by chance.
func (e *Engine) Own(ctx context.Context, peer string) (own []Container, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	label := filters.NewArgs(filters.Arg("label", LabelPeer+"="+peer))
	found, err := e.ContainerList(ctx, container.ListOptions{All: true, Filters: label})
	if err != nil {
		return nil, e.Explain(err)
	}
	for _, c := range found {
		dir := c.Labels[LabelDir]
		if len(c.Names) != 1 || !ownName(strings.TrimPrefix(c.Names[0], "/"), dir) {
			continue
		}
		running := c.State == container.StateRunning || c.State == container.StatePaused ||
			c.State == container.StateRestarting
		own = append(own, Container{c.ID, dir, running})
	}
	return own, nil
}

// VisibleDevices is the variable that NVIDIA's hook reads: the devices that a container may see.
const VisibleDevices = "NVIDIA_VISIBLE_DEVICES"

// Visible is the value of VisibleDevices for these GPUs.
func Visible(gpus []string) string {
	if len(gpus) == 0 {
		return "void" // an image with "all" must get no GPU where that hook is the default
	}
	return strings.Join(gpus, ",")
}

// SandboxKilled reports whether a container had its own kernel and was killed with it. The engine may miss that this
// machine's kernel killed it for lack of memory: its control group may be gone before the engine's shim reads the
// event.
func SandboxKilled(c container.InspectResponse) bool {
	const killed = 128 + 9
	if c.ContainerJSONBase == nil || c.HostConfig == nil || c.State == nil {
		return false
	}
	shared := c.HostConfig.Runtime == "runc" || c.HostConfig.Runtime == ociruntime.Name
	return !shared && c.State.ExitCode == killed
}
