package runtime

import (
	"context"
	"io"
)

// Sharer is the ability to pull images whose layers come from elsewhere than their registry. Pull's checks hold.
type Sharer interface {
	// PullVia is Pull without credentials. Once the image's manifest is known, and unless this machine has the image,
	// its layers come through via.
	PullVia(ctx context.Context, image string, via Via, progress func(done, total int64)) error
}

// Via brings layers to this machine.
type Via interface {
	// Begin names the different layers of an image, in the order in which Open is called. It does not wait for them. It
	// is called once, with a context that ends with the pull.
	Begin(ctx context.Context, layers []Layer)
	// Open waits for a layer and returns its content, or nil if it has to be read from the registry. The content may be
	// another one than the digest's; its size is that of the layer.
	Open(ctx context.Context, l Layer) io.ReadCloser
}

// Layer is a layer of an image.
type Layer struct {
	Digest string // SHA-256, hexadecimal
	Size   int64  // packed, bytes
	From   Origin
}

// Origin is the place of a layer in its registry.
type Origin interface {
	// Name is the layer's URL there.
	Name() string
	// Read returns some bytes of the layer. They may be others than the digest's.
	Read(ctx context.Context, offset, length int64) (io.ReadCloser, error)
}
