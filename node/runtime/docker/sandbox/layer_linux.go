package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/disk"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/images"
	"github.com/starling-network/starling/node/runtime/docker/ociruntime"
)

// RuntimeKnown reports whether the engine has an OCI runtime of the name that package ociruntime has.
func (m *Maker) RuntimeKnown() bool { return slices.Contains(m.engine.Runtimes, ociruntime.Name) }

// Layered reports whether the container of a spec has a range of users and a layer. One with GPUs has none: NVIDIA's
// hooks are known to fail in user namespaces without this machine's root (NixOS/nixpkgs#398759,
// NVIDIA/nvidia-container-toolkit#648), and the trial at the start of a peer has no GPU.
func (m *Maker) Layered(s runtime.Spec) bool { return m.Layers && s.Layer != "" && len(s.GPUs) == 0 }

// layer makes the directory for the files that a container writes, and the mount that names it to package ociruntime.
func (m *Maker) layer(s runtime.Spec, h disk.Held) (mount.Mount, disk.Held, error) {
	if err := os.MkdirAll(s.Layer, 0o700); err != nil {
		return mount.Mount{}, h, fmt.Errorf("%w: making Layer: %w", runtime.ErrBadMount, err)
	}
	host, err := filepath.EvalSymlinks(s.Layer)
	if err != nil {
		return mount.Mount{}, h, fmt.Errorf("%w: Layer: %w", runtime.ErrBadMount, err)
	}
	if place := m.forbidden(host); place != "" {
		return mount.Mount{}, h, fmt.Errorf("%w: Layer: %s would show the program %s",
			runtime.ErrBadMount, s.Layer, place)
	}
	if h, err = disk.HoldLayer(h, s.Dir, host); err != nil {
		return mount.Mount{}, h, fmt.Errorf("%w: Layer: %w", runtime.ErrBadMount, err)
	}
	base := ociruntime.Base(s.User)
	if err = os.Chmod(host, 0o700); err == nil {
		err = os.Lchown(host, base, base)
	}
	if err != nil {
		return mount.Mount{}, h, fmt.Errorf("%w: giving Layer to the container's users: %w", runtime.ErrBadMount, err)
	}
	return mount.Mount{Type: mount.TypeBind, Source: host, Target: ociruntime.LayerPath, ReadOnly: true}, h, nil
}

// inNamespace changes the sandbox to one with a user namespace, in which an image runs as it does elsewhere: with the
// engine's usual capabilities, which have no power outside of it.
func inNamespace(h *container.HostConfig) {
	h.Runtime = ociruntime.Name
	h.CapDrop, h.SecurityOpt = nil, nil
}

// Identity is the guard's order about users; nil where programs have the guard's own.
func (m *Maker) Identity(s runtime.Spec, img images.Config) *guard.Identity {
	if !m.Layered(s) {
		return nil
	}
	made := &guard.Identity{User: img.User, Directories: img.Volumes}
	if s.WorkDir == "" && img.WorkDir != "" { // engines make it too
		made.Directories = append([]string{img.WorkDir}, img.Volumes...)
	}
	return made
}

// Confirm checks that a process of the container of a spec with a layer is in a user namespace with the spec's range.
// Otherwise its root would be root of this machine.
func (m *Maker) Confirm(s runtime.Spec, pid int) error {
	if !m.Layered(s) {
		return nil
	}
	if err := ociruntime.Confirm(pid, s.User); err != nil {
		return fmt.Errorf("%w: OCI runtime %s: %w", runtime.ErrEngine, ociruntime.Name, err)
	}
	return nil
}

// layeredUser is root of the namespace, in which the guard starts programs as the image's user.
func layeredUser(s runtime.Spec) identity {
	base := ociruntime.Base(s.User)
	return identity{name: "0:0", owner: &engine.Owner{UID: base, GID: base}, apart: true}
}
