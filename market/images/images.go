// Package images implements a provider's patterns for the container images that it runs.
package images

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Patterns selects the container images that a provider runs. The zero Patterns selects all.
type Patterns struct {
	allow, deny []pattern
}

// pattern is a pattern on the repository, the digest, or both.
type pattern struct{ repository, digest string }

// Pushed is the name of a registry in place of which a job names an image that no registry has: its files come from the
// peer that commands the job. No host can have the name (RFC 6761). Buyers choose the rest of such a name.
const Pushed = "pushed.invalid"

// IsPushed reports whether an image's files come from the peer that commands the job.
func IsPushed(ref string) bool { return strings.HasPrefix(ref, Pushed+"/") }

const (
	maxImagePatterns = 256
	maxImagePattern  = 256
)

// Parse reads patterns of images: "docker.io/library/*" (one level), "ghcr.io/acme/**" (any depth), "alpine"
// (Docker Hub's), "sha256:…" (one digest of any repository), "ghcr.io/acme/tool@sha256:…". Images that match deny are
// refused. If allow is not empty, images that do not match it are refused, too.
//
// Of an image that a buyer pushed, allow selects only by the registry Pushed, "pushed.invalid/**", or the digest alone:
// its buyer chose the rest of the name, so "*/acme/**" and "**" do not allow it.
func Parse(allow, deny []string) (Patterns, error) {
	var im Patterns
	for _, l := range []struct {
		name string
		in   []string
		out  *[]pattern
	}{{"allow", allow, &im.allow}, {"deny", deny, &im.deny}} {
		if len(l.in) > maxImagePatterns {
			return Patterns{}, fmt.Errorf("%s: %d patterns, at most %d", l.name, len(l.in), maxImagePatterns)
		}
		for _, text := range l.in {
			p, err := parseImagePattern(text)
			if err != nil {
				return Patterns{}, fmt.Errorf("%s: %.70q: %w", l.name, text, err)
			}
			*l.out = append(*l.out, p)
		}
	}
	return im, nil
}

func parseImagePattern(text string) (pattern, error) {
	if text == "" || len(text) > maxImagePattern {
		return pattern{}, fmt.Errorf("want 1 to %d characters", maxImagePattern)
	}
	if digestForm(text) {
		return pattern{digest: text}, nil
	}
	repo, digest, at := strings.Cut(text, "@")
	if at && !digestForm(digest) {
		return pattern{}, fmt.Errorf("digest after @: want sha256: and 64 hexadecimal digits")
	}
	if _, err := path.Match(repo, ""); err != nil || strings.ContainsAny(repo, " \t\n") || repo == "" {
		return pattern{}, fmt.Errorf("is not a pattern of repositories, such as docker.io/library/*")
	}
	if repository(repo) != fullRepository(repo) {
		return pattern{}, fmt.Errorf("has a tag; images run by digest, so write the repository or the digest")
	}
	return pattern{fullRepository(repo), digest}, nil
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

func (p pattern) matches(repo, digest string) bool {
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

// Check returns the reason why an image may not run here, or nil if it may.
func (im Patterns) Check(ref string) error {
	name, digest, _ := strings.Cut(ref, "@")
	repo := repository(name)
	matches := func(p pattern) bool { return p.matches(repo, digest) }
	allows := func(p pattern) bool {
		return p.matches(repo, digest) && (!IsPushed(ref) || p.repository == "" || IsPushed(p.repository))
	}
	switch {
	case slices.ContainsFunc(im.deny, matches):
		return fmt.Errorf("this provider does not run image %.200s", ref)
	case len(im.allow) > 0 && !slices.ContainsFunc(im.allow, allows):
		return fmt.Errorf("image %.200s is not among those this provider runs", ref)
	}
	return nil
}

// String is the pattern as Parse reads it.
func (p pattern) String() string {
	switch {
	case p.digest == "":
		return p.repository
	case p.repository == "":
		return p.digest
	}
	return p.repository + "@" + p.digest
}

// Allowed is a list of patterns; unless it is empty, an image must match one of them.
func (im Patterns) Allowed() []string { return texts(im.allow) }

// Denied are the patterns of which an image must match none.
func (im Patterns) Denied() []string { return texts(im.deny) }

func texts(ps []pattern) (out []string) {
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}
