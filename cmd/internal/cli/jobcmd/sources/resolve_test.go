package sources

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/files/hub"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// serve starts a site, and returns a client that reads it.
func serve(t *testing.T, answer http.HandlerFunc) (*httptest.Server, *web.Client) {
	t.Helper()
	site := httptest.NewUnstartedServer(answer)
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	site.StartTLS()
	t.Cleanup(site.Close)
	roots := x509.NewCertPool()
	roots.AddCert(site.Certificate())
	c, err := web.New(web.Config{Hosts: []string{strings.TrimPrefix(site.URL, web.Scheme)}, Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	return site, c
}

// A URL without a digest is read once. Its digest is shown without the URL's query, which may be a signature.
func TestReadURL(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("text", 3<<20)
	site, c := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/w.bin" {
			http.NotFound(w, req)
			return
		}
		_, _ = io.WriteString(w, text)
	})
	var said bytes.Buffer
	p := (&cli.App{Err: &said}).Progress()
	at := site.URL + "/w.bin?signature=secret"
	r := resolver{web: c}
	b, err := r.resolve(t.Context(), at, p)
	if err != nil || b.CID != blob.Sum([]byte(text)).String() || b.Size != int64(len(text)) || !slices.Equal(b.URLs, []string{at}) {
		t.Errorf("%+v, %v", b, err)
	}
	want := fmt.Sprintf("input %s/w.bin has sha256=%x, 12.0 MiB\n", site.URL, sha256.Sum256([]byte(text)))
	if got := said.String(); got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	_, err = r.resolve(t.Context(), site.URL+"/other?signature=secret", p)
	var e *cli.Error
	if !errors.As(err, &e) || e.Code != cli.ExitUsage || !strings.Contains(err.Error(), "/other: input not found at its URL: status of the server: 404") ||
		strings.Contains(fmt.Sprint(err, e.Hint), "secret") {
		t.Errorf("%v", err)
	}
}

// The hub reports the digests of large files. Small files are read. Files that need the user's token are stored on the
// peer.
func TestResolveHub(t *testing.T) {
	t.Parallel()
	const token, small = "hf_secret", `{"a": 1}`
	sum := sha256.Sum256([]byte("weights"))
	site, c := serve(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Repo-Commit", "0123456789abcdef")
		opened := req.Header.Get("Authorization") == "Bearer "+token
		switch {
		case strings.Contains(req.URL.Path, "/gated/") && !opened:
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(req.URL.Path, "/w.bin"):
			w.Header().Set("X-Linked-Etag", fmt.Sprintf(`"%x"`, sum))
			w.Header().Set("X-Linked-Size", "7")
			w.Header().Set("Location", "https://cdn.example.org/w?signature=abc")
			w.WriteHeader(http.StatusFound)
		default:
			_, _ = io.WriteString(w, small)
		}
	})
	var stored string
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(req.Body)
		if err != nil || req.Header.Get("Authorization") == "Bearer "+token {
			t.Errorf("the peer was sent %q, %v", req.Header, err)
		}
		stored = string(b)
		_ = json.NewEncoder(w).Encode(record.Blob{CID: blob.Sum(b).String(), Size: int64(len(b))})
	}))
	t.Cleanup(peer.Close)
	var said bytes.Buffer
	r := resolver{
		peer: api.New(api.Endpoint{URL: peer.URL, Token: "token"}), web: c,
		hub: hub.Client{Endpoint: site.URL, Token: token, HTTP: site.Client()},
	}
	large, tiny := blob.Sum([]byte("weights")).String(), blob.Sum([]byte(small)).String()
	at := site.URL + "/acme/model/resolve/0123456789abcdef/"
	for source, want := range map[string]job.Blob{
		"hf://acme/model/w.bin":       {CID: large, Size: 7, URLs: []string{at + "w.bin"}},
		"hf://acme/model/config.json": {CID: tiny, Size: 8, URLs: []string{at + "config.json"}},
		"hf://acme/gated/w.bin":       {CID: large, Size: 7, URLs: []string{"https://cdn.example.org/w?signature=abc"}},
		"hf://acme/gated/config.json": {CID: tiny, Size: 8},
	} {
		got, err := r.resolve(t.Context(), source, (&cli.App{Err: &said}).Progress())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", source, got, err, want)
		}
	}
	if stored != small {
		t.Errorf("the peer stored %q", stored)
	}
	if text := said.String(); !strings.Contains(text, fmt.Sprintf("input hf://acme/model/w.bin has sha256=%x, 0.0 KiB, commit 0123456789ab\n", sum)) ||
		strings.Contains(text, "signature") || strings.Contains(text, token) {
		t.Errorf("said %q", text)
	}
}
