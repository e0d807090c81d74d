package harness

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
)

// engine runs programs of the Fake as containers: the last word of an image's repository names the program.
type engine struct {
	*runtimetest.Fake
	dir string // directory of the modules that represent images

	registry *Registry // has the layers of images; if nil, they have none
	// spoil changes the layers of a provider that lies, instead of reading them; optional.
	spoil func(ctx context.Context, via runtime.Via, l runtime.Layer)

	mu   sync.Mutex
	kept map[string]runtime.ShelvedImage // by ID, which is the image's name
}

var (
	_ runtime.Runtime = (*engine)(nil)
	_ runtime.Images  = (*engine)(nil)
	_ runtime.Shelver = (*engine)(nil)
	_ runtime.Sharer  = (*engine)(nil)
)

// image returns the reference of a program's image.
func image(program string) string {
	return "docker.io/library/" + program + "@sha256:" + strings.Repeat("0f", 32)
}

func (e *engine) module(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if digest, pushed := runtime.PushedDigest(image); pushed { // the rest of its name is its buyer
		name += "-" + digest
	}
	return filepath.Join(e.dir, filepath.Base(name))
}

// shelve notes that an image is here; open, if it needed no credentials.
func (e *engine) shelve(image string, open bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, digest, _ := strings.Cut(image, "@")
	if e.kept == nil {
		e.kept = map[string]runtime.ShelvedImage{}
	}
	e.kept[image] = runtime.ShelvedImage{ID: image, Digest: digest, Used: time.Now(), Open: open}
}

// Shelved lists the images that were brought.
func (e *engine) Shelved(context.Context) ([]runtime.ShelvedImage, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.kept)), nil
}

// Unshelve removes an image.
func (e *engine) Unshelve(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.kept[id]; !ok {
		return runtime.ErrNoImage
	}
	delete(e.kept, id)
	return os.Remove(e.module(id))
}

// Pull writes the module that represents an image.
func (e *engine) Pull(_ context.Context, image string, auth *runtime.RegistryAuth, _ func(done, total int64)) error {
	e.shelve(image, auth == nil)
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return err
	}
	path := e.module(image)
	if err := os.WriteFile(path, runtimetest.FakeModule(filepath.Base(path)), 0o600); err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrBadImage, err)
	}
	return nil
}

// HasImage reports whether Pull was called for the image.
func (e *engine) HasImage(_ context.Context, image string) bool {
	_, err := os.Stat(e.module(image))
	return err == nil
}

// Start runs an image's program.
func (e *engine) Start(ctx context.Context, s runtime.Spec) (runtime.Handle, error) {
	if s.Image == "" {
		return runtime.Handle{}, fmt.Errorf("%w: no image", runtime.ErrInvalidSpec)
	}
	s.Module, s.Image, s.GPUs, s.Entrypoint = e.module(s.Image), "", nil, nil
	return e.Fake.Start(ctx, s)
}

// Container is Job for a container on units of a class.
func (p *Peer) Container(program, class string, count uint32, args ...string) job.Job {
	j := p.Job(program, count, args...)
	j.Runtime, j.Module, j.Image, j.Blobs = job.RuntimeDocker, "", image(program), nil
	j.Resources.Class = market.Class(class)
	j.Payment.MaxPrice = 5_000_000
	j.Payment.Budget = 200_000_000
	return j
}
