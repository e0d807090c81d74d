package buyer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/buyer/archive"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// granting has the one file that each API key uploaded, and keeps the files that peers may read.
type granting struct {
	uploads
	granted []cid.Cid
}

func (g *granting) Grant(_ peer.ID, c cid.Cid) { g.granted = append(g.granted, c) }
func (*granting) Fetch(context.Context, peer.ID, cid.Cid, int64) error {
	return errors.New("no file")
}

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
	files := &granting{uploads: uploads{"owner": theirs}}
	b := &Buyer{cfg: Config{Files: files, Blobs: store}, jobs: map[string]*supervisor{}, archive: &archive.Archive{}}
	const source = "https://evil.example.org/w.bin"
	spec := job.Job{Inputs: []job.Input{{Source: source, Path: "/in/w.bin"}}, Count: 1, Blobs: map[string]job.Blob{
		source: {CID: theirs.String(), URLs: []string{source}, Local: true},
	}}
	for key, may := range map[string]bool{"evil": false, "owner": true, "": true} {
		j := Job{ID: "j", Key: key, Spec: withLocal(b, spec, key), Ranks: make([]Rank, 1)}
		if bl := j.Spec.Blobs[source]; bl.Local != may || j.Reads(theirs.String()) != may {
			t.Errorf("key %q: %+v, reads %v", key, bl, j.Reads(theirs.String()))
		}
		if err := b.checkHeld(j.Spec, key); err != nil {
			t.Errorf("key %q: %v", key, err)
		}
		w, err := record.Workload(j, 0)
		if err != nil {
			t.Fatal(err)
		}
		if in := w.Inputs[0].Blob; in.Remote == may || !slices.Equal(in.Urls, []string{source}) {
			t.Errorf("key %q: %v", key, in)
		}
		files.granted = nil
		if b.grantInputs("provider", w); len(files.granted) > 0 != may {
			t.Errorf("key %q: granted %v", key, files.granted)
		}
		kept, err := filesOf(j.Spec.Blobs)
		if err != nil || len(kept) > 0 != may {
			t.Errorf("key %q: guardians get %v, %v", key, kept, err)
		}
		if _, kept := blobsOf(j)[theirs.String()]; kept != (may && key != "") {
			t.Errorf("key %q: in its archive: %v", key, kept)
		}
	}
	if !spec.Blobs[source].Local {
		t.Error("the submitted job was changed")
	}
}
