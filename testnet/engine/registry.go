//go:build linux

package engine

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/starling-network/starling/testnet/natlab"
)

// The credentials for a registry's private images.
const (
	User     = "buyer"
	Password = "hush-registry-password"
)

// Registry is a registry of images that peers reach at the loopback address of their network namespaces, if their
// configuration allows it. Its behaviour depends on the image's name: "private/…" requires a password,
// "broken/manifests…" and "broken/layers…" send other bytes than the pushed ones, "gone/…" closes the connection early.
type Registry struct {
	Addr    string // host:port
	Private string // registry that requires a password

	inner     http.Handler
	blobs     *blobs
	listeners []net.Listener
	mu        sync.Mutex
	layers    map[string]v1.Layer // by the content's name
}

// NewRegistry serves an empty registry from this process, in its network namespace and in others at the same address.
// The caller must Close it.
func NewRegistry(in ...*natlab.Namespace) (*Registry, error) {
	r := &Registry{layers: map[string]v1.Layer{}, blobs: newBlobs()}
	r.inner = registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(r.blobs))
	for i, addr := range []*string{&r.Addr, &r.Private} {
		*addr = "127.0.0.1:0"
		listens := []func(network, addr string) (net.Listener, error){net.Listen}
		for _, n := range in {
			listens = append(listens, n.Listen)
		}
		for _, listen := range listens {
			l, err := listen("tcp", *addr)
			if err != nil {
				return nil, errors.Join(err, r.Close())
			}
			*addr, r.listeners = l.Addr().String(), append(r.listeners, l)
			go func() {
				_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					r.serve(w, req, i == 1)
				}))
			}()
		}
	}
	return r, nil
}

// Addrs are the addresses to allow in the configuration of a peer.
func (r *Registry) Addrs() []string { return []string{r.Addr, r.Private} }

// Close stops the registry.
func (r *Registry) Close() error {
	var errs []error
	for _, l := range r.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request, private bool) {
	repo := strings.TrimPrefix(req.URL.Path, "/v2/")
	user, password, _ := req.BasicAuth()
	if private && (user != User || password != Password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="starling"`)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
		return
	}
	if strings.HasPrefix(repo, "gone/") && strings.Contains(repo, "/blobs/") {
		panic(http.ErrAbortHandler)
	}
	if !strings.HasPrefix(repo, "broken/") || req.Method != http.MethodGet {
		r.inner.ServeHTTP(w, req)
		return
	}
	rec := httptest.NewRecorder()
	r.inner.ServeHTTP(rec, req)
	body := rec.Body.Bytes()
	what := "/manifests/"
	if strings.HasPrefix(repo, "broken/layers") {
		what = "/blobs/"
	}
	if strings.Contains(repo, what) && len(body) > 0 {
		if what == "/manifests/" {
			body = append(body, ' ') // equal JSON, another digest
		} else {
			body[len(body)/2] ^= 1
		}
	}
	for k, v := range rec.Header() {
		if k != "Content-Length" {
			w.Header()[k] = v
		}
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(body)
}

// RoundTrip lets pushes reach the registry without its network.
func (r *Registry) RoundTrip(req *http.Request) (*http.Response, error) {
	served := req.Clone(req.Context()) // a server's request always has a body
	if served.Body == nil {
		served.Body = http.NoBody
	}
	rec := httptest.NewRecorder()
	r.inner.ServeHTTP(rec, served)
	res := rec.Result()
	res.Request = req
	return res, nil
}

// File is a file of an image. Its path ends with a slash if it is a directory.
type File struct {
	Path string
	From string // this machine's file, or
	Text string // its content
	Link string // or the target of a link
	Mode int64  // with set-user-ID and so on; 0 is 0755
	User int    // and group
}

func (r *Registry) layer(files []File) (v1.Layer, error) {
	key := fmt.Sprint(files)
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.layers[key]; known != nil {
		return known, nil
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		content := []byte(f.Text)
		if f.From != "" {
			var err error
			if content, err = os.ReadFile(f.From); err != nil {
				return nil, err
			}
		}
		h := &tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Mode: cmp.Or(f.Mode, 0o755), Size: int64(len(content)),
			Typeflag: tar.TypeReg, Uid: f.User, Gid: f.User}
		if strings.HasSuffix(f.Path, "/") {
			h.Typeflag = tar.TypeDir
		}
		if f.Link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	})
	if err == nil {
		r.layers[key] = layer
	}
	return layer, err
}

// Push makes an image from files for this machine and returns its name, by digest. change is optional; if nil, the
// configuration has only an entrypoint: the first file.
func (r *Registry) Push(repo string, change func(*v1.ConfigFile), files ...File) (string, error) {
	return r.push(repo, nil, files, func(cfg *v1.ConfigFile) {
		cfg.Config.Entrypoint = []string{files[0].Path}
		if change != nil {
			change(cfg)
		}
	})
}

// PushLayers makes an image from layers, the lowest first, and optional files above them. It returns its name, by
// digest. The layers stay in their files until an engine requests them. change changes its configuration, which is
// empty otherwise.
func (r *Registry) PushLayers(
	repo string, change func(*v1.ConfigFile), layers []*Layer, files ...File,
) (string, error) {
	return r.push(repo, layers, files, change)
}

func (r *Registry) push(repo string, below []*Layer, files []File, change func(*v1.ConfigFile)) (string, error) {
	var layers []v1.Layer
	for _, l := range below {
		r.blobs.add(l)
		layers = append(layers, l)
	}
	if len(files) > 0 {
		top, err := r.layer(files)
		if err != nil {
			return "", err
		}
		layers = append(layers, top)
	}
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return "", err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return "", err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	change(cfg)
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		return "", err
	}
	addr := r.Addr
	if strings.HasPrefix(repo, "private/") {
		addr = r.Private
	}
	ref, err := name.NewTag(addr+"/"+path.Clean(repo)+":latest", name.Insecure)
	if err != nil {
		return "", err
	}
	if err := remote.Write(ref, img, remote.WithTransport(r)); err != nil {
		return "", fmt.Errorf("pushing %s: %w", repo, err)
	}
	digest, err := img.Digest()
	return addr + "/" + repo + "@" + digest.String(), err
}
