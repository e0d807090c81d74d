package shelf

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

const (
	// Repositories selects the engine's repositories of images that were brought for orders: repository and open. No
	// registry can exist at this host (RFC 6761).
	Repositories = host + "/*"
	host         = "starling.invalid"
	// repository has the images that need credentials, or that a buyer pushed.
	repository = host + "/order"
	// open has the images that their registries gave without credentials.
	open = host + "/open"
	// keepUsed is the time that an image is kept after its use, however full the disk is: a pulled image is about to be
	// started.
	keepUsed = 15 * time.Minute
	// noteUse is how old the note of an image's last use may become.
	noteUse = 5 * time.Minute
)

// Shelf is an engine's images that were pulled for orders by all peers that share it, each under a name in one of two
// repositories. The engine's time of the last tag is the time of the last use, so no other record is needed. Removing
// an image's last name deletes it, unless a container uses it. Names outside the repositories are kept.
type Shelf struct {
	floor int64 // bytes that stay free
	full  int64 // percent
	log   *slog.Logger
	store Store

	pulls sync.Map // of chan struct{}, closed at the end of a pull, by tag

	mu      sync.Mutex // held while images are removed, since this changes the room of all
	planned int64      // bytes that pulls may still take
}

// New returns the shelf of a store. At least freeMiB of its disk stay free; above percent of it, images are removed.
func New(store Store, freeMiB, percent uint32, log *slog.Logger) *Shelf {
	return &Shelf{floor: int64(freeMiB) << 20, full: int64(min(percent, 100)), log: log, store: store}
}

// Tag is the name on the shelf of an image by its name with a digest. Both count: access to an image at one
// registry does not prove access at another.
func Tag(name string) string {
	repo, digest, _ := strings.Cut(name, "@sha256:")
	sum := sha256.Sum256([]byte(repo))
	return repository + ":" + digest + "-" + hex.EncodeToString(sum[:8])
}

// OpenTag is Tag for an image that its registry gave without credentials.
func OpenTag(name string) string { return open + strings.TrimPrefix(Tag(name), repository) }

// Has reports whether a tag is one of Tag or OpenTag.
func Has(tag string) bool { return strings.HasPrefix(tag, repository+":") || IsOpen(tag) }

// IsOpen reports whether a tag is one of OpenTag.
func IsOpen(tag string) bool { return strings.HasPrefix(tag, open+":") }

// Digest returns the digest of the image with a tag: "sha256:…".
func Digest(tag string) string {
	digest, _, _ := strings.Cut(ID(tag), "-")
	return "sha256:" + digest
}

// ID returns a tag without its repository.
func ID(tag string) string {
	_, id, _ := strings.Cut(tag, ":")
	return id
}

// Use notes that an image, by the engine's ID and its tag on the shelf, is used, unless that was noted a short while
// ago: used is the last note. An image without a tag is not on the shelf.
func (s *Shelf) Use(ctx context.Context, id, tag string, used time.Time) {
	if tag == "" || time.Since(used) < noteUse {
		return
	}
	if err := s.store.Touch(ctx, id, tag); err != nil {
		s.log.Warn("the use of an image cannot be noted", "image", tag, "error", err)
	}
}

// Remove takes an image from the shelf.
func (s *Shelf) Remove(ctx context.Context, tag string) error { return s.store.Remove(ctx, tag) }

// Discard removes an image that nothing uses. It returns runtime.ErrNoImage if it is not on the shelf, and
// runtime.ErrImageUsed if a container is made of it, or if it was used within keepUsed: it may be about to be started.
func (s *Shelf) Discard(ctx context.Context, tag string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.store.List(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(i Shelved) bool { return i.Tag == tag })
	switch {
	case at < 0:
		return runtime.ErrNoImage
	case all[at].InUse:
		return fmt.Errorf("%w: a program of it runs, or is kept until its buyer has read its result",
			runtime.ErrImageUsed)
	case time.Since(all[at].Used) < keepUsed:
		return fmt.Errorf("%w: last use %s ago, a program may be starting: want %s", runtime.ErrImageUsed,
			time.Since(all[at].Used).Round(time.Second), keepUsed)
	}
	return s.store.Remove(ctx, tag)
}

// Pulling waits until no other caller pulls the image. The returned function lets the next caller pull it.
func (s *Shelf) Pulling(ctx context.Context, tag string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		busy, others := s.pulls.LoadOrStore(tag, mine)
		if !others {
			return func() { s.pulls.Delete(tag); close(mine) }, nil
		}
		select {
		case <-busy.(chan struct{}):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Plan is room on the engine's disk that a pull may take.
type Plan struct {
	s     *Shelf
	bytes int64
}

// Plan makes room for a number of bytes beside other plans, and removes images from the shelf for it. Its error is a
// *runtime.Failure of ErrNoRoom, or ctx's.
func (s *Shelf) Plan(ctx context.Context, bytes int64) (*Plan, error) {
	p := &Plan{s: s}
	return p, p.Become(ctx, bytes)
}

// Become is Plan for another number of bytes.
func (p *Plan) Become(ctx context.Context, bytes int64) error {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	others := s.planned - p.bytes
	if err := s.clear(ctx, others+bytes); err != nil {
		return err
	}
	s.planned, p.bytes = others+bytes, bytes
	return nil
}

// End gives up the unused room, and removes images if the disk is too full.
func (p *Plan) End(ctx context.Context) {
	if err := p.Become(ctx, 0); err != nil {
		p.s.log.Warn("the disk of the container engine is too full", "error", err)
		p.s.mu.Lock()
		p.s.planned, p.bytes = p.s.planned-p.bytes, 0
		p.s.mu.Unlock()
	}
}

// clear removes images, least recently used first, until need bytes fit, the disk is within its limit, and the floor
// stays free. It returns an error only if the floor cannot be kept.
func (s *Shelf) clear(ctx context.Context, need int64) error {
	var old []Shelved
	for listed := false; ; {
		free, size, ok := s.store.Usage()
		if !ok || free-need >= s.floor && size-free+need <= size/100*s.full {
			return nil
		}
		if !listed {
			listed = true
			var err error
			if old, err = s.store.List(ctx); err != nil {
				s.log.Warn("images of orders cannot be listed", "error", err)
			}
			slices.SortFunc(old, func(a, b Shelved) int { return a.Used.Compare(b.Used) })
			old = slices.DeleteFunc(old, func(i Shelved) bool { return time.Since(i.Used) < keepUsed })
		}
		if len(old) > 0 {
			if err := s.store.Remove(ctx, old[0].Tag); err == nil {
				s.log.Info("removed an image of orders", "image", old[0].Tag, "used", old[0].Used)
			} // else a container is made of it
			old = old[1:]
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if free-need >= s.floor {
			return nil
		}
		return &runtime.Failure{Class: runtime.ErrNoRoom, Advice: "use another provider, or try later",
			Cause: fmt.Errorf("image: %d MiB needed, %d MiB free, of which %d MiB are reserved",
				need>>20, free>>20, s.floor>>20)}
	}
}
