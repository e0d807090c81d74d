package images

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"

	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
	"github.com/starling-network/starling/node/runtime/docker/shelf"
)

// MaxVolumes, and runtime.MaxArgBytes for text, bound an image's configuration.
const MaxVolumes = 32

// Config is the part of an image that a container uses.
type Config struct {
	ID                   string // the engine's: a digest of the image's content
	Env, Entrypoint, Cmd []string
	WorkDir              string
	User                 string // as the image names it; "" is root
	Volumes              []string

	shelf string    // its name on the shelf; "" if it was not brought for an order
	guard bool      // it needs credentials
	used  time.Time // last use, according to the shelf
}

// Images finds images on a container engine and pulls missing ones.
type Images struct {
	engine *engine.Engine
	fetch  *fetch.Client
	shelf  *shelf.Shelf
	max    int64
}

// New returns the images of an engine. They are read with a client and held on a shelf; one may have max bytes,
// unpacked.
func New(e *engine.Engine, client *fetch.Client, s *shelf.Shelf, max int64) *Images {
	return &Images{engine: e, fetch: client, shelf: s, max: max}
}

// Use notes that an image is used, unless that was noted a short while ago.
func (m *Images) Use(ctx context.Context, img Config) { m.shelf.Use(ctx, img.ID, img.shelf, img.used) }

// Canonical returns the engine's name of an image by its digest, without a tag.
func Canonical(ref string) (string, error) {
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

// Has reports whether the image is on this machine and can run.
func (m *Images) Has(ctx context.Context, ref string) bool {
	_, err := m.Config(ctx, ref)
	return err == nil
}

// Config finds an image and checks that a container can be made of it.
func (m *Images) Config(ctx context.Context, ref string) (Config, error) {
	name, err := Canonical(ref)
	if err != nil {
		return Config{}, err
	}
	found, tag, err := m.inspect(ctx, name)
	if err != nil {
		return Config{}, err
	}
	c, err := checkImage(found, m.engine.Platform, m.max)
	if err != nil {
		return Config{}, &runtime.Failure{Class: runtime.ErrBadImage, Advice: err.Error()}
	}
	if c.shelf = tag; tag != "" {
		c.used = found.Metadata.LastTagTime
		c.guard = !shelf.IsOpen(tag) && !images.IsPushed(name)
	}
	return c, nil
}

// inspect finds an image on the shelf, or an image that the engine has under that digest, for example after a pull by
// its operator. A pushed image is only on the shelf.
func (m *Images) inspect(ctx context.Context, name string) (found image.InspectResponse, tag string, err error) {
	tags := []string{shelf.OpenTag(name), shelf.Tag(name), ""}
	if images.IsPushed(name) {
		tags = tags[1:2]
	}
	for _, tag = range tags {
		found, err = m.engine.ImageInspect(ctx, cmp.Or(tag, name))
		if !engine.Absent(err) {
			return found, tag, m.engine.Explain(err)
		}
	}
	return found, "", &runtime.Failure{Class: runtime.ErrBadImage,
		Advice: "not on this machine: pull the image first"}
}

// checkImage checks that a container can be made of an image's configuration. Its errors are for the author of the
// image's name.
func checkImage(found image.InspectResponse, platform string, limit int64) (Config, error) {
	if p := found.Os + "/" + found.Architecture; p != platform {
		return Config{}, fmt.Errorf("platform: got %.40s, want %s", p, platform)
	}
	if found.Size > limit {
		return Config{}, fmt.Errorf("size: got %d MiB, want at most %d", found.Size>>20, limit>>20)
	}
	c := Config{ID: found.ID}
	if found.Config == nil {
		return c, nil
	}
	c = Config{ID: found.ID, Env: found.Config.Env, Entrypoint: found.Config.Entrypoint, Cmd: found.Config.Cmd,
		WorkDir: path.Clean("/" + found.Config.WorkingDir), User: found.Config.User}
	total := len(c.User)
	for _, s := range slices.Concat(c.Env, c.Entrypoint, c.Cmd) {
		total += len(s) + 1
	}
	if total > runtime.MaxArgBytes {
		return c, fmt.Errorf("environment and command: got %d bytes, want at most %d", total, runtime.MaxArgBytes)
	}
	for _, kv := range c.Env {
		if kv == "" || kv[0] == '=' || strings.Contains(kv, "\x00") {
			return c, fmt.Errorf("environment: variable %.40q: no name", kv)
		}
	}
	if len(found.Config.Volumes) > MaxVolumes {
		return c, fmt.Errorf("volumes: got %d, want at most %d", len(found.Config.Volumes), MaxVolumes)
	}
	for v := range found.Config.Volumes {
		clean := path.Clean("/" + v)
		if Reserved(clean) {
			return c, fmt.Errorf("volume %.80q: path belongs to the runtime or the system", v)
		}
		c.Volumes = append(c.Volumes, clean)
	}
	slices.Sort(c.Volumes)
	return c, nil
}

// Reserved reports whether nothing of a buyer may be mounted at this place of a container.
func Reserved(p string) bool {
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
