//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/starling-network/starling/testnet/scenarios"
)

// pushed checks that an image that only the buyer's own engine has, and no registry, runs by its name, and by the name
// of a push.
func (w *world) pushed(ctx context.Context) (string, error) {
	dir := filepath.Join(w.Dir, "local")
	dockerfile := "FROM scratch\nCOPY box /box\nENTRYPOINT [\"/box\"]\n"
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Link(filepath.Join(w.Dir, "box"), filepath.Join(dir, "box")),
		os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile), 0o600)); err != nil {
		return "", err
	}
	image := w.registry.Addr + "/local/app:dev" // the registry does not have it
	build := exec.CommandContext(ctx, "docker", "build", "-q", "-t", image, dir)
	build.Env = append(os.Environ(), "DOCKER_HOST="+w.engines[0].Host(), "DOCKER_BUILDKIT=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("docker build: %w: %s", err, out)
	}
	local := func(code int, args ...string) (scenarios.Said, error) {
		cmd := w.command(ctx, w.buyer(), args...)
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+w.engines[0].Host())
		s, err := run(cmd, "")
		if err == nil && s.Code != code {
			err = fmt.Errorf("starling %s: %v", strings.Join(args, " "), s)
		}
		return s, err
	}
	job := append([]string{"run", "--timeout", "5m", "-n", "2"}, w.price...)
	s, err := local(0, append(job, image, "--", "flood", "0")...)
	if err != nil {
		return "", err
	}
	for _, want := range []string{
		"no registry gives " + image, "is on the peer as pushed.invalid/local/app:dev@sha256:", ": 1 layer",
	} {
		if !strings.Contains(s.Err, want) {
			return "", fmt.Errorf("starling run: %v, want %q", s, want)
		}
	}
	again, err := local(0, "image", "push", image)
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(again.Out)
	if !strings.Contains(s.Err, name) || !strings.Contains(again.Err, "of which 0.0 KiB were uploaded") {
		return "", fmt.Errorf("starling image push: %v", again)
	}
	if _, err := local(1, append(job, name, "--", "exit", "3")...); err != nil {
		return "", err
	}
	return name[:strings.Index(name, "@")] + ", by run and by its name on the peer", nil
}
