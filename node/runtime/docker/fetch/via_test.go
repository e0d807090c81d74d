package fetch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/node/runtime"
)

// bag has contents of layers by digest, which may lie.
type bag struct {
	all   map[string][]byte
	begun []runtime.Layer
}

func (b *bag) Begin(_ context.Context, layers []runtime.Layer) { b.begun = append(b.begun, layers...) }

func (b *bag) Open(_ context.Context, l runtime.Layer) io.ReadCloser {
	if content := b.all[l.Digest]; content != nil {
		return io.NopCloser(bytes.NewReader(content))
	}
	return nil
}

// through writes an image with its layers through a bag, and counts the requests for layers.
func (l *lab) through(ref string, b *bag, limit int64) (archive []byte, asked int64, err error) {
	l.Helper()
	var n atomic.Int64
	i, err := l.client().Open(l.Context(), ref, nil, platform, large)
	l.must(err)
	defer i.Close()
	l.serve = func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/blobs/") {
			n.Add(1)
		}
		return false
	}
	i.Via(b)
	var out bytes.Buffer
	err = i.Write(l.Context(), &out, "starling.invalid/x:tag", limit, nil, func(int64) error { return nil })
	return out.Bytes(), n.Load(), err
}

func packed(t *testing.T, l v1.Layer) (digest string, content []byte) {
	t.Helper()
	r, err := l.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	content, err = io.ReadAll(r)
	d, derr := l.Digest()
	if err := errors.Join(err, derr); err != nil {
		t.Fatal(err)
	}
	return d.Hex, content
}

// The layers that come through another source are not read from the registry, and the archive is the same.
func TestVia(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	one, two := archive(t, map[string]string{"a": noise(1 << 20)}), archive(t, map[string]string{"b": noise(1 << 20)})
	ref := l.push(one, two, one)
	want, _, err := l.read(ref, large)
	l.must(err)
	first, content := packed(t, one)
	second, other := packed(t, two)
	for name, test := range map[string]struct {
		all   map[string][]byte
		asked int64
	}{
		"both": {map[string][]byte{first: content, second: other}, 0},
		"one":  {map[string][]byte{first: content}, 1},
		"none": {nil, 2},
	} {
		b := &bag{all: test.all}
		got, asked, err := l.through(ref, b, large)
		if err != nil || !bytes.Equal(got, want) || asked != test.asked {
			t.Errorf("%s: %v, the same: %v, registry asked %d times, want %d", name, err, bytes.Equal(got, want), asked, test.asked)
		}
		if len(b.begun) != 2 || b.begun[0].Digest != first || b.begun[1].Size != int64(len(other)) {
			t.Errorf("%s: begun with %v", name, b.begun)
		}
	}
}

// Parts of a layer can be read from its registry, and nothing outside of it.
func TestOriginParts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	layer := archive(t, map[string]string{"a": noise(100 << 10)})
	_, content := packed(t, layer)
	i, err := l.client().Open(t.Context(), l.push(layer), nil, platform, large)
	l.must(err)
	defer i.Close()
	b := &bag{}
	i.Via(b)
	i.source.expect(t.Context(), 0)
	from, size := b.begun[0].From, int64(len(content))
	if !strings.HasPrefix(from.Name(), "http://"+l.host+"/v2/x/blobs/sha256:") {
		t.Errorf("name %q", from.Name())
	}
	for _, part := range [][2]int64{{0, size}, {0, 10}, {7, 100}, {size - 1, 1}, {size, 0}, {0, 0}} {
		r, err := from.Read(t.Context(), part[0], part[1])
		l.must(err)
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, content[part[0]:part[0]+part[1]]) {
			t.Errorf("%v: %d bytes, %v", part, len(got), err)
		}
		r.Close()
	}
	for _, part := range [][2]int64{{-1, 1}, {0, -1}, {0, size + 1}, {size, 1}, {1, 1<<63 - 1}} {
		if _, err := from.Read(t.Context(), part[0], part[1]); err == nil {
			t.Errorf("%v: no error", part)
		}
	}
}

// A layer that comes through another source passes the same checks: its bytes, its length, and its unpacked size.
func TestAttackLayerThroughVia(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	layer := archive(t, map[string]string{"a": noise(64 << 10)})
	ref := l.push(layer)
	digest, content := packed(t, layer)
	bomb := archive(t, map[string]string{"zeros": strings.Repeat("0", 8<<20)})
	bombed := l.push(bomb)
	bombDigest, fuse := packed(t, bomb)
	changed := bytes.Clone(content)
	changed[len(changed)/2] ^= 1
	for name, test := range map[string]struct {
		ref, digest string
		content     []byte
		limit       int64
		ok          bool
	}{
		"right":      {ref, digest, content, large, true},
		"with more":  {ref, digest, append(bytes.Clone(content), content...), large, true}, // is not read
		"other":      {ref, digest, changed, large, false},
		"truncated":  {ref, digest, content[:len(content)-1], large, false},
		"empty":      {ref, digest, []byte{}, large, false},
		"no archive": {ref, digest, bytes.Repeat([]byte("x"), len(content)), large, false},
		"other's":    {ref, digest, fuse, large, false},
		"bomb":       {bombed, bombDigest, fuse, 1 << 20, false},
	} {
		_, asked, err := l.through(test.ref, &bag{all: map[string][]byte{test.digest: test.content}}, test.limit)
		if (err == nil) != test.ok || err != nil && !errors.Is(err, runtime.ErrBadImage) || asked != 0 {
			t.Errorf("%s: %v, registry asked %d times", name, err, asked)
		}
	}
}
