package images

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
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
	ours := filters.NewArgs(filters.Arg("reference", shelf.Repositories))
	found, err := s.e.ImageList(ctx, image.ListOptions{Filters: ours})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	used, err := s.inUse(ctx)
	if err != nil {
		return nil, err
	}
	var all []shelf.Shelved
	for _, i := range found {
		for _, tag := range i.RepoTags {
			if !shelf.Has(tag) {
				continue
			}
			if found, err := s.e.ImageInspect(ctx, tag); err == nil {
				last := found.Metadata.LastTagTime
				if last.IsZero() { // an engine notes it just after the name
					last = time.Now()
				}
				all = append(all, shelf.Shelved{Tag: tag, Used: last, Size: found.Size, InUse: used[found.ID]})
			}
		}
	}
	return all, nil
}

// inUse returns the IDs of the images that containers are made of.
func (s shelved) inUse(ctx context.Context) (map[string]bool, error) {
	made, err := s.e.ContainerList(ctx, container.ListOptions{All: true})
	used := map[string]bool{}
	for _, c := range made {
		used[c.ImageID] = true
	}
	return used, err
}

func (s shelved) Remove(ctx context.Context, tag string) error {
	_, err := s.e.ImageRemove(ctx, tag, image.RemoveOptions{PruneChildren: true})
	if errdefs.IsConflict(err) {
		return fmt.Errorf("%w: %w", runtime.ErrImageUsed, err)
	}
	return err
}

func (s shelved) Touch(ctx context.Context, id, tag string) error { return s.e.ImageTag(ctx, id, tag) }
