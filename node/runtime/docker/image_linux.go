package docker

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"

	"github.com/starling-network/starling/node/runtime"
)

// maxVolumes, and MaxArgBytes for text, bound an image's configuration.
const maxVolumes = 32

// imageConfig is the part of an image that a container uses.
type imageConfig struct {
	id                   string    // the engine's: a digest of the image's content
	shelf                string    // its name on the shelf; "" if it is not one that was pulled for an order
	used                 time.Time // when the shelf says that it was used last
	env, entrypoint, cmd []string
	workDir              string
	volumes              []string
}

// canonical is the name under which the engine knows an image by its digest, without a tag.
func canonical(ref string) (string, error) {
	if err := runtime.CheckImage(ref); err != nil {
		return "", fmt.Errorf("%w: %w", runtime.ErrBadImage, err)
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", fmt.Errorf("%w: %w", runtime.ErrBadImage, err)
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return "", fmt.Errorf("%w: %s has no digest", runtime.ErrBadImage, ref)
	}
	named, err = reference.WithDigest(reference.TrimNamed(named), digested.Digest())
	if err != nil {
		return "", fmt.Errorf("%w: %w", runtime.ErrBadImage, err)
	}
	return named.String(), nil
}

// HasImage reports whether the image is on this machine and can run.
func (r *Runtime) HasImage(ctx context.Context, ref string) bool {
	_, err := r.imageConfig(ctx, ref)
	return err == nil
}

// imageConfig looks an image up and checks that a container can be made of it.
func (r *Runtime) imageConfig(ctx context.Context, ref string) (imageConfig, error) {
	name, err := canonical(ref)
	if err != nil {
		return imageConfig{}, err
	}
	found, shelf, err := r.inspect(ctx, name)
	if err != nil {
		return imageConfig{}, err
	}
	c, err := checkImage(found, r.engine.platform, r.maxImage())
	if err != nil {
		return imageConfig{}, &runtime.Failure{Class: runtime.ErrBadImage, Advice: err.Error()}
	}
	if c.shelf = shelf; shelf != "" {
		c.used = found.Metadata.LastTagTime
	}
	return c, nil
}

// inspect finds an image on the shelf, or one that the engine has under that digest, as when its operator pulled it.
func (r *Runtime) inspect(ctx context.Context, name string) (found image.InspectResponse, shelf string, err error) {
	shelf = shelfTag(name)
	if found, err = r.engine.ImageInspect(ctx, shelf); absent(err) {
		shelf = ""
		found, err = r.engine.ImageInspect(ctx, name)
	}
	if absent(err) {
		return found, "", &runtime.Failure{Class: runtime.ErrBadImage, Advice: "it is not on this machine: pull it first"}
	}
	return found, shelf, r.engine.explain(err)
}

func (r *Runtime) maxImage() int64 { return int64(r.cfg.MaxImageMiB) << 20 }

// checkImage checks that a container can be made of an image's configuration. Its errors are for the author of the
// image's name.
func checkImage(found image.InspectResponse, platform string, limit int64) (imageConfig, error) {
	if p := found.Os + "/" + found.Architecture; p != platform {
		return imageConfig{}, fmt.Errorf("it is made for %.40s, this machine is %s", p, platform)
	}
	if found.Size > limit {
		return imageConfig{}, fmt.Errorf("it has %d MiB, at most %d", found.Size>>20, limit>>20)
	}
	c := imageConfig{id: found.ID}
	if found.Config == nil {
		return c, nil
	}
	c = imageConfig{id: found.ID, env: found.Config.Env, entrypoint: found.Config.Entrypoint, cmd: found.Config.Cmd, workDir: path.Clean("/" + found.Config.WorkingDir)}
	total := 0
	for _, s := range slices.Concat(c.env, c.entrypoint, c.cmd) {
		total += len(s) + 1
	}
	if total > runtime.MaxArgBytes {
		return c, fmt.Errorf("its environment and command have %d bytes, at most %d", total, runtime.MaxArgBytes)
	}
	for _, kv := range c.env {
		if kv == "" || kv[0] == '=' || strings.Contains(kv, "\x00") {
			return c, fmt.Errorf("its variable %.40q has no name", kv)
		}
	}
	if len(found.Config.Volumes) > maxVolumes {
		return c, fmt.Errorf("it declares %d volumes, at most %d", len(found.Config.Volumes), maxVolumes)
	}
	for v := range found.Config.Volumes {
		clean := path.Clean("/" + v)
		if owned(clean) {
			return c, fmt.Errorf("it declares a volume at %.80q, which belongs to the runtime or the system", v)
		}
		c.volumes = append(c.volumes, clean)
	}
	slices.Sort(c.volumes)
	return c, nil
}

// owned reports whether nothing of a buyer may be mounted at this place of a container.
func owned(p string) bool {
	if p == "/" || p == "/run" {
		return true
	}
	for _, own := range []string{runtime.ControlDir, runtime.SecretsDir, "/proc", "/sys", "/dev"} {
		if p == own || strings.HasPrefix(p, own+"/") {
			return true
		}
	}
	return false
}
