package buyer

import (
	"slices"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/buyer/admission"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// holder has the one file that each API key uploaded.
type holder uploads

func (h holder) Holds(key string, c cid.Cid) bool { return h[key] == c }

// A key that names another's file by a URL of its own can neither read it here, nor have a provider read it.
func TestAttackURLOfOthersFile(t *testing.T) {
	t.Parallel()
	store, err := blob.OpenStore(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	theirs, _, err := store.Put(t.Context(), strings.NewReader("theirs"))
	if err != nil {
		t.Fatal(err)
	}
	rules := admission.Rules{Blobs: store, Holder: holder{"owner": theirs}}
	const source = "https://evil.example.org/w.bin"
	spec := job.Job{Inputs: []job.Input{{Source: source, Path: "/in/w.bin"}}, Count: 1, Blobs: map[string]job.Blob{
		source: {CID: theirs.String(), URLs: []string{source}, Local: true},
	}}
	for key, may := range map[string]bool{"evil": false, "owner": true, "": true} {
		j := Job{ID: "j", Key: key, Spec: rules.Local(spec, key), Ranks: make([]Rank, 1)}
		if bl := j.Spec.Blobs[source]; bl.Local != may || j.Reads(theirs.String()) != may {
			t.Errorf("key %q: %+v, reads %v", key, bl, j.Reads(theirs.String()))
		}
		if err := rules.Held(j.Spec, key); err != nil {
			t.Errorf("key %q: %v", key, err)
		}
		w, err := record.Workload(j, 0)
		if err != nil {
			t.Fatal(err)
		}
		if in := w.Inputs[0].Blob; in.Remote == may || !slices.Equal(in.Urls, []string{source}) {
			t.Errorf("key %q: %v", key, in)
		}
		if _, kept := blobsOf(j)[theirs.String()]; kept != (may && key != "") {
			t.Errorf("key %q: in its archive: %v", key, kept)
		}
	}
	if !spec.Blobs[source].Local {
		t.Error("the submitted job was changed")
	}
}
