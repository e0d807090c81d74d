package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/node/runtime"
)

// Manifest is an image's manifest with checked form.
type Manifest struct {
	Config v1.Descriptor
	Layers []v1.Descriptor // the lowest first
	Media  string
}

// ReadManifest reads the manifest of an image whose configuration and layers may have limit bytes in all. It accepts no
// index of several platforms. Its error is a *runtime.Failure of ErrBadImage.
func ReadManifest(text []byte, limit int64) (Manifest, error) {
	m, err := v1.ParseManifest(strings.NewReader(string(text)))
	if err != nil {
		return Manifest{}, bad("malformed manifest", err)
	}
	if !m.MediaType.IsImage() {
		return Manifest{}, bad(fmt.Sprintf("manifest: media type: got %.80q, want that of an image",
			string(m.MediaType)), nil)
	}
	return Manifest{m.Config, m.Layers, string(m.MediaType)}, checkManifest(m, limit)
}

// Sizes are the files that a manifest lists: their sizes by SHA-256, hexadecimal.
func (m Manifest) Sizes() map[string]int64 {
	out := map[string]int64{m.Config.Digest.Hex: m.Config.Size}
	for _, l := range m.Layers {
		out[l.Digest.Hex] = l.Size
	}
	return out
}

// OpenParts reads the description of a pushed image from its parts: exactly the manifest, and the files in it. Layers
// may have limit bytes in all. Its errors are a *runtime.Failure of ErrBadImage, those of the parts, or ctx's. Close
// the image.
func OpenParts(ctx context.Context, ref string, parts runtime.Parts, limit int64) (*Image, error) {
	digest, ok := runtime.PushedDigest(ref)
	if !ok {
		return nil, bad("malformed name", errors.New("not that of a pushed image"))
	}
	p := opened{parts}
	i := &Image{source: p, Manifest: v1.Hash{Algorithm: "sha256", Hex: digest}}
	var err error
	if i.manifest, err = p.read(ctx, digest, runtime.MaxManifest); err != nil {
		return nil, p.failed(ctx, err)
	}
	m, err := ReadManifest(i.manifest, limit)
	if err != nil {
		return nil, err
	}
	i.describe(m)
	if err := p.exactly(digest, m); err != nil {
		return nil, err
	}
	if i.JSON, err = p.read(ctx, m.Config.Digest.Hex, m.Config.Size); err != nil {
		return nil, p.failed(ctx, err)
	}
	if int64(len(i.JSON)) != m.Config.Size {
		return nil, otherSize("the configuration", int64(len(i.JSON)), m.Config.Size)
	}
	return i, i.pair()
}

// opened are the parts of a pushed image, as a source.
type opened struct{ runtime.Parts }

func (opened) expect(context.Context, int64) {}

func (opened) close() {}

func (p opened) layer(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	content, size, err := p.Open(ctx, d.Digest.Hex, d.Size)
	if err != nil {
		return nil, err
	}
	if size != d.Size {
		content.Close()
		return nil, otherSize("a layer", size, d.Size)
	}
	return content, nil
}

func (opened) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// exactly holds the parts to the manifest: no part is missing, and there is no other one.
func (p opened) exactly(manifest string, m Manifest) error {
	want := m.Sizes()
	if _, listed := want[manifest]; listed {
		return bad("the manifest lists itself", nil)
	}
	want[manifest] = int64(0)
	got := p.Digests()
	for _, d := range got {
		if _, ok := want[d]; !ok {
			return bad(fmt.Sprintf("part sha256:%.64s: not in the manifest", d), nil)
		}
	}
	for d := range want {
		if !slices.Contains(got, d) {
			return bad(fmt.Sprintf("part sha256:%.64s of the manifest is missing", d), nil)
		}
	}
	return nil
}

// read reads a small part of at most max bytes and checks its digest.
func (p opened) read(ctx context.Context, digest string, max int64) ([]byte, error) {
	content, _, err := p.Open(ctx, digest, max)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	b, err := io.ReadAll(io.LimitReader(content, max+1))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != digest {
		return nil, bad("a part does not match its digest", fmt.Errorf("part %.64s: digest: got %x", digest, sum))
	}
	return b, nil
}

func otherSize(part string, got, want int64) error {
	return bad(fmt.Sprintf("%s does not match the manifest: size: got %d bytes, want %d", part, got, want), nil)
}
