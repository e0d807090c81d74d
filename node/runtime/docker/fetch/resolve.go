package fetch

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/starling-network/starling/node/runtime"
)

// Resolve returns the current digest of an image's name in its registry: of its tag, or of "latest". It may be the
// digest of an index of several platforms. A name with a digest needs no request. Its errors are those of Open.
func (c *Client) Resolve(ctx context.Context, image string, auth *runtime.RegistryAuth) (digest string, err error) {
	ref, g, err := c.named(image)
	if err != nil {
		return "", err
	}
	if d, ok := ref.(name.Digest); ok {
		return d.DigestStr(), nil
	}
	defer g.inner.CloseIdleConnections()
	h, err := g.resolve(ctx, ref, auth)
	if err != nil {
		return "", clean(ctx, err, auth)
	}
	return h.String(), nil
}

func (g *guarded) resolve(ctx context.Context, ref name.Reference, auth *runtime.RegistryAuth) (h v1.Hash, err error) {
	tr, err := g.transport(ctx, ref, auth)
	if err != nil {
		return h, err
	}
	how := []remote.Option{remote.WithContext(ctx), remote.WithTransport(tr)}
	desc, err := remote.Head(ref, how...) // some registries count the reading of manifests, and not this
	if err != nil && ctx.Err() == nil && !final(err) {
		var got *remote.Descriptor
		if got, err = remote.Get(ref, how...); err == nil {
			desc = &got.Descriptor
		}
	}
	switch {
	case err != nil:
		return h, sorted(err, unnamed)
	case desc.Digest.Algorithm != "sha256" || !desc.MediaType.IsImage() && !desc.MediaType.IsIndex():
		return h, unnamed(nil)
	}
	return desc.Digest, nil
}

// final reports whether a registry answered a request for a manifest's head in a way that the manifest will not change.
func final(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode != http.StatusMethodNotAllowed
}

func unnamed(err error) error { return bad("the registry has no image under this name", err) }
