package fetch

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/node/runtime"
)

// files are the parts of an image as a buyer's peer has them, which may lie.
type files map[string][]byte

func (f files) Digests() []string { return slices.Collect(maps.Keys(f)) }

func (f files) Open(_ context.Context, digest string, max int64) (io.ReadCloser, int64, error) {
	b, ok := f[digest]
	if !ok || int64(len(b)) > max {
		return nil, 0, errors.New("no such part, or too large")
	}
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}

func (f files) put(b []byte) string {
	sum := sha256.Sum256(b)
	f[hex.EncodeToString(sum[:])] = b
	return hex.EncodeToString(sum[:])
}

// remake stores a changed manifest instead of the image's, and returns the image's new name.
func (f files) remake(t require, ref string, change func(m *v1.Manifest)) string {
	digest, _ := runtime.PushedDigest(ref)
	m, err := v1.ParseManifest(bytes.NewReader(f[digest]))
	t.must(err)
	delete(f, digest)
	change(m)
	b, err := json.Marshal(m)
	t.must(err)
	return pushedName(f.put(b))
}

func pushedName(digest string) string { return "pushed.invalid/acme/app:v1@sha256:" + digest }

// require ends a test on an error.
type require interface{ must(err error) }

type fatal struct {
	tb interface{ Fatal(args ...any) }
}

func (f fatal) must(err error) {
	if err != nil {
		f.tb.Fatal(err)
	}
}

// parted returns the parts of an image of some layers, and its name.
func parted(t require, layers ...v1.Layer) (files, string) {
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	t.must(err)
	cfg, err := img.ConfigFile()
	t.must(err)
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", "amd64"
	img, err = mutate.ConfigFile(img, cfg)
	t.must(err)
	out := files{}
	config, err := img.RawConfigFile()
	t.must(err)
	out.put(config)
	for _, l := range layers {
		r, err := l.Compressed()
		t.must(err)
		b, err := io.ReadAll(r)
		t.must(err)
		out.put(b)
	}
	manifest, err := img.RawManifest()
	t.must(err)
	return out, pushedName(out.put(manifest))
}

// load opens and writes an image of parts.
func load(ctx context.Context, ref string, parts runtime.Parts, limit int64) ([]byte, error) {
	i, err := OpenParts(ctx, ref, parts, limit)
	if err != nil {
		return nil, err
	}
	defer i.Close()
	var b bytes.Buffer
	err = i.Write(ctx, &b, "starling.invalid/x:tag", limit, nil, func(int64) error { return nil })
	return b.Bytes(), err
}

// Whatever an image's layers are, its parts become an archive with the same configuration and layers.
func TestParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := fatal{rt}
		var layers []v1.Layer
		for range rapid.IntRange(0, 4).Draw(rt, "layers") {
			texts := rapid.MapOf(rapid.StringMatching(`[a-z]{1,8}`), rapid.StringN(0, 200, 400)).Draw(rt, "files")
			layers = append(layers, archive(t, texts))
		}
		parts, ref := parted(m, layers...)
		got, err := load(t.Context(), ref, parts, large)
		m.must(err)
		img, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(got)), nil }, nil)
		m.must(err)
		config, err := img.ConfigName()
		m.must(err)
		if _, ok := parts[config.Hex]; !ok {
			rt.Errorf("configuration %v is none of the parts", config)
		}
		back, err := img.Layers()
		m.must(err)
		for n, l := range back {
			got, err := l.DiffID()
			m.must(err)
			if want, _ := layers[n].DiffID(); got != want {
				rt.Errorf("layer %d is %v, want %v", n, got, want)
			}
		}
		if len(back) != len(layers) {
			rt.Errorf("%d layers, want %d", len(back), len(layers))
		}
	})
}

// No part is trusted: the parts are those of the manifest, with its sizes and their digests, and the engine never gets the
// end of another archive.
func TestAttackParts(t *testing.T) {
	t.Parallel()
	m := fatal{t}
	text := archive(t, map[string]string{"a": "text"})
	other := archive(t, map[string]string{"b": "another"})
	digest, err := text.Digest()
	m.must(err)
	otherDigest, err := other.Digest()
	m.must(err)
	bomb := archive(t, map[string]string{"zeros": strings.Repeat("\x00", 64<<20)})
	for name, c := range map[string]struct {
		change func(f files, ref string) string // the name to load
		want   string
	}{
		"the manifest lists another layer": {func(f files, ref string) string {
			return f.remake(m, ref, func(m *v1.Manifest) { m.Layers[0].Digest = otherDigest })
		}, "not in the manifest"},
		"the manifest lists one more layer": {func(f files, ref string) string {
			return f.remake(m, ref, func(m *v1.Manifest) {
				m.Layers = append(m.Layers, v1.Descriptor{MediaType: types.OCILayer, Digest: otherDigest, Size: 9})
			})
		}, "is missing"},
		"one more part": {func(f files, ref string) string { f.put([]byte("more")); return ref }, "not in the manifest"},
		"a part less":   {func(f files, ref string) string { delete(f, digest.Hex); return ref }, "is missing"},
		"the name is of another digest": {func(f files, ref string) string {
			first, _ := runtime.PushedDigest(ref)
			f[otherDigest.Hex] = f[first]
			return pushedName(otherDigest.Hex)
		}, "does not match its digest"},
		"a layer of other bytes": {func(f files, ref string) string {
			f[digest.Hex] = bytes.Clone(f[digest.Hex])
			f[digest.Hex][20] ^= 1
			return ref
		}, ""},
		"a layer of another content and the same size": {func(f files, ref string) string {
			f[digest.Hex] = make([]byte, len(f[digest.Hex]))
			return ref
		}, ""},
		"a shorter layer": {func(f files, ref string) string {
			f[digest.Hex] = f[digest.Hex][:len(f[digest.Hex])-1]
			return ref
		}, "does not match the manifest: size"},
		"a layer said to be larger": {func(f files, ref string) string {
			return f.remake(m, ref, func(m *v1.Manifest) { m.Layers[0].Size++ })
		}, "does not match the manifest: size"},
		"a configuration said to be larger": {func(f files, ref string) string {
			return f.remake(m, ref, func(m *v1.Manifest) { m.Config.Size++ })
		}, "does not match the manifest: size"},
		"a large configuration": {func(f files, ref string) string {
			return f.remake(m, ref, func(m *v1.Manifest) { m.Config.Size = spare + 1 })
		}, "configuration: too large"},
		"layers of terabytes": {func(f files, ref string) string {
			return f.remake(m, ref, func(m *v1.Manifest) { m.Layers[0].Size = 1 << 40 })
		}, "layers: over"},
		"a thousand layers": {func(f files, ref string) string {
			return f.remake(m, ref, func(m *v1.Manifest) { m.Layers = slices.Repeat(m.Layers, 1000) })
		}, "layers: got 1000"},
		"a negative size": {func(f files, ref string) string {
			return f.remake(m, ref, func(m *v1.Manifest) { m.Layers[0].Size = -1 })
		}, "malformed manifest"},
		"a layer elsewhere": {func(f files, ref string) string {
			return f.remake(m, ref, func(m *v1.Manifest) { m.Layers[0].URLs = []string{"https://example.org/x"} })
		}, "outside the registry"},
		"an index": {func(f files, ref string) string {
			return f.remake(m, ref, func(m *v1.Manifest) { m.MediaType = types.OCIImageIndex })
		}, "media type"},
		"no manifest": {func(f files, _ string) string { return pushedName(f.put([]byte("\x00"))) }, "malformed manifest"},
		"a name of a registry": {func(_ files, ref string) string {
			return strings.Replace(ref, "pushed.invalid", "ghcr.io", 1)
		}, "malformed name"},
		"a layer that unpacks to more than the limit": {func(f files, _ string) string {
			clear(f)
			parts, ref := parted(m, bomb)
			maps.Copy(f, parts)
			return ref
		}, "unpacked size: over"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts, ref := parted(m, text)
			ref = c.change(parts, ref)
			b, err := load(t.Context(), ref, parts, 32<<20)
			if !errors.Is(err, runtime.ErrBadImage) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one that says %q", err, c.want)
			}
			for r := tar.NewReader(bytes.NewReader(b)); ; {
				h, err := r.Next()
				if err != nil {
					break
				}
				if h.Name == "manifest.json" || h.Name == "index.json" {
					t.Errorf("the engine got %s", h.Name)
				}
			}
		})
	}
}

// The name of a pushed image is no registry's: it is never looked up.
func TestAttackPushedIsNoRegistry(t *testing.T) {
	t.Parallel()
	c, err := New([]string{"pushed.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	ref := pushedName(strings.Repeat("0a", 32))
	if _, err := c.Open(t.Context(), ref, nil, platform, large); !errors.Is(err, runtime.ErrBadImage) ||
		!strings.Contains(err.Error(), "is no registry") {
		t.Errorf("opened: %v", err)
	}
	if _, err := c.Resolve(t.Context(), "pushed.invalid/app:v1", nil); !errors.Is(err, runtime.ErrBadImage) ||
		!strings.Contains(err.Error(), "is no registry") {
		t.Errorf("resolved: %v", err)
	}
}

func FuzzReadManifest(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"digest":"sha256:` +
		strings.Repeat("0a", 32) + `","size":2},"layers":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ReadManifest(text, large)
		if err != nil {
			return
		}
		var sum int64
		for digest, size := range m.Sizes() {
			if len(digest) != 64 || size < 0 {
				t.Fatalf("part %q of %d bytes", digest, size)
			}
			sum += size
		}
		if sum > large || len(m.Layers) > maxLayers {
			t.Fatalf("%d bytes in %d layers", sum, len(m.Layers))
		}
	})
}
