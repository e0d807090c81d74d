// Package hub finds the digest, the size and a provider's URL of files on a model hub with Hugging Face's protocol.
//
//	hf://OWNER/MODEL[@REVISION]/PATH           hf://datasets/OWNER/NAME[@REVISION]/PATH
//
//	HEAD /OWNER/MODEL/resolve/REVISION/PATH ──▶ X-Repo-Commit, X-Linked-Size, X-Linked-Etag: "<SHA-256>", Location
//
// A public file has a URL of its commit that every provider can read. A gated file is requested with the user's token;
// its URL is the signed one that the hub redirects to. The token is sent only to the hub. Small files have no
// X-Linked-Etag, since they are no LFS files: they have to be read for their SHA-256, and a gated small file has no
// signed URL.
package hub

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Scheme begins the names of files of the hub.
const Scheme = "hf://"

const (
	endpoint  = "https://huggingface.co"
	main      = "main"
	maxName   = 1 << 10
	maxToken  = 4 << 10
	maxHops   = 3
	patience  = 30 * time.Second
	maxHeader = 64 << 10
)

// ErrName means that a text names no file of a hub.
var ErrName = errors.New("name of a file on the hub")

// File is a file of the hub.
type File struct {
	Kind     string // "" for a model, "datasets" or "spaces"
	Repo     string // OWNER/NAME
	Revision string // a branch, tag or commit
	Path     string
}

var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)

// Parse reads a name, hf://[datasets/|spaces/]OWNER/NAME[@REVISION]/PATH.
func Parse(text string) (File, error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	if !ok || len(text) > maxName {
		return File{}, fmt.Errorf("%w: %.80q, want hf://OWNER/MODEL/PATH", ErrName, text)
	}
	f := File{Revision: main}
	for _, kind := range []string{"datasets", "spaces"} {
		if below, ok := strings.CutPrefix(rest, kind+"/"); ok {
			f.Kind, rest = kind, below
		}
	}
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 3 {
		return File{}, fmt.Errorf("%w: %.80q, want hf://OWNER/MODEL/PATH", ErrName, text)
	}
	name, revision, has := strings.Cut(parts[1], "@")
	if has {
		f.Revision = revision
	}
	f.Repo, f.Path = parts[0]+"/"+name, parts[2]
	for _, w := range []string{parts[0], name, f.Revision} {
		if !word.MatchString(w) {
			return File{}, fmt.Errorf("%w: %.80q: %.80q is no owner, name or revision", ErrName, text, w)
		}
	}
	foreign := func(r rune) bool { return r < ' ' || r == 0x7f || r == '#' || r == '?' || r == '\\' }
	for _, p := range strings.Split(f.Path, "/") {
		if p == "" || p == "." || p == ".." || strings.ContainsFunc(p, foreign) {
			return File{}, fmt.Errorf("%w: %.80q: the path is not clean", ErrName, text)
		}
	}
	return f, nil
}

// url is where a hub has the file in a revision.
func (f File) url(endpoint, revision string) string {
	parts := strings.Split(f.Path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	kind := ""
	if f.Kind != "" {
		kind = f.Kind + "/"
	}
	return fmt.Sprintf("%s/%s%s/resolve/%s/%s", endpoint, kind, f.Repo, revision, strings.Join(parts, "/"))
}

// Client sends requests to a hub. The zero value uses Hugging Face's hub and public files.
type Client struct {
	Endpoint string       // empty is Hugging Face's
	Token    string       // of the user; empty reads public files alone
	HTTP     *http.Client // is optional; if nil, one with HTTPS of the system
}

// FromEnv is the client that a user has set up: HF_ENDPOINT, and the token of HF_TOKEN or of the hub's login.
func FromEnv(env func(name string) string) (Client, error) {
	c := Client{Endpoint: strings.TrimSuffix(env("HF_ENDPOINT"), "/"), Token: env("HF_TOKEN")}
	if c.Endpoint != "" && !secure(c.Endpoint) {
		return c, fmt.Errorf("HF_ENDPOINT: got %.80q, want https://HOST", c.Endpoint)
	}
	if c.Token == "" {
		at := cmp.Or(env("HF_TOKEN_PATH"), filepath.Join(
			cmp.Or(env("HF_HOME"), filepath.Join(env("HOME"), ".cache", "huggingface")), "token"))
		if info, err := os.Stat(at); err == nil && info.Size() <= maxToken {
			b, err := os.ReadFile(at)
			if err != nil {
				return c, fmt.Errorf("reading the hub's token: %w", err)
			}
			c.Token = strings.TrimSpace(string(b))
		}
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return c, errors.New("the hub's token is not one word")
	}
	return c, nil
}

// secure reports whether a URL is one of HTTPS without a user.
func secure(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil
}

// Found is a file as the hub describes it.
type Found struct {
	URL    string // for providers, unless Gated
	Sum    string // SHA-256 in hexadecimal; empty if the hub does not have it
	Size   int64  // 0 if it is not known
	Commit string
	Gated  bool // the URL needs the token: only this client can read it
}

// Find requests a file from the hub, at first without the token.
func (c Client) Find(ctx context.Context, f File) (Found, error) {
	found, status, err := c.head(ctx, f, "")
	if err == nil && c.Token != "" && (status == http.StatusUnauthorized || status == http.StatusForbidden ||
		status == http.StatusNotFound) {
		found, status, err = c.head(ctx, f, c.Token)
	}
	switch {
	case err != nil:
		return Found{}, err
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return Found{}, fmt.Errorf("%s/%s: access denied by the hub: set HF_TOKEN to a token with read access", f.Repo,
			f.Path)
	case status/100 != 2 && status/100 != 3:
		return Found{}, fmt.Errorf("%s/%s: the hub answered with status %d", f.Repo, f.Path, status)
	}
	return found, nil
}

// head requests the description of a file. Redirects within the hub, as for renamed files, are followed.
func (c Client) head(ctx context.Context, f File, token string) (Found, int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	base := cmp.Or(c.Endpoint, endpoint)
	at := f.url(base, f.Revision)
	for range maxHops {
		res, err := c.do(ctx, http.MethodHead, at, token)
		if err != nil {
			return Found{}, 0, fmt.Errorf("asking the hub for %s/%s: %w", f.Repo, f.Path, err)
		}
		_ = res.Body.Close()
		to := res.Header.Get("Location")
		if res.StatusCode/100 == 3 && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") &&
			res.Header.Get("X-Linked-Etag") == "" {
			at = base + to
			continue
		}
		return describe(f, base, at, to, token != "", res), res.StatusCode, nil
	}
	return Found{}, 0, fmt.Errorf("asking the hub for %s/%s: too many redirects", f.Repo, f.Path)
}

// describe reads the head of an answer.
func describe(f File, base, at, to string, gated bool, res *http.Response) Found {
	found := Found{URL: at, Gated: gated}
	if c := res.Header.Get("X-Repo-Commit"); word.MatchString(c) {
		found.Commit, found.URL = c, f.url(base, c)
	}
	sum := strings.Trim(strings.TrimPrefix(res.Header.Get("X-Linked-Etag"), "W/"), `"`)
	if b, err := hex.DecodeString(sum); err == nil && len(b) == 32 {
		found.Sum = strings.ToLower(sum)
	}
	size := cmp.Or(res.Header.Get("X-Linked-Size"), res.Header.Get("Content-Length"))
	if n, err := strconv.ParseInt(size, 10, 64); err == nil && n > 0 && (res.StatusCode/100 == 2 || found.Sum != "") {
		found.Size = n
	}
	if gated && found.Sum != "" && secure(to) {
		found.URL, found.Gated = to, false
	}
	return found
}

// Open reads a gated file that has no digest.
func (c Client) Open(ctx context.Context, found Found) (io.ReadCloser, error) {
	res, err := c.do(ctx, http.MethodGet, found.URL, c.Token)
	if err != nil {
		return nil, fmt.Errorf("reading from the hub: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil, fmt.Errorf("reading from the hub: status %d", res.StatusCode)
	}
	return res.Body, nil
}

// do makes a request and follows no redirect.
func (c Client) do(ctx context.Context, method, at, token string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "starling/1")
	req.Header.Set("Accept-Encoding", "identity")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	h := http.Client{}
	if c.HTTP != nil {
		h = *c.HTTP
	} else {
		h.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: maxHeader, TLSHandshakeTimeout: patience,
			ResponseHeaderTimeout: patience, DisableCompression: true, DisableKeepAlives: true,
		}
	}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return h.Do(req)
}
