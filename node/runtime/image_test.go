package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// Names of images follow the grammar of registries; only those with a digest name their content.
func TestImageNames(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("0a", 32)
	long := strings.Repeat("a", maxImage-len(digest))
	for _, name := range []string{
		"debian", "debian:12", "acme/x", "localhost:5000/x:v1", "[::1]:5000/x", "ghcr.io/a/b.c_d--e:V1", long,
	} {
		if CheckImageName(name) != nil || CheckImageName(name+digest) != nil || CheckImage(name+digest) != nil {
			t.Errorf("%s is refused: %v, with its digest %v", name, CheckImageName(name), CheckImage(name+digest))
		}
		if CheckImage(name) == nil {
			t.Errorf("%s has no digest", name)
		}
	}
	for _, name := range []string{
		"", "Debian", "debian:", "debian:" + strings.Repeat("t", 129), "a//b", "-a", "a b", "https://a/b",
		"debian@sha256:0a", "debian@md5:" + strings.Repeat("0a", 32), digest, "a" + digest + digest, "a" + long,
	} {
		if CheckImageName(name) == nil || CheckImage(name) == nil {
			t.Errorf("%q passes", name)
		}
	}
}

// tags are registries with the digests of some images, which open with a password or without.
type tags map[string]string

func (r tags) Resolve(_ context.Context, image string, auth *RegistryAuth) (string, error) {
	if digest := r[image]; digest != "" && (auth == nil || *auth == RegistryAuth{Username: "ada", Password: "hush"}) {
		return digest, nil
	}
	return "", &Failure{Class: ErrBadImage, Advice: "not found in the registry"}
}

// The digest of an image's tag is found; a name with a digest is left as it is.
func TestPin(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	r := tags{"debian:12": digest, "debian": digest}
	for image, want := range map[string]string{
		"": "", "debian:12": "debian:12@" + digest, "debian": "debian@" + digest,
		"acme/x:v1@" + digest: "acme/x:v1@" + digest,
	} {
		got, err := Pin(t.Context(), r, image, &RegistryAuth{Username: "ada", Password: "hush"})
		if err != nil || got != want || want != "" && CheckImage(got) != nil {
			t.Errorf("%q became %q, %v", image, got, err)
		}
	}
	if _, err := Pin(t.Context(), r, "acme/none", nil); !errors.Is(err, ErrBadImage) ||
		!strings.HasPrefix(err.Error(), "acme/none: ") {
		t.Errorf("an image that is not there: %v", err)
	}
	if _, err := Pin(t.Context(), r, "debian", &RegistryAuth{Username: "ada", Password: "wrong"}); err == nil {
		t.Error("the wrong password opened a registry")
	}
}
