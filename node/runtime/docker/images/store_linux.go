package images

import (
	"context"
	"strings"
	"time"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/shelf"
)

// OnEngine is the store of a shelf on a container engine.
func OnEngine(e *engine.Engine) shelf.Store { return shelved{e} }

type shelved struct{ e *engine.Engine }

func (s shelved) Usage() (free, size int64, ok bool) {
	var st unix.Statfs_t
	if unix.Statfs(s.e.Root, &st) != nil {
		return 0, 0, false
	}
	free = int64(st.Bavail) * st.Bsize
	return free, int64(st.Blocks-st.Bfree)*st.Bsize + free, true
}

func (s shelved) List(ctx context.Context) ([]shelf.Shelved, error) {
	ours := filters.NewArgs(filters.Arg("reference", shelf.Repository))
	found, err := s.e.ImageList(ctx, image.ListOptions{Filters: ours})
	var all []shelf.Shelved
	for _, i := range found {
		for _, tag := range i.RepoTags {
			if !strings.HasPrefix(tag, shelf.Repository+":") {
				continue
			}
			if found, err := s.e.ImageInspect(ctx, tag); err == nil {
				used := found.Metadata.LastTagTime
				if used.IsZero() { // an engine notes it just after the name
					used = time.Now()
				}
				all = append(all, shelf.Shelved{Tag: tag, Used: used})
			}
		}
	}
	return all, err
}

func (s shelved) Remove(ctx context.Context, tag string) error {
	_, err := s.e.ImageRemove(ctx, tag, image.RemoveOptions{PruneChildren: true})
	return err
}

func (s shelved) Touch(ctx context.Context, id, tag string) error { return s.e.ImageTag(ctx, id, tag) }
