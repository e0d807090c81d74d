package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/p2p/blob"
)

// puller is a runtime that runs images of registries, and loader one that runs pushed ones too.
type puller struct{ *runtimetest.Fake }

func (puller) HasImage(context.Context, string) bool { return false }
func (puller) Pull(context.Context, string, *runtime.RegistryAuth, func(done, total int64)) error {
	return nil
}

type loader struct{ puller }

func (loader) Load(context.Context, string, runtime.Parts, func(done, total int64)) error { return nil }

// part is a part of some content.
func part(content string) *nodepb.Blob {
	return &nodepb.Blob{Cid: blob.Sum([]byte(content)).Bytes(), Size: uint64(len(content))}
}

// A pushed image has its parts, a bounded number of them with bounded sizes, and no other image has any.
func TestAttackImageParts(t *testing.T) {
	t.Parallel()
	fake := puller{runtimetest.NewFake("docker", nil)}
	h := Host{Runtimes: map[string]runtime.Runtime{"docker": loader{fake}, "pulls": fake, "wasm": runtimetest.NewFake("wasm", nil)}}
	digest, err := PartDigest(part("manifest"))
	if err != nil {
		t.Fatal(err)
	}
	good := func() *nodepb.Workload {
		return &nodepb.Workload{Runtime: "docker", Image: "pushed.invalid/app:v1@sha256:" + digest,
			ImageParts: []*nodepb.Blob{part("config"), part("manifest"), part("layer")}}
	}
	if err := Check(good(), h); err != nil {
		t.Fatal(err)
	}
	many := func(n int) (all []*nodepb.Blob) {
		for i := range n - 1 {
			all = append(all, part(fmt.Sprint(i)))
		}
		return append(all, part("manifest"))
	}
	most := good()
	most.ImageParts = many(runtime.MaxImageParts)
	if err := Check(most, h); err != nil {
		t.Errorf("the most parts: %v", err)
	}
	for name, c := range map[string]struct {
		want  string
		spoil func(w *nodepb.Workload)
	}{
		"no parts":      {"image_parts: got 0", func(w *nodepb.Workload) { w.ImageParts = nil }},
		"one part":      {"image_parts: got 1", func(w *nodepb.Workload) { w.ImageParts = w.ImageParts[1:2] }},
		"too many":      {"image_parts: got 128", func(w *nodepb.Workload) { w.ImageParts = many(runtime.MaxImageParts + 1) }},
		"no manifest":   {"is missing", func(w *nodepb.Workload) { w.ImageParts[1] = part("other") }},
		"a nil part":    {"no digest", func(w *nodepb.Workload) { w.ImageParts[0] = nil }},
		"a bad digest":  {"bad digest", func(w *nodepb.Workload) { w.ImageParts[0].Cid = []byte{1} }},
		"no size":       {"no size", func(w *nodepb.Workload) { w.ImageParts[0].Size = 0 }},
		"a large part":  {"more than", func(w *nodepb.Workload) { w.ImageParts[0].Size = 1 << 63 }},
		"a large sum":   {"more than", func(w *nodepb.Workload) { w.ImageParts[0].Size, w.ImageParts[2].Size = 1<<36-1, 1 }},
		"twice":         {"is there twice", func(w *nodepb.Workload) { w.ImageParts[0] = part("layer") }},
		"a tree":        {"want a file", func(w *nodepb.Workload) { w.ImageParts[0].Tree = true }},
		"from a URL":    {"want a file", func(w *nodepb.Workload) { w.ImageParts[0].Urls = []string{"https://example.org/x"} }},
		"not there":     {"want a file", func(w *nodepb.Workload) { w.ImageParts[0].Remote = true }},
		"of a registry": {"one of a registry", func(w *nodepb.Workload) { w.Image = "ghcr.io/acme/app@sha256:" + digest }},
		"of a tag":      {"not an image by digest", func(w *nodepb.Workload) { w.Image = "pushed.invalid/app:v1" }},
		"of a module": {"runs modules", func(w *nodepb.Workload) {
			w.Runtime, w.Image, w.Module = "wasm", "", part("module")
		}},
		"where none is loaded": {"images of registries alone", func(w *nodepb.Workload) { w.Runtime = "pulls" }},
	} {
		w := good()
		c.spoil(w)
		if err := Check(w, h); !errors.Is(err, ErrWorkload) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one that says %q", name, err, c.want)
		}
	}
	h.AllowImage = func(image string) error { return errors.New("not allowed: " + image) }
	if err := Check(good(), h); !errors.Is(err, ErrWorkload) || !strings.Contains(err.Error(), "not allowed: pushed.invalid/") {
		t.Errorf("with a list: %v", err)
	}
}
