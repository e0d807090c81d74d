package market

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Images says which container images a provider runs. The zero Images runs all.
type Images struct {
	allow, deny []imagePattern
}

// imagePattern is a pattern on the repository, the digest, or both.
type imagePattern struct{ repository, digest string }

const (
	maxImagePatterns = 256
	maxImagePattern  = 256
)

// ParseImages reads patterns of images: "docker.io/library/*" (one level), "ghcr.io/acme/**" (any depth), "alpine"
// (Docker Hub's), "sha256:…" (one digest of any repository), "ghcr.io/acme/tool@sha256:…". Images that match deny are
// refused. If allow is not empty, images that do not match it are refused, too.
func ParseImages(allow, deny []string) (Images, error) {
	var im Images
	for _, l := range []struct {
		name string
		in   []string
		out  *[]imagePattern
	}{{"allow", allow, &im.allow}, {"deny", deny, &im.deny}} {
		if len(l.in) > maxImagePatterns {
			return Images{}, fmt.Errorf("%s: %d patterns, at most %d", l.name, len(l.in), maxImagePatterns)
		}
		for _, text := range l.in {
			p, err := parseImagePattern(text)
			if err != nil {
				return Images{}, fmt.Errorf("%s: %.70q: %w", l.name, text, err)
			}
			*l.out = append(*l.out, p)
		}
	}
	return im, nil
}

func parseImagePattern(text string) (imagePattern, error) {
	if text == "" || len(text) > maxImagePattern {
		return imagePattern{}, fmt.Errorf("want 1 to %d characters", maxImagePattern)
	}
	if digestForm(text) {
		return imagePattern{digest: text}, nil
	}
	repo, digest, at := strings.Cut(text, "@")
	if at && !digestForm(digest) {
		return imagePattern{}, fmt.Errorf("after @ comes a digest, sha256: and 64 hexadecimal digits")
	}
	if _, err := path.Match(repo, ""); err != nil || strings.ContainsAny(repo, " \t\n") || repo == "" {
		return imagePattern{}, fmt.Errorf("is not a pattern of repositories, such as docker.io/library/*")
	}
	if repository(repo) != fullRepository(repo) {
		return imagePattern{}, fmt.Errorf("has a tag; images run by digest, so write the repository or the digest")
	}
	return imagePattern{fullRepository(repo), digest}, nil
}

func digestForm(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// fullRepository adds the registry and library that Docker implies: "alpine" is docker.io/library/alpine.
func fullRepository(name string) string {
	first, _, slash := strings.Cut(name, "/")
	switch {
	case slash && (strings.ContainsAny(first, ".:*") || first == "localhost"), !slash && strings.HasPrefix(name, "*"):
		return name
	case slash:
		return "docker.io/" + name
	}
	return "docker.io/library/" + name
}

// repository is the full repository of an image reference, without tag.
func repository(ref string) string {
	if colon := strings.LastIndexByte(ref, ':'); colon > strings.LastIndexByte(ref, '/') {
		ref = ref[:colon]
	}
	return fullRepository(ref)
}

func (p imagePattern) matches(repo, digest string) bool {
	if p.digest != "" && p.digest != digest {
		return false
	}
	if p.repository == "" || p.repository == "**" {
		return true
	}
	pattern, deep := strings.CutSuffix(p.repository, "/**")
	if !deep {
		ok, err := path.Match(pattern, repo)
		return err == nil && ok
	}
	// The fixed part matches as many levels as it has; anything may follow.
	parts := strings.Split(repo, "/")
	n := strings.Count(pattern, "/") + 1
	if len(parts) <= n {
		return false
	}
	ok, err := path.Match(pattern, strings.Join(parts[:n], "/"))
	return err == nil && ok
}

// Check refuses an image that may not run here, with market.ReasonImage.
func (im Images) Check(ref string) error {
	name, digest, _ := strings.Cut(ref, "@")
	repo := repository(name)
	matches := func(p imagePattern) bool { return p.matches(repo, digest) }
	switch {
	case slices.ContainsFunc(im.deny, matches):
		return Refuse(ReasonImage, "this provider does not run image %.200s", ref)
	case len(im.allow) > 0 && !slices.ContainsFunc(im.allow, matches):
		return Refuse(ReasonImage, "image %.200s is not among those this provider runs", ref)
	}
	return nil
}

// String is the pattern as ParseImages reads it.
func (p imagePattern) String() string {
	switch {
	case p.digest == "":
		return p.repository
	case p.repository == "":
		return p.digest
	}
	return p.repository + "@" + p.digest
}

// MaxImagePolicy bounds the patterns of ImagePolicy in bytes, with one more for each of them.
const MaxImagePolicy = 240

// ImagePolicy is the part of Images that an offer has room for.
type ImagePolicy struct {
	Allow []string `json:"allow,omitempty"` // patterns as ParseImages reads them
	Deny  []string `json:"deny,omitempty"`
	// More says that there are patterns for which the offer has no room: the provider refuses a reservation for an
	// image that they do not let run.
	More bool `json:"more,omitempty"`
}

// Policy is im as an offer carries it: all patterns, or none of them and More.
func (im Images) Policy() ImagePolicy {
	var p ImagePolicy
	for _, x := range im.allow {
		p.Allow = append(p.Allow, x.String())
	}
	for _, x := range im.deny {
		p.Deny = append(p.Deny, x.String())
	}
	if p.size() > MaxImagePolicy {
		return ImagePolicy{More: true}
	}
	return p
}

func (p ImagePolicy) size() (n int) {
	for _, x := range slices.Concat(p.Allow, p.Deny) {
		n += len(x) + 1
	}
	return n
}

// Size is how many bytes the policy takes in an offer, at most.
func (p ImagePolicy) Size() int { return p.size() + 2*(len(p.Allow)+len(p.Deny)) + 16 }

// Equal reports whether two policies are the same.
func (p ImagePolicy) Equal(o ImagePolicy) bool {
	return p.More == o.More && slices.Equal(p.Allow, o.Allow) && slices.Equal(p.Deny, o.Deny)
}

// Images reads the patterns. ErrMalformed for those that are none, and for more than MaxImagePolicy bytes.
func (p ImagePolicy) Images() (Images, error) {
	if n := p.size(); n > MaxImagePolicy {
		return Images{}, malformed("offer images", "%d bytes, at most %d", n, MaxImagePolicy)
	}
	im, err := ParseImages(p.Allow, p.Deny)
	if err != nil {
		return Images{}, malformed("offer images", "%v", err)
	}
	return im, nil
}
