package shelf

import (
	"context"
	"errors"

	"github.com/starling-network/starling/node/runtime"
)

// Shelved lists the images on the shelf. Their IDs are their tags, without the repository.
func (s *Shelf) Shelved(ctx context.Context) (out []runtime.ShelvedImage, err error) {
	all, err := s.store.List(ctx)
	for _, i := range all {
		out = append(out, runtime.ShelvedImage{ID: ID(i.Tag), Digest: Digest(i.Tag), Size: i.Size, Used: i.Used,
			InUse: i.InUse, Open: IsOpen(i.Tag)})
	}
	return out, err
}

// Unshelve removes an image that nothing uses, by its ID. Its error is runtime.ErrNoImage, runtime.ErrImageUsed, or the
// store's.
func (s *Shelf) Unshelve(ctx context.Context, id string) error {
	for _, tag := range []string{open + ":" + id, repository + ":" + id} {
		if err := s.Discard(ctx, tag); !errors.Is(err, runtime.ErrNoImage) {
			return err
		}
	}
	return runtime.ErrNoImage
}
