package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/mount"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/disk"
	"github.com/starling-network/starling/node/runtime/docker/images"
)

// systemDirs are never mounted in a container, nor are their parents.
var systemDirs = []string{
	"/proc", "/sys", "/dev", "/etc", "/boot",
	"/run/docker.sock", "/var/run/docker.sock", "/run/containerd", "/run/docker",
}

// Mounts resolves the mounts' directories and returns how the disk limit of writable ones is enforced. It refuses
// directories that would expose the machine or the engine to the program.
func (m *Maker) Mounts(s runtime.Spec) ([]mount.Mount, disk.Held, error) {
	var mounts []mount.Mount
	var writable []string
	for i, at := range s.Mounts {
		if images.Reserved(at.Guest) {
			return nil, disk.Held{}, &runtime.SpecError{Field: fmt.Sprintf("Mounts[%d].Guest", i),
				Reason: fmt.Sprintf("%s belongs to the runtime or the system", at.Guest)}
		}
		host, err := filepath.EvalSymlinks(at.Host)
		if err != nil {
			return nil, disk.Held{}, fmt.Errorf("%w: Mounts[%d]: %w", runtime.ErrBadMount, i, err)
		}
		if info, err := os.Stat(host); err != nil || !info.IsDir() {
			return nil, disk.Held{}, fmt.Errorf("%w: Mounts[%d]: %s is not a directory",
				runtime.ErrBadMount, i, at.Host)
		}
		if place := m.forbidden(host); place != "" {
			return nil, disk.Held{}, fmt.Errorf("%w: Mounts[%d]: %s would show the program %s",
				runtime.ErrBadMount, i, at.Host, place)
		}
		if !at.ReadOnly && at.RoomMiB == 0 {
			writable = append(writable, host)
		}
		if err := m.userOf(s).admit(host, !at.ReadOnly); err != nil {
			return nil, disk.Held{}, fmt.Errorf("%w: Mounts[%d]: giving it to the container's user: %w",
				runtime.ErrBadMount, i, err)
		}
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: host, Target: at.Guest, ReadOnly: at.ReadOnly,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate}})
	}
	h, err := disk.Hold(s.Dir, writable, int64(s.Limits.WithDefaults().DiskMiB)<<20)
	if err == nil {
		h.Rooms, h.Devices, err = disk.HoldRooms(s.Dir, s.Mounts)
	}
	if err != nil {
		return nil, disk.Held{}, fmt.Errorf("%w: %w", runtime.ErrBadMount, err)
	}
	if m.Layered(s) {
		var at mount.Mount
		if at, h, err = m.layer(s, h); err != nil {
			return nil, disk.Held{}, err
		}
		mounts = append(mounts, at)
	}
	return mounts, h, nil
}

// forbidden names the protected place that a mount of this directory would open, or "". A directory is as bad as its
// content.
func (m *Maker) forbidden(host string) string {
	for _, p := range append([]string{m.engine.Socket, m.engine.Root}, systemDirs...) {
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			real = p
		}
		for _, p := range []string{p, real} {
			if host == "/" || below(host, p) || below(p, host) {
				return p
			}
		}
	}
	return ""
}

func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
