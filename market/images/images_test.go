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
	f.Fuzz(func(t *testing.T, pattern, image string) {
		im, err := images.Parse(nil, []string{pattern})
		if err != nil {
			return
		}
		// What a pattern denies it allows, and the other way round: Check never depends on anything but the match.
		allowed, err := images.Parse([]string{pattern}, nil)
		if err != nil || (im.Check(image) == nil) == (allowed.Check(image) == nil) {
			t.Fatalf("%q of %q: %v", image, pattern, err)
		}
	})
}
