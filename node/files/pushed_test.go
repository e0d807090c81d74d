package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/blob"
)

// others is the images of jobs of others.
type others struct{}

func (others) Images(context.Context) ([]api.ImageInfo, error) {
	return []api.ImageInfo{{ID: "other"}}, nil
}

func (others) RemoveImage(_ context.Context, id string) error {
	return map[string]error{"other": nil}[id]
}

// rack is a store with pushed images.
type rack struct {
	*testing.T
	*Files
	blobs *blob.Store
	jobs  user
}

func newRack(t *testing.T) *rack {
	t.Helper()
	s, err := blob.OpenStore(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := &rack{T: t, Files: New(Config{Blobs: s, Log: slog.New(slog.DiscardHandler)}), blobs: s, jobs: user{}}
	r.Files.Serve(&r.jobs)
	return r
}

func (r *rack) put(text string) cid.Cid {
	r.Helper()
	c, _, err := r.blobs.Put(r.Context(), strings.NewReader(text))
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// push stores an image of some layers under a name.
func (r *rack) push(name string, layers ...string) (manifest cid.Cid) {
	r.Helper()
	type m = map[string]any
	var all []m
	for _, l := range layers {
		all = append(all, m{"digest": "sha256:" + digest(r.put(l))})
	}
	text, err := json.Marshal(m{"config": m{"digest": "sha256:" + digest(r.put("config of "+name))}, "layers": all})
	if err != nil {
		r.Fatal(err)
	}
	c := r.put(string(text))
	if err := r.NameImage(c.String(), "pushed.invalid/"+name+"@sha256:"+digest(c)); err != nil {
		r.Fatal(err)
	}
	return c
}

// Pushed images are listed with their names and sizes, and one is removed without the parts of others.
func TestPushedImages(t *testing.T) {
	t.Parallel()
	r := newRack(t)
	one, two := r.push("acme/app:v1", "base", "own"), r.push("app", "base", "base", "lost")
	if err := r.blobs.Remove(blob.Sum([]byte("lost"))); err != nil {
		t.Fatal(err)
	}
	p := Pushed{r.Files, others{}}
	all, err := p.Images(t.Context())
	if err != nil || len(all) != 3 || all[2].ID != "other" {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, i := range all[:2] {
		m, _ := r.blobs.Size(map[bool]cid.Cid{true: one, false: two}[i.ID == digest(one)])
		want := api.ImageInfo{ID: digest(one), Names: []string{"acme/app:v1"}, Size: m + int64(len("base"+"own"+"config of acme/app:v1"))}
		if i.ID != digest(one) {
			want = api.ImageInfo{ID: digest(two), Names: []string{"app"}, Size: m + int64(len("base"+"config of app")), Incomplete: true}
		}
		if i.ID != want.ID || i.Digest != "sha256:"+i.ID || !slices.Equal(i.Names, want.Names) || i.Size != want.Size ||
			i.Incomplete != want.Incomplete || i.InUse || i.Used.IsZero() {
			t.Errorf("got %+v, want %+v", i, want)
		}
	}
	r.jobs = user{one}
	if err := p.RemoveImage(t.Context(), digest(one)); !errors.Is(err, runtime.ErrImageUsed) || !r.blobs.Has(one) {
		t.Errorf("of a job: %v", err)
	}
	r.jobs = user{}
	for _, id := range []string{digest(one), "other"} {
		if err := p.RemoveImage(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	for text, stays := range map[string]bool{"own": false, "config of acme/app:v1": false, "base": true, "config of app": true} {
		if r.blobs.Has(blob.Sum([]byte(text))) != stays {
			t.Errorf("%s is there: want %v", text, stays)
		}
	}
	if r.blobs.Has(one) || !r.blobs.Has(two) {
		t.Error("the wrong manifest was removed")
	}
}

// A name of another image is refused, and a manifest has few names: they must not displace its holders. A file that is
// no manifest is an image without parts.
func TestAttackImageNames(t *testing.T) {
	t.Parallel()
	r := newRack(t)
	c := r.put("no manifest")
	for _, name := range []string{
		"", "debian@sha256:" + digest(c), "pushed.invalid/app@sha256:" + strings.Repeat("0", 64), "pushed.invalid/app",
		"pushed.invalid/" + strings.Repeat("a", 121) + "@sha256:" + digest(c), "pushed.invalid/a\nb@sha256:" + digest(c),
	} {
		var bad *api.Error
		if err := r.NameImage(c.String(), name); !errors.As(err, &bad) || bad.Status != 400 {
			t.Errorf("%q: got %v, want status 400", name, err)
		}
	}
	if err := r.blobs.Bring(c, "key ci"); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := r.NameImage(c.String(), fmt.Sprintf("pushed.invalid/app:%d@sha256:%s", i, digest(c))); err != nil {
			t.Fatal(err)
		}
	}
	if !r.Uploaded("ci", c) {
		t.Error("names displaced the key that brought the file")
	}
	p := Pushed{r.Files, others{}}
	all, err := p.Images(t.Context())
	if err != nil || len(all) != 2 || len(all[0].Names) != maxNames {
		t.Errorf("%+v, %v", all, err)
	}
	if err := p.RemoveImage(t.Context(), digest(c)); err != nil || r.blobs.Has(c) {
		t.Error(err)
	}
}
