package images

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPrefixOf(t *testing.T) {
	t.Parallel()
	digest := "0123456789abcdef" + strings.Repeat("0", 48)
	for ref, want := range map[string]string{
		"alpine@sha256:" + digest:                  "0123456789abcdef",
		"ghcr.io/acme/tool:v1@sha256:" + digest:    "0123456789abcdef",
		"pushed.invalid/app@sha256:" + digest:      "0000000000000000",
		"alpine:3":                                 "0000000000000000",
		"alpine@sha256:" + digest[1:]:              "0000000000000000",
		"alpine@sha256:" + strings.ToUpper(digest): "0000000000000000",
		"": "0000000000000000",
	} {
		if got := PrefixOf(ref).String(); got != want {
			t.Errorf("%s: got %s, want %s", ref, got, want)
		}
	}
}

// A list has the first images, in ascending order and each once, and survives its encodings.
func TestReady(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Prefix {
			return Prefix{byte(rapid.IntRange(0, 40).Draw(t, "first"))}
		})).Draw(t, "all")
		most := rapid.IntRange(-1, 40).Draw(t, "most")
		r := NewReady(all, most)
		if err := r.Check(); err != nil || len(r) > max(most, 0) {
			t.Fatalf("%v: %v", r, err)
		}
		for _, p := range r {
			if !r.Has(p) || !slices.Contains(all, p) {
				t.Fatalf("%s", p)
			}
		}
		if again, err := ParseReady(r.Bytes()); err != nil || !slices.Equal(again, r) || len(r.Bytes())+4 != Size(len(r)) {
			t.Fatalf("%v became %v, %v", r, again, err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again Ready
		if err := json.Unmarshal(text, &again); err != nil || !slices.Equal(again, r) {
			t.Fatalf("%s became %v, %v", text, again, err)
		}
	})
	if (Ready{{}}).Has(Prefix{}) {
		t.Error("no image counts as one")
	}
}

func TestParseReadyRefuses(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{
		"half a prefix": make([]byte, 12),
		"zero":          make([]byte, 8),
		"twice":         append([]byte{1, 7: 0}, []byte{1, 7: 0}...),
		"descending":    append([]byte{2, 7: 0}, []byte{1, 7: 0}...),
		"too many":      make([]byte, 8*(MaxReady+1)),
	} {
		if r, err := ParseReady(b); err == nil {
			t.Errorf("%s: %v", name, r)
		}
	}
	var p Prefix
	for _, text := range []string{"", "0123456789abcde", "0123456789abcdeg"} {
		if p.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is a prefix", text)
		}
	}
}
