package fetch

import (
	"context"
	"io"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// source is the place of an image's layers.
type source interface {
	// expect is called before the first layer is opened, with the packed size of all.
	expect(ctx context.Context, bytes int64)
	// layer opens a layer. Its content may be another one than the digest's; it has at most the descriptor's size.
	layer(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
	// failed returns the error to report for an error of layer or of its reader.
	failed(ctx context.Context, err error) error
	close()
}

// repository is an image's repository in a registry, as a source.
type repository struct {
	name    name.Repository
	guarded *guarded
	client  *http.Client
}

func (r *repository) expect(_ context.Context, bytes int64) { r.guarded.left.Add(bytes) }

func (r *repository) layer(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	return r.blob(ctx, d), nil
}

func (r *repository) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return clean(ctx, sorted(err, unreachable), nil)
}

func (r *repository) close() { r.guarded.inner.CloseIdleConnections() }
