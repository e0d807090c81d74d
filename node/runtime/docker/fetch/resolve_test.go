package fetch

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/starling-network/starling/node/runtime"
)

// A tag has the digest of what is under it now; a name with a digest is not looked up.
func TestResolve(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	resolve := func(image string) string {
		t.Helper()
		digest, err := l.client().Resolve(t.Context(), image, nil)
		l.must(err)
		return digest
	}
	for _, text := range []string{"old", "new"} {
		name, want, _ := strings.Cut(l.push(archive(t, map[string]string{"f": text})), "@")
		if got := resolve(name + ":latest"); got != want {
			t.Errorf("%s:latest is %s, want %s", name, got, want)
		}
		if got := resolve(name); got != want {
			t.Errorf("%s is %s, want that of its latest tag, %s", name, got, want)
		}
	}
	fixed := "sha256:" + strings.Repeat("0a", 32)
	if got := resolve("nowhere.invalid/x:latest@" + fixed); got != fixed {
		t.Errorf("a name with a digest became %s", got)
	}
}

// A registry that does not answer requests for the head of a manifest is asked for the manifest.
func TestResolveWithoutHead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	name, want, _ := strings.Cut(l.push(archive(t, nil)), "@")
	l.serve = func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodHead {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return req.Method == http.MethodHead
	}
	if got, err := l.client().Resolve(t.Context(), name, nil); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

// The errors say what to do, and are classed as those of Open.
func TestResolveFails(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.push(archive(t, nil))
	private := newLab(t)
	private.serve = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	page := newLab(t)
	page.serve = func(w http.ResponseWriter, req *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0a", 32))
		return strings.Contains(req.URL.Path, "/manifests/")
	}
	for image, want := range map[string]error{
		l.host + "/x:none":      runtime.ErrBadImage,
		l.host + "/y":           runtime.ErrBadImage,
		"UPPER":                 runtime.ErrBadImage,
		private.host + "/x":     runtime.ErrCredentials,
		page.host + "/x":        runtime.ErrBadImage,
		"registry.invalid/x:v1": runtime.ErrRegistry,
	} {
		c, err := New([]string{l.host, private.host, page.host})
		l.must(err)
		digest, err := c.Resolve(t.Context(), image, &runtime.RegistryAuth{Username: "ada", Password: "hush"})
		if !errors.Is(err, want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %q, %v, want %v", image, digest, err, want)
		}
	}
}

// TestAttackTagReachesMachine: a tag that an API key asks for leads nowhere that the image itself would not.
func TestAttackTagReachesMachine(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer s.Close()
	c, err := New([]string{"registry.lan"})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{strings.TrimPrefix(s.URL, "http://"), "169.254.169.254", "localhost:1"} {
		if _, err := c.Resolve(t.Context(), host+"/x:v1", nil); !errors.Is(err, runtime.ErrRegistry) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests reached a server of this machine", n)
	}
}
