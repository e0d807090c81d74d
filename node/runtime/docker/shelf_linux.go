package docker

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

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
)

const (
	// shelfRepo is the repository of an engine that images are in which were pulled for orders. Nobody can have a registry there (RFC 6761).
	shelfRepo = "starling.invalid/order"
	// keepUsed is the time that an image is kept after its use, however full the disk is: a pulled image is about to be
	// started.
	keepUsed = 15 * time.Minute
	// noteUse is how old the note of an image's last use may become.
	noteUse = 5 * time.Minute
)

// shelf is an engine's images that were pulled for orders, of all peers that share it: each under a name of ours. The
// engine's time of the last tag is the time of the last use, so that nothing has to be kept beside the engine. An image
// goes with the last of its names, and not while a container is made of it; names that others gave it stay.
type shelf struct {
	floor int64 // bytes that stay free
	full  int64 // percent
	log   *slog.Logger

	usage  func() (free, size int64, ok bool) // of the engine's disk; false where it cannot be seen
	list   func(ctx context.Context) ([]shelved, error)
	remove func(ctx context.Context, tag string) error
	touch  func(ctx context.Context, id, tag string) error

	pulls sync.Map // of chan struct{}, closed at the end of a pull, by tag

	mu      sync.Mutex // held while images are removed, since this changes the room of all
	planned int64      // bytes that pulls may still take
}

// shelved is an image on the shelf.
type shelved struct {
	tag  string
	used time.Time
}

func newShelf(cfg Config, e *engine) *shelf {
	s := &shelf{floor: int64(cfg.FreeMiB) << 20, full: int64(min(cfg.ImagesPercent, 100)), log: cfg.Logger}
	s.usage = func() (free, size int64, ok bool) {
		var st unix.Statfs_t
		if unix.Statfs(e.root, &st) != nil {
			return 0, 0, false
		}
		free = int64(st.Bavail) * st.Bsize
		return free, int64(st.Blocks-st.Bfree)*st.Bsize + free, true
	}
	s.list = func(ctx context.Context) ([]shelved, error) {
		images, err := e.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("reference", shelfRepo))})
		var all []shelved
		for _, i := range images {
			for _, tag := range i.RepoTags {
				if !strings.HasPrefix(tag, shelfRepo+":") {
					continue
				}
				if found, err := e.ImageInspect(ctx, tag); err == nil {
					used := found.Metadata.LastTagTime
					if used.IsZero() { // an engine notes it just after the name
						used = time.Now()
					}
					all = append(all, shelved{tag, used})
				}
			}
		}
		return all, err
	}
	s.remove = func(ctx context.Context, tag string) error {
		_, err := e.ImageRemove(ctx, tag, image.RemoveOptions{PruneChildren: true})
		return err
	}
	s.touch = e.ImageTag
	return s
}

// shelfTag is the name on the shelf of an image by its name with a digest. Both count: access to an image at one
// registry does not prove access at another.
func shelfTag(name string) string {
	repo, digest, _ := strings.Cut(name, "@sha256:")
	sum := sha256.Sum256([]byte(repo))
	return shelfRepo + ":" + digest + "-" + hex.EncodeToString(sum[:8])
}

// use notes that an image is used, unless that was noted a short while ago.
func (s *shelf) use(ctx context.Context, img imageConfig) {
	if img.shelf == "" || time.Since(img.used) < noteUse {
		return
	}
	if err := s.touch(ctx, img.id, img.shelf); err != nil {
		s.log.Warn("the use of an image cannot be noted", "image", img.shelf, "error", err)
	}
}

// pulling waits until nobody else pulls the image. The returned function lets the next one do so.
func (s *shelf) pulling(ctx context.Context, tag string) (done func(), err error) {
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

// plan is room on the engine's disk that a pull may take.
type plan struct {
	s     *shelf
	bytes int64
}

// plan makes room for a number of bytes beside other plans, and removes images from the shelf for it. Its error is a
// *runtime.Failure of ErrNoRoom, or ctx's.
func (s *shelf) plan(ctx context.Context, bytes int64) (*plan, error) {
	p := &plan{s: s}
	return p, p.become(ctx, bytes)
}

// become is plan for another number of bytes.
func (p *plan) become(ctx context.Context, bytes int64) error {
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

// end gives up the unused room, and removes images if the disk is too full.
func (p *plan) end(ctx context.Context) {
	if err := p.become(ctx, 0); err != nil {
		p.s.log.Warn("the disk of the container engine is too full", "error", err)
		p.s.mu.Lock()
		p.s.planned, p.bytes = p.s.planned-p.bytes, 0
		p.s.mu.Unlock()
	}
}

// clear removes images, the one that was used longest ago first, until need bytes can be taken, the disk is not too full then, and the floor
// stays free. Only that the floor cannot be kept is an error.
func (s *shelf) clear(ctx context.Context, need int64) error {
	var old []shelved
	for listed := false; ; {
		free, size, ok := s.usage()
		if !ok || free-need >= s.floor && size-free+need <= size/100*s.full {
			return nil
		}
		if !listed {
			listed = true
			var err error
			if old, err = s.list(ctx); err != nil {
				s.log.Warn("images of orders cannot be listed", "error", err)
			}
			slices.SortFunc(old, func(a, b shelved) int { return a.used.Compare(b.used) })
			old = slices.DeleteFunc(old, func(i shelved) bool { return time.Since(i.used) < keepUsed })
		}
		if len(old) > 0 {
			if err := s.remove(ctx, old[0].tag); err == nil {
				s.log.Info("removed an image of orders", "image", old[0].tag, "used", old[0].used)
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
		return &runtime.Failure{Class: runtime.ErrNoRoom, Advice: "another provider may have it, or this one later",
			Cause: fmt.Errorf("%d MiB are needed, %d MiB are free, of which %d MiB stay so", need>>20, free>>20, s.floor>>20)}
	}
}
