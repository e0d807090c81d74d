//go:build unix

package imagecmd

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/klauspost/compress/gzip"
	"github.com/spf13/cobra"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
	"github.com/starling-network/starling/p2p/blob"
)

// m is a JSON object.
type m = map[string]any

// file is an entry of an archive: a link if Text is nil.
type file struct {
	Name string
	Text []byte
	Link string
}

func tarOf(t fatal, files ...file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.Text))}
		if f.Text == nil {
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		}
		t.must(w.WriteHeader(h))
		_, err := w.Write(f.Text)
		t.must(err)
	}
	t.must(w.Close())
	return b.Bytes()
}

// fatal ends a test on an error.
type fatal struct {
	tb interface{ Fatal(args ...any) }
}

func (f fatal) must(err error) {
	if err != nil {
		f.tb.Fatal(err)
	}
}

func (f fatal) json(v any) []byte {
	b, err := json.Marshal(v)
	f.must(err)
	return b
}

func digest(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func zipped(t fatal, b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	t.must(err)
	t.must(z.Close())
	return out.Bytes()
}

// configOf is the configuration of an image with these layers.
func configOf(t fatal, arch string, layers [][]byte) []byte {
	ids := []string{}
	for _, l := range layers {
		ids = append(ids, "sha256:"+digest(l))
	}
	return t.json(m{"os": "linux", "architecture": arch, "config": m{"Cmd": []string{"/app"}}, "rootfs": m{"type": "layers", "diff_ids": ids}})
}

// old is an archive as docker save of old engines writes it, with a link for a repeated layer.
func old(t fatal, layers [][]byte) []byte {
	config := configOf(t, "amd64", layers)
	files := []file{{Name: "repositories", Text: t.json(m{})}}
	var names []string
	first := map[string]int{}
	for i, l := range layers {
		dir := fmt.Sprintf("%064x", i)
		files = append(files, file{Name: dir + "/VERSION", Text: []byte("1.0")}, file{Name: dir + "/json", Text: t.json(m{"id": dir})})
		f := file{Name: dir + "/layer.tar", Text: l}
		if n, again := first[digest(l)]; again {
			f = file{Name: f.Name, Link: fmt.Sprintf("../%064x/layer.tar", n)}
		} else {
			first[digest(l)] = i
		}
		files, names = append(files, f), append(names, f.Name)
	}
	files = append(files, file{Name: digest(config) + ".json", Text: config},
		file{Name: "manifest.json", Text: t.json([]m{{"Config": digest(config) + ".json", "RepoTags": []string{"app:dev"}, "Layers": names}})})
	return tarOf(t, files...)
}

// layout is an OCI layout with layers compressed or not, in which an attestation and another platform are too.
func layout(t fatal, layers [][]byte, pack func(fatal, []byte) []byte) []byte {
	const media = "application/vnd.oci.image."
	files := map[string][]byte{"oci-layout": t.json(m{"imageLayoutVersion": "1.0.0"})}
	put := func(kind string, b []byte, more m) m {
		files["blobs/sha256/"+digest(b)] = b
		d := m{"mediaType": media + kind, "digest": "sha256:" + digest(b), "size": len(b)}
		maps.Copy(d, more)
		return d
	}
	manifest := func(arch string, of [][]byte) m {
		var all []m
		for _, l := range of {
			all = append(all, put("layer.v1.tar+gzip", pack(t, l), nil))
		}
		return put("manifest.v1+json", t.json(m{"schemaVersion": 2, "mediaType": media + "manifest.v1+json",
			"config": put("config.v1+json", configOf(t, arch, of), nil), "layers": all}), m{"platform": m{"os": "linux", "architecture": arch}})
	}
	attestation := put("manifest.v1+json", t.json(m{"schemaVersion": 2}), m{"platform": m{"os": "unknown", "architecture": "unknown"}})
	index := put("index.v1+json", t.json(m{"schemaVersion": 2, "manifests": []m{manifest("arm64", nil), manifest("amd64", layers), attestation}}), nil)
	files["index.json"] = t.json(m{"schemaVersion": 2, "manifests": []m{index}})
	var all []file
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all = append(all, file{Name: name, Text: files[name]})
	}
	return tarOf(t, all...)
}

func plain(_ fatal, b []byte) []byte { return b }

// kept are stored parts, by digest.
type kept map[string][]byte

func (k kept) store(_ context.Context, p part, r io.ReadSeeker) error {
	b, err := io.ReadAll(r)
	if err != nil || digest(b) != p.Digest || int64(len(b)) != p.Size {
		return errors.Join(fmt.Errorf("part %+v has %d bytes of %s", p, len(b), digest(b)), err)
	}
	k[p.Digest] = b
	return nil
}

func (k kept) Digests() []string { return slices.Collect(maps.Keys(k)) }

func (k kept) Open(_ context.Context, digest string, _ int64) (io.ReadCloser, int64, error) {
	return io.NopCloser(bytes.NewReader(k[digest])), int64(len(k[digest])), nil
}

// Whatever engine wrote an archive, its parts pass all checks of a provider, and an image has one name: the archives of both
// engines, and a compressed one, become equal manifests.
func TestArchives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := fatal{rt}
		var layers [][]byte
		for i := range rapid.IntRange(0, 4).Draw(rt, "layers") {
			name := rapid.SampledFrom([]string{"a", "{b", "c"}).Draw(rt, "file")
			layers = append(layers, tarOf(f, file{Name: name, Text: bytes.Repeat([]byte{byte(i % 2)}, rapid.IntRange(0, 3000).Draw(rt, "size"))}))
		}
		manifests := map[string]bool{}
		for kind, b := range map[string][]byte{"old": old(f, layers), "layout": layout(f, layers, plain), "compressed": zipped(f, old(f, layers)),
			"compressed layers": layout(f, layers, zipped)} {
			parts := kept{}
			i, err := readArchive(t.Context(), bytes.NewReader(b), parts.store)
			if err != nil {
				rt.Fatalf("%s: %v", kind, err)
			}
			for digest := range parts { // of another platform, or an attestation
				if !slices.ContainsFunc(i.Layers, func(p part) bool { return p.Digest == digest }) {
					delete(parts, digest)
				}
			}
			f.must(parts.store(t.Context(), partOf(i.Config), bytes.NewReader(i.Config)))
			f.must(parts.store(t.Context(), partOf(i.Manifest), bytes.NewReader(i.Manifest)))
			opened, err := fetch.OpenParts(t.Context(), pushedName(i.Name, digest(i.Manifest)), parts, 1<<30)
			if err == nil {
				err = opened.Write(t.Context(), io.Discard, "starling.invalid/order:x", 1<<30, nil, func(int64) error { return nil })
			}
			if err != nil || i.Platform != usual || len(i.Layers) != len(layers) {
				rt.Fatalf("%s: %s with %d layers of %d: %v", kind, i.Platform, len(i.Layers), len(layers), err)
			}
			manifests[string(i.Manifest)] = true
		}
		if len(manifests) != 1 {
			rt.Errorf("one image has %d manifests", len(manifests))
		}
	})
}

// Files that are no archive of one image are errors.
func TestNoArchive(t *testing.T) {
	t.Parallel()
	f := fatal{t}
	layer := tarOf(f, file{Name: "a", Text: []byte("a")})
	config := configOf(f, "amd64", [][]byte{layer})
	described := func(all ...m) file { return file{Name: "manifest.json", Text: f.json(all)} }
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"nothing":         {nil, "no archive of an image"},
		"text":            {[]byte(strings.Repeat("text ", 400)), "reading the archive"},
		"another tar":     {layer, "no archive of an image"},
		"cut off":         {old(f, [][]byte{layer, layer})[:5000], "unexpected EOF"},
		"no images":       {tarOf(f, described()), "has no image"},
		"two images":      {tarOf(f, described(m{}, m{})), "several images"},
		"no config":       {tarOf(f, described(m{"Config": "c.json"})), "no configuration c.json"},
		"no layer":        {tarOf(f, file{Name: "c.json", Text: config}, described(m{"Config": "c.json", "Layers": []string{"l"}})), "no layer l"},
		"one layer fewer": {tarOf(f, file{Name: "c.json", Text: config}, described(m{"Config": "c.json"})), "does not match its layers"},
		"not JSON":        {tarOf(f, file{Name: "manifest.json", Text: []byte("{")}), "manifest.json"},
	} {
		if _, err := readArchive(t.Context(), bytes.NewReader(c.archive), kept{}.store); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one that says %q", name, err, c.want)
		}
	}
}

// The name of a pushed image is its own without a registry.
func TestPushedName(t *testing.T) {
	t.Parallel()
	d := strings.Repeat("0a", 32)
	for name, want := range map[string]string{
		"app": "app", "app:dev": "app:dev", "acme/app:v1": "acme/app:v1", "ghcr.io/acme/app:v1": "acme/app:v1", "localhost/app:latest": "app:latest",
		"localhost:5000/app": "app", "docker.io/library/debian:12": "debian:12", "app@sha256:" + d: "app", "": "image", "0f3a": "0f3a",
		d: "image", strings.Repeat("x", 500): "image",
	} {
		got := pushedName(name, d)
		if got != "pushed.invalid/"+want+"@sha256:"+d {
			t.Errorf("%s: %s", name, got)
		}
		if _, ok := runtime.PushedDigest(got); !ok {
			t.Errorf("%s is not the name of a pushed image", got)
		}
	}
}

// shelf is the blobs of a fake peer.
type shelf struct {
	mu    sync.Mutex
	blobs map[string][]byte // by CID
	puts  int
}

func (s *shelf) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.blobs[r.PathValue("cid")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(b)
}

func (s *shelf) put(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := blob.Sum(b)
	s.blobs[c.String()] = b
	s.puts++
	_ = json.NewEncoder(w).Encode(record.Blob{CID: c.String(), Size: int64(len(b))})
}

// An image of docker is stored on the peer in parts, each once, and has the same name each time. A file of docker save is the
// same image.
func TestPush(t *testing.T) {
	t.Parallel()
	f := fatal{t}
	s := &shelf{blobs: map[string][]byte{}}
	p := clitest.NewAnswering(t, []func(*cli.App) *cobra.Command{NewImage}, clitest.Network, clitest.Answers{
		"GET /v1/blobs/{cid}": http.HandlerFunc(s.get), "POST /v1/blobs": http.HandlerFunc(s.put)})
	layer := tarOf(f, file{Name: "app", Text: bytes.Repeat([]byte("app"), 1000)})
	archive := old(f, [][]byte{layer, tarOf(f, file{Name: "more", Text: []byte("more")}), layer})
	saved := p.File(t, "app.tar", string(archive))
	docker := fmt.Sprintf("#!/bin/sh\n[ \"$2\" = save ] && exec cat %s\n[ \"$5\" = app:dev ] && echo sha256:%064d 12000\n", saved, 7)
	dir := filepath.Dir(saved)
	f.must(os.WriteFile(filepath.Join(dir, "docker"), []byte(docker), 0o700))
	p.Env = map[string]string{"PATH": dir + ":/usr/bin:/bin"}
	first := p.CLI(t, "image", "push", "app:dev").Want(t, cli.ExitOK, `^app:dev is on the peer as pushed.invalid/app:dev@sha256:\w{64}: 3 layers, `).Not(t, "warning")
	name := strings.TrimSpace(first.Out)
	digest, ok := runtime.PushedDigest(name)
	if !ok || s.puts != 4 {
		t.Fatalf("%q, %d files were uploaded, want 4", name, s.puts)
	}
	for _, args := range [][]string{{"app:dev"}, {saved}} {
		p.CLI(t, append([]string{"image", "push"}, args...)...).Want(t, cli.ExitOK, `of which 0.0 KiB were uploaded`, `^`+name+`$`)
	}
	p.CLI(t, "image", "push", "-o", "json", saved).Want(t, cli.ExitOK, `"image": "`+name+`"`, `"uploaded": 0`, `"layers": 3`)
	if s.puts != 4+3 { // the manifest comes with the image's name each time
		t.Errorf("%d files were uploaded, want 7", s.puts)
	}
	text := s.blobs[cidOf(f, digest).String()]
	manifest, err := fetch.ReadManifest(text, 1<<30)
	f.must(err)
	for part := range manifest.Sizes() {
		if s.blobs[cidOf(f, part).String()] == nil {
			t.Errorf("part %s is not there", part)
		}
	}
	arm := p.File(t, "arm.tar", string(tarOf(f, file{Name: "c.json", Text: configOf(f, "arm64", nil)},
		file{Name: "manifest.json", Text: f.json([]m{{"Config": "c.json"}})})))
	p.CLI(t, "image", "push", arm).Want(t, cli.ExitOK, `^warning: the image is made for linux/arm64, .*--platform linux/amd64`)
	p.CLI(t, "image", "push", "other:dev").Want(t, cli.ExitUsage, `no such image`)
	p.CLI(t, "image", "push", p.File(t, "text", "text")).Want(t, cli.ExitFailed, `^starling: text: `)
}

func cidOf(f fatal, digest string) cid.Cid {
	spec, err := job.Job{}.WithImageParts(map[string]int64{digest: 1})
	f.must(err)
	c, err := cid.Parse(spec.Blobs[job.PartScheme+digest].CID)
	f.must(err)
	return c
}

// A job that no registry gives an image runs with docker's image of that name, and only then: a job with credentials means
// the registry's, and a job that is refused for another reason is refused.
func TestLocalImage(t *testing.T) {
	t.Parallel()
	f := fatal{t}
	s := &shelf{blobs: map[string][]byte{}}
	p := clitest.NewAnswering(t, nil, clitest.Network, clitest.Answers{
		"GET /v1/blobs/{cid}": http.HandlerFunc(s.get), "POST /v1/blobs": http.HandlerFunc(s.put)})
	saved := p.File(t, "app.tar", string(old(f, [][]byte{tarOf(f, file{Name: "app", Text: []byte("app")})})))
	dir := filepath.Dir(saved)
	docker := fmt.Sprintf("#!/bin/sh\n[ \"$2\" = save ] && exec cat %s\n[ \"$5\" = app:dev ] && echo sha256:%064d 12000\n", saved, 7)
	f.must(os.WriteFile(filepath.Join(dir, "docker"), []byte(docker), 0o700))
	var said clitest.Buffer
	a := &cli.App{Err: &said, Getenv: func(name string) string {
		return map[string]string{"PATH": dir + ":/usr/bin:/bin", "STARLING_HOME": p.Home}[name]
	}}
	c, err := a.Client()
	f.must(err)
	absent := &api.Error{Code: api.CodeNoImage, Message: "job refused: spec.image: app:dev: not found in the registry"}
	for name, x := range map[string]struct {
		spec    job.Job
		refusal error
		local   bool
	}{
		"absent":          {job.Job{Image: "app:dev"}, absent, true},
		"another image":   {job.Job{Image: "other:dev"}, absent, false},
		"another refusal": {job.Job{Image: "app:dev"}, errors.New("job refused: spec.count: too many"), false},
		"credentials":     {job.Job{Image: "app:dev", Registry: &job.Registry{Docker: true}}, absent, false},
		"a pushed image that is gone": {job.Job{Image: "pushed.invalid/app:dev@sha256:" + strings.Repeat("0a", 32)},
			&api.Error{Code: api.CodeNoImage, Message: "job refused: spec.image: the image is not on this peer"}, false},
		"a module": {job.Job{Module: "app.wasm"}, absent, false},
	} {
		spec, err := LocalImage(t.Context(), a, c, x.spec, x.refusal)
		_, pushed := runtime.PushedDigest(spec.Image)
		if x.local && (err != nil || !pushed) || !x.local && (!errors.Is(err, x.refusal) || spec.Image != x.spec.Image) {
			t.Errorf("%s: image %q, %v", name, spec.Image, err)
		}
	}
	if text := said.String(); !strings.Contains(text, "no registry gives app:dev: docker's image of this name, 11.7 KiB, goes to the peer") ||
		!strings.Contains(text, "app:dev is on the peer as pushed.invalid/app:dev@sha256:") {
		t.Errorf("said %q", text)
	}
	f.must(os.WriteFile(filepath.Join(dir, "docker"), []byte(strings.Replace(docker, "exec cat", "echo no space left >&2 && exit 1; : ", 1)), 0o700))
	if _, err := LocalImage(t.Context(), a, c, job.Job{Image: "app:dev"}, absent); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("docker fails: %v", err)
	}
}
