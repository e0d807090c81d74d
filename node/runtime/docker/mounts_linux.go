package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/mount"

	"github.com/starling-network/starling/node/runtime"
)

// systemDirs are never shown to a container, nor is anything that holds them.
var systemDirs = []string{"/proc", "/sys", "/dev", "/etc", "/boot", "/run/docker.sock", "/var/run/docker.sock", "/run/containerd", "/run/docker"}

// hostMounts resolves the mounts' directories, refuses those that would open the machine or the engine to the program, and
// says how the writable ones are held to the disk limit.
func (r *Runtime) hostMounts(s runtime.Spec) ([]mount.Mount, held, error) {
	var mounts []mount.Mount
	var writable []string
	for i, m := range s.Mounts {
		if owned(m.Guest) {
			return nil, held{}, &runtime.SpecError{Field: fmt.Sprintf("Mounts[%d].Guest", i), Reason: fmt.Sprintf("%s belongs to the runtime or the system", m.Guest)}
		}
		host, err := filepath.EvalSymlinks(m.Host)
		if err != nil {
			return nil, held{}, fmt.Errorf("%w: Mounts[%d]: %w", runtime.ErrBadMount, i, err)
		}
		if info, err := os.Stat(host); err != nil || !info.IsDir() {
			return nil, held{}, fmt.Errorf("%w: Mounts[%d]: %s is not a directory", runtime.ErrBadMount, i, m.Host)
		}
		if what := r.forbidden(host); what != "" {
			return nil, held{}, fmt.Errorf("%w: Mounts[%d]: %s would show the program %s", runtime.ErrBadMount, i, m.Host, what)
		}
		if !m.ReadOnly {
			writable = append(writable, host)
		}
		if err := r.userOf(s).admit(host, !m.ReadOnly); err != nil {
			return nil, held{}, fmt.Errorf("%w: Mounts[%d]: giving it to the container's user: %w", runtime.ErrBadMount, i, err)
		}
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: host, Target: m.Guest, ReadOnly: m.ReadOnly,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate}})
	}
	h, err := holding(s.Dir, writable, int64(s.Limits.WithDefaults().DiskMiB)<<20)
	if err != nil {
		return nil, held{}, fmt.Errorf("%w: %w", runtime.ErrBadMount, err)
	}
	return mounts, h, nil
}

// forbidden names the protected place that a mount of this directory would open, or "". A directory is as bad as its
// content.
func (r *Runtime) forbidden(host string) string {
	for _, p := range append([]string{r.engine.socket, r.engine.root}, systemDirs...) {
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
