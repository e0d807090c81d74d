package fetch

import (
	"context"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/node/runtime"
)

// Via has the layers of an image of a registry come through via. It is called before Write.
func (i *Image) Via(via runtime.Via) {
	r, ok := i.source.(*repository)
	if !ok {
		return
	}
	t := &through{repository: r, via: via, known: map[v1.Hash]runtime.Layer{}}
	for _, l := range i.layers {
		if _, again := t.known[l.Digest]; !again {
			t.known[l.Digest] = runtime.Layer{Digest: l.Digest.Hex, Size: l.Size, From: place{r, l.Descriptor}}
			t.layers = append(t.layers, t.known[l.Digest])
		}
	}
	i.source = t
}

// through is a repository whose layers come through another source, if it has them.
type through struct {
	*repository
	via    runtime.Via
	layers []runtime.Layer
	known  map[v1.Hash]runtime.Layer
}

func (t *through) expect(ctx context.Context, bytes int64) {
	t.repository.expect(ctx, bytes)
	t.via.Begin(ctx, t.layers)
}

func (t *through) layer(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	if content := t.via.Open(ctx, t.known[d.Digest]); content != nil {
		return limited{io.LimitReader(content, d.Size), content}, nil
	}
	return t.repository.layer(ctx, d)
}

// limited is content of at most a layer's size.
type limited struct {
	io.Reader
	io.Closer
}

// place is a layer in a repository.
type place struct {
	repository *repository
	layer      v1.Descriptor
}

var _ runtime.Origin = place{}

// Name implements runtime.Origin.
func (p place) Name() string { return p.repository.url(p.layer) }

// Read implements runtime.Origin. The bytes are expected beside those of the whole layers.
func (p place) Read(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
	if offset < 0 || length < 0 || length > p.layer.Size-offset {
		return nil, fmt.Errorf("layer %s: got %d bytes from %d, want some of %d", p.layer.Digest, length, offset,
			p.layer.Size)
	}
	p.repository.guarded.left.Add(length)
	b := p.repository.blob(ctx, p.layer)
	b.at, b.size, b.part = offset, offset+length, length < p.layer.Size
	return b, nil
}
