package job

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/runtime"
)

// The parts of a pushed image are sources of the job, with exactly the contents of their names.
func TestImageParts(t *testing.T) {
	t.Parallel()
	digest, other := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	plain := complete(t, Job{Image: "pushed.invalid/acme/app:v1@sha256:" + digest, Inputs: []Input{{Source: "cid:" + testCID, Path: "/in/x"}}})
	if plain.Name != "app" || len(plain.ImageParts()) != 0 {
		t.Errorf("%s has the parts %v", plain.Name, plain.ImageParts())
	}
	plain.Blobs = map[string]Blob{"cid:" + testCID: {CID: testCID}, PartScheme + "old": {}}
	j, err := plain.WithImageParts(map[string]int64{digest: 7, other: 9})
	if err != nil || j.Check() != nil {
		t.Fatal(err, j.Check())
	}
	want := []string{"cid:" + testCID, PartScheme + digest, PartScheme + other}
	if got := j.Sources(); !slices.Equal(got, want) || !slices.Equal(j.ImageParts(), want[1:]) || plain.Blobs[PartScheme+digest].CID != "" {
		t.Errorf("sources %v, parts %v", got, j.ImageParts())
	}
	text, err := Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := Unmarshal(text); err != nil || !maps.EqualFunc(back.Blobs, j.Blobs, func(a, b Blob) bool { return a.CID == b.CID && a.Size == b.Size }) {
		t.Errorf("%+v, %v", back.Blobs, err)
	}
	n := uint32(3)
	if again, err := j.With(Changes{Count: &n}); err != nil || !slices.Equal(again.ImageParts(), want[1:]) {
		t.Errorf("run again it has the parts %v, %v", again.ImageParts(), err)
	}
	for name, change := range map[string]func(j *Job, b *Blob){
		"another content":    func(_ *Job, b *Blob) { b.CID = testCID },
		"no size":            func(_ *Job, b *Blob) { b.Size = 0 },
		"a tree":             func(_ *Job, b *Blob) { b.Tree = true },
		"a URL":              func(_ *Job, b *Blob) { b.URLs = []string{"https://example.org/x"} },
		"an image elsewhere": func(j *Job, _ *Blob) { j.Image = testImage },
		"no digest":          func(j *Job, _ *Blob) { j.Image = "pushed.invalid/app:v1" },
	} {
		bad := j
		bad.Blobs = maps.Clone(j.Blobs)
		b := bad.Blobs[PartScheme+digest]
		change(&bad, &b)
		bad.Blobs[PartScheme+digest] = b
		if err := bad.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	input := plain
	input.Blobs, input.Inputs = nil, []Input{{Source: PartScheme + digest, Path: "/in/x"}}
	if err := input.Check(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "./image:") {
		t.Errorf("an input of that name: %v", err)
	}
	many := map[string]int64{}
	for i := range runtime.MaxImageParts + 1 {
		many[strings.Repeat("0a", 31)+string("0123456789abcdef"[i/16])+string("0123456789abcdef"[i%16])] = 1
	}
	if _, err := plain.WithImageParts(many); !errors.Is(err, ErrInvalid) {
		t.Errorf("%d parts: %v", len(many), err)
	}
	if _, err := plain.WithImageParts(map[string]int64{"x": 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a malformed digest: %v", err)
	}
}
