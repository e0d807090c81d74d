package admission

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

// holders are the files of API keys, by key.
type holders map[string][]cid.Cid

func (h holders) Holds(key string, c cid.Cid) bool { return slices.Contains(h[key], c) }

// A pushed image has the parts that its manifest on this peer lists, whatever the submission says. A key that does not have
// the manifest learns nothing of it.
func TestAttackImageOfAnotherKey(t *testing.T) {
	t.Parallel()
	store, err := blob.OpenStore(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	put := func(text string) (cid.Cid, string) {
		c, _, err := store.Put(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		h, err := work.Content(c)
		if err != nil {
			t.Fatal(err)
		}
		return c, fmt.Sprintf("%x", h[:])
	}
	config, configDigest := put("config")
	layer, layerDigest := put("layer")
	const media = `"mediaType":"application/vnd.oci.image.`
	text := `{"schemaVersion":2,` + media + `manifest.v1+json","config":{` + media + `config.v1+json","digest":"sha256:` + configDigest +
		`","size":6},"layers":[{` + media + `layer.v1.tar","digest":"sha256:` + layerDigest + `","size":5}]}`
	manifest, digest := put(text)
	_, garbage := put("garbage")
	_, large := put(strings.Repeat(" ", runtime.MaxManifest+1))
	p := &peer{Blobs: store, has: map[cid.Cid]bool{}}
	r := rules(paid, p)
	r.Blobs = store
	r.Holder = holders{"owner": {manifest, config, layer}, "half": {manifest}, "evil": {layer}}
	for _, c := range []struct {
		key, digest string
		says        string
	}{
		{"", digest, ""}, {"owner", digest, ""},
		{"half", digest, "upload it first"},
		{"evil", digest, "push it again"}, {"other", digest, "push it again"},
		{"", sign.Hash{1}.String(), "push it again"},
		{"", garbage, "malformed manifest"}, {"", large, "too large"},
	} {
		s := spec()
		s.Image = "pushed.invalid/app@sha256:" + c.digest
		s.Blobs = map[string]job.Blob{job.PartScheme + digest: {CID: config.String(), Size: 1}}
		sub := record.Submission{Spec: s, Key: c.key}
		_, err := r.Admit(t.Context(), &sub)
		got := sub.Spec
		if c.says != "" {
			if !errors.Is(err, record.ErrRefused) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("key %q, %s: %v, want one that says %q", c.key, c.digest, err, c.says)
			}
			if c.key != "half" && err != nil && (strings.Contains(err.Error(), layerDigest) || strings.Contains(err.Error(), layer.String())) {
				t.Errorf("key %q learns %v", c.key, err)
			}
			continue
		}
		want := map[string]job.Blob{job.PartScheme + digest: {CID: manifest.String(), Size: int64(len(text))},
			job.PartScheme + configDigest: {CID: config.String(), Size: 6}, job.PartScheme + layerDigest: {CID: layer.String(), Size: 5}}
		if err != nil || fmt.Sprint(got.Blobs) != fmt.Sprint(want) {
			t.Errorf("key %q: %v, %v", c.key, got.Blobs, err)
		}
		w, err := record.Workload(record.Job{ID: "j", Spec: got, Ranks: make([]record.Rank, 1)}, 0)
		if err != nil || len(w.ImageParts) != 3 {
			t.Errorf("the workload has the parts %v, %v", w.GetImageParts(), err)
		}
	}
	if err := store.Remove(layer); err != nil {
		t.Fatal(err)
	}
	s := spec()
	s.Image = "pushed.invalid/app@sha256:" + digest
	if _, err := r.Admit(t.Context(), &record.Submission{Spec: s}); !errors.Is(err, record.ErrRefused) || !strings.Contains(err.Error(), "upload it first") {
		t.Errorf("without a layer: %v", err)
	}
}
