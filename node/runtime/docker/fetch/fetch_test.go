package fetch

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/starling-network/starling/node/runtime"
)

const (
	platform = "linux/amd64"
	large    = 1 << 30
)

// lab is a registry on loopback. serve, if set, may answer in its place, and reports whether it did.
type lab struct {
	*testing.T
	*httptest.Server
	host  string
	serve func(w http.ResponseWriter, req *http.Request) bool
}

func newLab(t *testing.T) *lab {
	l := &lab{T: t}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if l.serve == nil || !l.serve(w, req) {
			inner.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(l.Server.Close)
	l.host = strings.TrimPrefix(l.URL, "http://")
	return l
}

// push returns the name of an image of these layers.
func (l *lab) push(layers ...v1.Layer) string {
	l.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	l.must(err)
	cfg, err := img.ConfigFile()
	l.must(err)
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", "amd64"
	img, err = mutate.ConfigFile(img, cfg)
	l.must(err)
	return l.pushImage(img)
}

func (l *lab) pushImage(img v1.Image) string {
	l.Helper()
	tag, err := name.NewTag(l.host + "/x:latest")
	l.must(err)
	serve := l.serve
	l.serve = nil
	l.must(remote.Write(tag, img))
	l.serve = serve
	d, err := img.Digest()
	l.must(err)
	return l.host + "/x@" + d.String()
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// client is one for which the registry is its operator's.
func (l *lab) client() *Client {
	l.Helper()
	c, err := New([]string{l.host})
	l.must(err)
	return c
}

// read opens and writes an image.
func (l *lab) read(ref string, limit int64) ([]byte, *Image, error) {
	l.Helper()
	i, err := l.client().Open(l.Context(), ref, nil, platform, limit)
	if err != nil {
		return nil, nil, err
	}
	defer i.Close()
	var b bytes.Buffer
	err = i.Write(l.Context(), &b, "starling.invalid/x:tag", limit, nil, func(int64) error { return nil })
	return b.Bytes(), i, err
}

// archive is a layer of files by name.
func archive(t *testing.T, files map[string]string) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}), second(w.Write([]byte(text)))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func second(_ int, err error) error { return err }

// noise is text that does not pack.
func noise(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return string(b)
}

// An image becomes an archive that engines load, whatever its registry's connections do.
func TestArchive(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	big := noise(3 << 20)
	one := archive(t, map[string]string{"a": big})
	ref := l.push(one, archive(t, map[string]string{"b": "text"}), one)
	var broken atomic.Int64
	l.serve = func(w http.ResponseWriter, req *http.Request) bool {
		size, _ := one.Size()
		digest, _ := one.Digest()
		if !strings.HasSuffix(req.URL.Path, digest.String()) || broken.Add(1) > 3 {
			return false
		}
		from := 0
		if r := req.Header.Get("Range"); r != "" {
			_, _ = fmt.Sscanf(r, "bytes=%d-", &from)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, size-1, size))
		}
		w.Header().Set("Content-Length", fmt.Sprint(int(size)-from))
		if from > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		rc, _ := one.Compressed()
		all, _ := io.ReadAll(rc)
		_, _ = w.Write(all[from : from+1<<19])
		panic(http.ErrAbortHandler)
	}
	i, err := l.client().Open(t.Context(), ref, nil, platform, large)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	var b bytes.Buffer
	var done, total, unpacked int64
	if err := i.Write(t.Context(), &b, "starling.invalid/x:tag", large, func(d, n int64) {
		if d < done || d > n {
			t.Errorf("%d of %d after %d", d, n, done)
		}
		done, total = d, n
	}, func(n int64) error { unpacked = n; return nil }); err != nil {
		t.Fatal(err)
	}
	if broken.Load() < 4 {
		t.Errorf("its connection broke %d times", broken.Load())
	}
	if size, _ := one.Size(); done != total || total < size || total > size+1<<10 || i.Bytes < 2*size {
		t.Errorf("%d of %d, %d with repeats", done, total, i.Bytes)
	}
	if want := int64(2*(len(big)+perFile) + len("text") + perFile); unpacked != want {
		t.Errorf("unpacks to %d, want %d", unpacked, want)
	}
	img, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := img.ConfigName(); err != nil || got != i.Config {
		t.Errorf("it has the configuration %v, want %v; %v", got, i.Config, err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 3 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	for n, got := range layers {
		if d, err := got.DiffID(); err != nil || d != i.layers[n].unpacked {
			t.Errorf("layer %d is %v, want %v; %v", n, d, i.layers[n].unpacked, err)
		}
	}
	entries := map[string]string{}
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		entries[h.Name] = string(text)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal([]byte(entries["index.json"]), &index); err != nil || len(index.Manifests) != 1 || index.Manifests[0].Digest != i.Manifest ||
		entries["blobs/sha256/"+i.Manifest.Hex] == "" || !strings.HasSuffix(ref, i.Manifest.String()) {
		t.Errorf("%s, %v", entries["index.json"], err)
	}
}

// An index is one name for the images of several machines.
func TestIndex(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	add := mutate.IndexAddendum{Add: empty.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}}
	index := mutate.AppendManifests(empty.Index, add)
	repo, err := name.NewRepository(l.host + "/x")
	l.must(err)
	d, err := index.Digest()
	l.must(err)
	l.must(remote.WriteIndex(repo.Digest(d.String()), index))
	ref := repo.Digest(d.String()).String()
	if _, _, err := l.read(ref, large); !errors.Is(err, runtime.ErrBadImage) {
		t.Errorf("for another machine: %v", err)
	}
	i, err := l.client().Open(t.Context(), ref, nil, "linux/arm64", large)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if want, _ := empty.Image.Digest(); i.Manifest != want {
		t.Errorf("got %v", i.Manifest)
	}
}

// victim counts who connects to an address of this machine, which no order may lead to.
func victim(t *testing.T) (host string, calls *atomic.Int64) {
	t.Helper()
	calls = &atomic.Int64{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"token":"SESSION-TOKEN-OF-THE-PROVIDER"}`)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			calls.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), calls
}

// The name of an image, and all that its registry says, is an address of a stranger's choice: the registry here is hostile, and allowed, so
// that it can be on this machine.
func TestAttackImageLeadsInside(t *testing.T) {
	t.Parallel()
	const digest = "@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	answer := func(status int, header, value string) func(l *lab) {
		return func(l *lab) {
			l.serve = func(w http.ResponseWriter, req *http.Request) bool {
				if req.URL.Path == "/v2/" && status/100 == 3 {
					return false
				}
				w.Header().Set(header, value)
				w.WriteHeader(status)
				return true
			}
		}
	}
	for what, attack := range map[string]func(l *lab, inside string) (ref string, set func(l *lab)){
		"name": func(_ *lab, inside string) (string, func(*lab)) { return inside + "/x" + digest, nil },
		"token realm": func(l *lab, inside string) (string, func(*lab)) {
			return l.host + "/x" + digest, answer(http.StatusUnauthorized, "WWW-Authenticate", `Bearer realm="http://`+inside+`/latest/meta-data",service="x"`)
		},
		"token realm over HTTPS": func(l *lab, inside string) (string, func(*lab)) {
			return l.host + "/x" + digest, answer(http.StatusUnauthorized, "WWW-Authenticate", `Bearer realm="https://`+inside+`/latest/meta-data",service="x"`)
		},
		"redirect of the manifest": func(l *lab, inside string) (string, func(*lab)) {
			return l.host + "/x" + digest, answer(http.StatusTemporaryRedirect, "Location", "https://"+inside+"/page")
		},
		"redirect over plain HTTP": func(l *lab, inside string) (string, func(*lab)) {
			return l.host + "/x" + digest, answer(http.StatusTemporaryRedirect, "Location", "http://"+inside+"/page")
		},
		"redirect of a token's realm": func(l *lab, inside string) (string, func(*lab)) {
			return l.host + "/x" + digest, func(l *lab) {
				l.serve = func(w http.ResponseWriter, req *http.Request) bool {
					if req.URL.Path == "/realm" {
						http.Redirect(w, req, "https://"+inside+"/latest/meta-data", http.StatusFound)
						return true
					}
					w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+l.host+`/realm",service="x"`)
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
			}
		},
		"redirect of a layer": func(l *lab, inside string) (string, func(*lab)) {
			layer := archive(l.T, map[string]string{"a": "text"})
			ref := l.push(layer)
			at, _ := layer.Digest()
			return ref, func(l *lab) {
				l.serve = func(w http.ResponseWriter, req *http.Request) bool {
					if !strings.HasSuffix(req.URL.Path, at.String()) {
						return false
					}
					http.Redirect(w, req, "https://"+inside+"/layer", http.StatusFound)
					return true
				}
			}
		},
		"layer that lies elsewhere": func(l *lab, inside string) (string, func(*lab)) {
			img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: archive(l.T, map[string]string{"a": "text"}), URLs: []string{"https://" + inside + "/layer"}})
			l.must(err)
			ref := l.pushImage(img)
			return ref, func(l *lab) {
				l.serve = func(w http.ResponseWriter, req *http.Request) bool {
					if blob := strings.Contains(req.URL.Path, "/blobs/"); !blob {
						return false
					}
					w.WriteHeader(http.StatusNotFound)
					return true
				}
			}
		},
	} {
		for kind, host := range map[string]string{"an address": "127.0.0.1", "a name": "localhost"} {
			t.Run(what+" with "+kind, func(t *testing.T) {
				t.Parallel()
				at, calls := victim(t)
				_, port, _ := strings.Cut(at, ":")
				l := newLab(t)
				ref, set := attack(l, host+":"+port)
				if set != nil {
					set(l)
				}
				_, _, err := l.read(ref, large)
				if n := calls.Load(); n > 0 || err == nil {
					t.Errorf("%d connections to this machine, %v", n, err)
				}
				var f *runtime.Failure
				if !errors.As(err, &f) || strings.Contains(f.Told(), port) || strings.Contains(f.Told(), "refused") {
					t.Errorf("its buyer is told %v", err)
				}
			})
		}
	}
}

// Whether anything is at an address inside cannot be told from what a buyer is told.
func TestAttackImageScansPorts(t *testing.T) {
	t.Parallel()
	at, _ := victim(t)
	l := newLab(t)
	said := map[string]bool{}
	for _, host := range []string{at, "127.0.0.1:1", "localhost:22", "169.254.169.254", "10.0.0.1:22", "nowhere.invalid", "[::1]:80"} {
		_, _, err := l.read(host+"/x@sha256:"+strings.Repeat("1", 64), large)
		var f *runtime.Failure
		if !errors.As(err, &f) {
			t.Fatalf("%s: %v", host, err)
		}
		said[f.Told()] = true
	}
	if len(said) != 1 {
		t.Errorf("%d answers: %v", len(said), said)
	}
}

// What a registry sends is bounded, whatever it says about it.
func TestAttackImageFloods(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("\x00", 8<<20)
	files := map[string]string{}
	for i := range 3000 {
		files[fmt.Sprint(i)] = ""
	}
	bomb := archive(t, map[string]string{"zeros": zeros})
	for what, c := range map[string]struct {
		ref   func(l *lab) string
		limit int64
		class error
	}{
		"a layer that unpacks to too much":  {func(l *lab) string { return l.push(bomb) }, 4 << 20, runtime.ErrBadImage},
		"a layer that is there often":       {func(l *lab) string { return l.push(bomb, bomb, bomb) }, 20 << 20, runtime.ErrBadImage},
		"very many empty files":             {func(l *lab) string { return l.push(archive(t, files)) }, 8 << 20, runtime.ErrBadImage},
		"layers that are too large, packed": {func(l *lab) string { return l.push(archive(t, map[string]string{"a": noise(2 << 20)})) }, 1 << 20, runtime.ErrBadImage},
		"more layers than can be stacked": {func(l *lab) string {
			var all []v1.Layer
			for range maxLayers + 1 {
				all = append(all, static.NewLayer([]byte("x"), types.DockerUncompressedLayer))
			}
			return l.push(all...)
		}, large, runtime.ErrBadImage},
		"a layer that is no archive": {func(l *lab) string {
			return l.push(static.NewLayer([]byte(noise(4096)), types.DockerUncompressedLayer))
		}, large, runtime.ErrBadImage},
		"an endless token": {func(l *lab) string {
			l.serve = func(w http.ResponseWriter, req *http.Request) bool {
				w.WriteHeader(http.StatusUnauthorized)
				for req.Context().Err() == nil {
					if _, err := io.WriteString(w, zeros); err != nil {
						return true
					}
				}
				return true
			}
			return l.host + "/x@sha256:" + strings.Repeat("1", 64)
		}, large, runtime.ErrRegistry},
		"redirects without end": {func(l *lab) string {
			l.serve = func(w http.ResponseWriter, req *http.Request) bool {
				if req.URL.Path == "/v2/" {
					return false
				}
				n := len(req.URL.Query().Get("n"))
				if n > maxRedirects {
					l.Errorf("%d redirects were followed", n)
				}
				http.Redirect(w, req, "/v2/x?n="+url.QueryEscape(strings.Repeat("n", n+1)), http.StatusFound)
				return true
			}
			return l.host + "/x@sha256:" + strings.Repeat("1", 64)
		}, large, runtime.ErrRegistry},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			if _, _, err := l.read(c.ref(l), c.limit); !errors.Is(err, c.class) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Nothing that the engine could take for an image is written when there is no room for it.
func TestRefusedAtTheEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	i, err := l.client().Open(t.Context(), l.push(archive(t, map[string]string{"a": "text"})), nil, platform, large)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	var b bytes.Buffer
	full := errors.New("full")
	if err := i.Write(t.Context(), &b, "starling.invalid/x:tag", large, nil, func(int64) error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if bytes.Contains(b.Bytes(), []byte("manifest.json")) || bytes.Contains(b.Bytes(), []byte("index.json")) {
		t.Error("it is an image all the same")
	}
}

// What a stranger writes into an error reaches the operator's log shortened and without the job's password, and its buyer not at all.
func TestErrorsAreClean(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.serve = func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path == "/v2/" {
			return false
		}
		_, password, _ := req.BasicAuth()
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"errors":[{"code":"DENIED","message":"`+password+" hush-password "+strings.Repeat("long ", 1000)+`"}]}`)
		return true
	}
	_, err := l.client().Open(t.Context(), l.host+"/x@sha256:"+strings.Repeat("1", 64), &runtime.RegistryAuth{Username: "me", Password: "hush-password"}, platform, large)
	if !errors.Is(err, runtime.ErrCredentials) || strings.Contains(err.Error(), "hush") || len(err.Error()) > 2*maxCause {
		t.Errorf("got %v", err)
	}
	var f *runtime.Failure
	if !errors.As(err, &f) || strings.Contains(f.Told(), "long") {
		t.Errorf("its buyer is told %v", err)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"127.0.0.1:5000": true, "registry.lan": true, "": false, "http://x": false, "x/y": false, "a b": false} {
		if _, err := New([]string{text}); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	c, err := New([]string{"registry.lan"})
	if err != nil || !c.dials["registry.lan:443"] || !c.dials["registry.lan:80"] {
		t.Errorf("%v, %v", c, err)
	}
	// An image of another registry leads to none of the operator's.
	if g := c.newGuarded(false); g.plain["registry.lan"] {
		t.Error("a stranger's image may lead to the operator's registry")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Open(ctx, "registry.lan/x@sha256:"+strings.Repeat("1", 64), nil, platform, large); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}
