package job

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/p2p/blob"
)

// A URL with a SHA-256 names the CID of its content, as cid: does.
func TestNamed(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("text"))
	digest, want := hex.EncodeToString(sum[:]), blob.Sum([]byte("text")).String()
	b, ok := Named(WithSum("https://example.org/w.bin?a=b", digest))
	if !ok || b.CID != want || !slices.Equal(b.URLs, []string{"https://example.org/w.bin?a=b"}) || b.Here() {
		t.Errorf("%+v, %v", b, ok)
	}
	if b, ok := Named(CIDScheme + want); !ok || b.CID != want || !b.Here() {
		t.Errorf("%+v, %v", b, ok)
	}
	for _, source := range []string{"w.bin", "w.bin#sha256=" + digest, "https://example.org/w.bin", "https://example.org/w.bin#sha256=12", "hf://acme/model/w.bin"} {
		if b, ok := Named(source); ok {
			t.Errorf("%s names %+v", source, b)
		}
	}
}

// The content of a URL is that of its digest, and its URLs are of the form that providers read.
func TestBlobsOfURLs(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("text"))
	source := WithSum("https://example.org/w.bin", hex.EncodeToString(sum[:]))
	c := blob.Sum([]byte("text")).String()
	other := blob.Sum([]byte("other")).String()
	good := Blob{CID: c, Size: 4, URLs: []string{"https://mirror.example.org/w.bin", "https://example.org/w.bin"}}
	for name, test := range map[string]struct {
		b    Blob
		want string
	}{
		"good":            {good, ""},
		"on the peer":     {Blob{CID: c}, ""},
		"another content": {Blob{CID: other, URLs: good.URLs}, "want " + c},
		"a tree":          {Blob{CID: c, Tree: true, URLs: good.URLs}, "no URL"},
		"many URLs":       {Blob{CID: c, URLs: slices.Repeat(good.URLs, 3)}, "at most 4"},
		"plain HTTP":      {Blob{CID: c, URLs: []string{"http://example.org/w.bin"}}, "scheme"},
		"a password":      {Blob{CID: c, URLs: []string{"https://a:b@example.org/w.bin"}}, "password"},
	} {
		j := moduleJob(t)
		j.Inputs = append(j.Inputs, Input{Source: source, Path: "/data/w.bin"})
		blobs := map[string]Blob{}
		for _, s := range j.Sources() {
			blobs[s] = Blob{CID: c}
		}
		blobs[source] = test.b
		_, err := j.WithBlobs(blobs)
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want one that says %q", name, err, test.want)
		}
	}
	stored := WithSum("s3://bucket/w.bin", hex.EncodeToString(sum[:]))
	for content, want := range map[string]bool{c: true, other: false} {
		j := moduleJob(t)
		j.Inputs = append(j.Inputs, Input{Source: stored, Path: "/data/w.bin"})
		blobs := map[string]Blob{}
		for _, s := range j.Sources() {
			blobs[s] = Blob{CID: content}
		}
		if _, err := j.WithBlobs(blobs); (err == nil) != want {
			t.Errorf("%s: %v", content, err)
		}
	}
	if j := (Job{Inputs: []Input{{Source: stored, Path: "/w"}}, Count: 1}).In("/dir"); j.Inputs[0].Source != stored {
		t.Errorf("an object became %s", j.Inputs[0].Source)
	}
	if j := (Job{Inputs: []Input{{Source: source, Path: "/w"}}, Count: 1}).In("/dir"); j.Inputs[0].Source != source {
		t.Errorf("a URL became %s", j.Inputs[0].Source)
	}
}
