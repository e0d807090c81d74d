package images_test

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
)

func TestImages(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	other := "sha256:" + strings.Repeat("0b", 32)
	for _, c := range []struct {
		allow, deny []string
		image       string
		runs        bool
	}{
		{nil, nil, "alpine@" + digest, true},
		{nil, []string{"alpine"}, "alpine@" + digest, false},
		{nil, []string{"alpine"}, "docker.io/library/alpine@" + digest, false},
		{nil, []string{"alpine"}, "library/alpine:3.20@" + digest, false},
		{nil, []string{"alpine"}, "docker.io/library/alpine:3.20@" + digest, false},
		{nil, []string{"alpine"}, "ghcr.io/library/alpine@" + digest, true},
		{nil, []string{digest}, "ghcr.io/any/thing@" + digest, false},
		{nil, []string{digest}, "ghcr.io/any/thing@" + other, true},
		{nil, []string{"ghcr.io/acme/tool@" + digest}, "ghcr.io/acme/tool@" + digest, false},
		{nil, []string{"ghcr.io/acme/tool@" + digest}, "ghcr.io/acme/tool@" + other, true},
		{nil, []string{"ghcr.io/acme/*"}, "ghcr.io/acme/tool@" + digest, false},
		{nil, []string{"ghcr.io/acme/*"}, "ghcr.io/acme/deep/tool@" + digest, true},
		{nil, []string{"ghcr.io/acme/**"}, "ghcr.io/acme/deep/tool@" + digest, false},
		{nil, []string{"ghcr.io/acme/**"}, "ghcr.io/acmes/tool@" + digest, true},
		{nil, []string{"*/miners/**"}, "quay.io/miners/x@" + digest, false},
		{nil, []string{"**"}, "alpine@" + digest, false},
		{[]string{"docker.io/library/*"}, nil, "alpine@" + digest, true},
		{[]string{"docker.io/library/*"}, nil, "acme/alpine@" + digest, false},
		{[]string{"docker.io/library/*"}, []string{"alpine"}, "alpine@" + digest, false},
		{[]string{"localhost:5000/**"}, nil, "localhost:5000/a/b@" + digest, true},
		{[]string{"localhost/*"}, nil, "localhost/a:1@" + digest, true},
	} {
		im, err := images.Parse(c.allow, c.deny)
		if err != nil {
			t.Fatalf("%v %v: %v", c.allow, c.deny, err)
		}
		err = im.Check(c.image)
		if (err == nil) != c.runs || err != nil && !strings.Contains(err.Error(), c.image) {
			t.Errorf("allow %v, deny %v: %s: %v", c.allow, c.deny, c.image, err)
		}
		policy := market.NewImagePolicy(im)
		if told, no := policy.Patterns(); no != nil || (told.Check(c.image) == nil) != c.runs {
			t.Errorf("an offer says of allow %v, deny %v: %+v, %v: %s: %v", c.allow, c.deny, policy, no, c.image, told.Check(c.image))
		}
	}
	for _, bad := range []string{"", " ", "a b", "ghcr.io/[x", "alpine:3.20", "alpine@sha256:12", "alpine@" + strings.ToUpper(digest), strings.Repeat("a", 257)} {
		if _, err := images.Parse(nil, []string{bad}); err == nil {
			t.Errorf("%q is taken for a pattern", bad)
		}
	}
	if _, err := images.Parse(make([]string, 257), nil); err == nil {
		t.Error("257 patterns pass")
	}
	long, err := images.Parse(nil, []string{digest, other, "ghcr.io/acme/tool@" + digest, "alpine"})
	if err != nil || !market.NewImagePolicy(long).Equal(market.ImagePolicy{More: true}) {
		t.Errorf("patterns for which an offer has no room: %+v, %v", market.NewImagePolicy(long), err)
	}
}

func FuzzImages(f *testing.F) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	f.Add("alpine", "alpine@"+digest)
	f.Add("ghcr.io/acme/**", "ghcr.io/acme/deep/tool@"+digest)
	f.Add("*/x@"+digest, "localhost:5000/x")
	f.Add("*/x", "pushed.invalid/x@"+digest)
	f.Fuzz(func(t *testing.T, pattern, image string) {
		im, err := images.Parse(nil, []string{pattern})
		if err != nil {
			return
		}
		// What a pattern denies it allows, and the other way round: Check never depends on anything but the match.
		allowed, err := images.Parse([]string{pattern}, nil)
		// Only of a pushed image fewer patterns allow than deny.
		if err != nil || !images.IsPushed(image) && (im.Check(image) == nil) == (allowed.Check(image) == nil) ||
			im.Check(image) == nil && allowed.Check(image) == nil {
			t.Fatalf("%q of %q: %v", image, pattern, err)
		}
	})
}

// A buyer chooses the name of an image that it pushes: no name reaches a pattern that the operator wrote for a registry.
func TestAttackPushedNames(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	names := []string{"alpine", "library/alpine", "acme/tool", "docker.io/library/alpine", "ghcr.io/acme/tool", "ghcr.io/acme/tool:v1",
		"miners/x"}
	for _, c := range []struct {
		allow, deny []string
		runs        bool
	}{
		{nil, nil, true},
		{[]string{"docker.io/library/*", "ghcr.io/acme/**", "alpine"}, nil, false},
		{[]string{"*/library/*", "*/acme/**", "*/*", "*/**", "*", "**"}, nil, false},
		{[]string{"pushed.inval?d/**", "[p]ushed.invalid/**", "*.invalid/**"}, nil, false},
		{[]string{"ghcr.io/acme/tool@" + digest, "**@" + digest}, nil, false},
		{[]string{"sha256:" + strings.Repeat("0b", 32)}, nil, false},
		{[]string{digest}, nil, true},
		{[]string{"alpine", "pushed.invalid/**"}, nil, true},
		{[]string{"pushed.invalid/**"}, []string{digest}, false},
		{nil, []string{"pushed.invalid/**"}, false},
		{nil, []string{"**"}, false},
		{nil, []string{"*.invalid/**"}, false},
	} {
		im, err := images.Parse(c.allow, c.deny)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			ref := images.Pushed + "/" + name + "@" + digest
			if err := im.Check(ref); (err == nil) != c.runs {
				t.Errorf("allow %v, deny %v: %s: %v", c.allow, c.deny, ref, err)
			}
		}
	}
	im, err := images.Parse([]string{"pushed.invalid/**"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"alpine", "docker.io/pushed.invalid/x", "pushed.invalid", "pushed.invalid:5000/x", "x.pushed.invalid/x"} {
		if im.Check(ref+"@"+digest) == nil || images.IsPushed(ref) {
			t.Errorf("%s is taken for a pushed image", ref)
		}
	}
}
