package images

import (
	"context"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/shelf"
)

// Shelved lists the images on the shelf. Their IDs are their tags.
func (m *Images) Shelved(ctx context.Context) ([]runtime.ShelvedImage, error) {
	all, err := m.shelf.List(ctx)
	if err != nil {
		return nil, m.engine.Explain(err)
	}
	var out []runtime.ShelvedImage
	for _, i := range all {
		out = append(out, runtime.ShelvedImage{ID: i.Tag, Digest: shelf.Digest(i.Tag), Size: i.Size, Used: i.Used,
			InUse: i.InUse, Open: shelf.IsOpen(i.Tag)})
	}
	return out, nil
}

// Unshelve removes an image from the shelf. Its error is runtime.ErrNoImage, runtime.ErrImageUsed, or the engine's.
func (m *Images) Unshelve(ctx context.Context, id string) error {
	if !shelf.Has(id) {
		return runtime.ErrNoImage
	}
	return m.shelf.Discard(ctx, id)
}
