package s3

import (
	"errors"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Name{
		"s3://bucket/":             {"bucket", "", ""},
		"s3://bucket/a":            {"bucket", "a", ""},
		"s3://my.bucket-1/a/b c#d": {"my.bucket-1", "a/b c#d", ""},
		"s3://bucket/a/":           {"bucket", "a/", ""},
		"s3://bucket/*":            {"bucket", "", "*"},
		"s3://bucket/a/x[0-9]?.b":  {"bucket", "a/", "x[0-9]?.b"},
		`s3://bucket/a/\*\?\[\\x`:  {"bucket", `a/*?[\x`, ""},
		`s3://bucket/\[a/\**`:      {"bucket", "[a/", `\**`},
		"s3://bucket/ünï":          {"bucket", "ünï", ""},
	} {
		got, err := Parse(text)
		if err != nil || got != want || got.String() != text || got.Folder() != (want.Pattern != "" || want.Key == "" || strings.HasSuffix(want.Key, "/")) {
			t.Errorf("%s: %+v, %v, %s", text, got, err, got)
		}
	}
	for _, text := range []string{
		"", "s3:/b/k", "s3://bucket", "s3:///k", "s3://Bucket/k", "s3://b/k", "s3://bu..cket/k", "s3://-bucket/k", "s3://bucket:80/k", "s3://id:secret@bucket/k", "s3://" + strings.Repeat("b", 64) + "/k",
		"s3://bucket//k", "s3://bucket/a//k", "s3://bucket/..", "s3://bucket/a/../k", "s3://bucket/./k", "s3://bucket/a//", "s3://bucket//", "s3://bucket/k\x00", "s3://bucket/k\n", "s3://bucket/\xff",
		"s3://bucket/*/k", "s3://bucket/a[/k", "s3://bucket/a[", `s3://bucket/a\b/c`, "s3://bucket/" + strings.Repeat("k", MaxKey+1), "s3://bucket/" + strings.Repeat("*", MaxKey+1),
	} {
		if got, err := Parse(text); !errors.Is(err, ErrName) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{"s3://bucket": "", "s3://bucket/": "", "s3://bucket/a": "a/", "s3://bucket/a/b/": "a/b/"} {
		if got, err := ParseFolder(text); err != nil || got.Key != want || !got.Folder() {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"s3://", "s3:///", "s3://bucket/a//", "s3://bucket/*", "s3://bucket/a*/", "results"} {
		if got, err := ParseFolder(text); !errors.Is(err, ErrName) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// A parsed name is written as a name with the same meaning, and everything that it accepts of a bucket is a clean path.
func FuzzName(f *testing.F) {
	for _, text := range []string{"s3://bucket/a/b", `s3://bucket/a\*/*.b`, "s3://bucket/f/", "s3://bucket/"} {
		f.Add(text, "f/a/b")
	}
	f.Fuzz(func(t *testing.T, text, key string) {
		n, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(n.String()); err != nil || again != n {
			t.Fatalf("%q: %+v, again %+v, %v", text, n, again, err)
		}
		if rel, ok, err := n.Below(key); ok && (err != nil || checkKey(rel) != nil || n.Join(rel).Key != key || n.Join(rel).Folder()) {
			t.Fatalf("%q in %q: %q, %v", key, text, rel, err)
		}
	})
}
