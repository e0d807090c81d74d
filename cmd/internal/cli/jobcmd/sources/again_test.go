package sources

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/files/hub"
	"github.com/starling-network/starling/node/files/s3/objects"
	"github.com/starling-network/starling/node/files/s3/s3test"
	"github.com/starling-network/starling/node/job"
)

// A job that runs again has new signed URLs of its objects, while these have the job's contents. The user's own URLs
// and files stay.
func TestSignAgain(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, true)
	d := newDesk(t, s.Env, private(s))
	d.put(map[string]string{"w.bin": "weights", "parts/0": "zero", "parts/1": "one"})
	if err := os.WriteFile(filepath.Join(s.Dir, "plain"), []byte("without a checksum"), 0o644); err != nil {
		t.Fatal(err)
	}
	const own = "https://example.org/own?token=x"
	j, found, err := d.find(spec(at+"w.bin", "/in/w.bin", at+"parts/", "/parts", at+"plain", "/in/plain", own, "/in/own"))
	if err != nil {
		t.Fatal(err)
	}
	found["a.wasm"], found[own] = job.Blob{CID: cidOf("")}, job.Blob{CID: cidOf("own"), URLs: []string{own}}
	if j, err = j.WithBlobs(found); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	sign := func(env func(string) string) (map[string][]string, error) {
		return Sign(t.Context(), &cli.App{Getenv: env}, j, (&cli.App{Err: &said}).Progress())
	}
	urls, err := sign(s.Env)
	if err != nil || len(urls) != 4 {
		t.Fatalf("%d URLs, %v", len(urls), err)
	}
	again, err := j.With(job.Changes{URLs: urls})
	if err != nil {
		t.Fatal(err)
	}
	for source := range urls {
		b := again.Blobs[source]
		if id, _, err := d.r.web.Sum(t.Context(), b.URLs[0], nil); err != nil || id.String() != b.CID || b.CID != j.Blobs[source].CID {
			t.Errorf("%s: a provider reads %v, %v, want %s", source, id, err, b.CID)
		}
	}
	nobody := func(string) string { return "" }
	if urls, err := sign(nobody); err != nil || urls != nil || !strings.Contains(said.String(), "keeps its signed URLs") {
		t.Errorf("without keys, of URLs that are valid: %v, %v, said %q", urls, err, said.String())
	}
	for _, changed := range []string{"parts/0", "plain"} {
		before, err := os.ReadFile(filepath.Join(s.Dir, changed))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, changed), []byte("of another length"), 0o644); err != nil {
			t.Fatal(err)
		}
		if urls, err := sign(s.Env); !errors.Is(err, objects.ErrChanged) || !strings.Contains(cli.Explain(err).Hint, "submit the job again") {
			t.Errorf("%s changed: %v, %v", changed, urls, err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, changed), before, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(said.String(), "X-Amz") {
		t.Errorf("said %q", said.String())
	}
}

// A gated file of the hub has a new signed URL, while the hub has it with the same SHA-256.
func TestSignGated(t *testing.T) {
	t.Parallel()
	const source = "hf://acme/model/w.bin"
	sum := strings.Repeat("0a", 32)
	n := 0
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		n++
		w.Header().Set("X-Linked-Etag", `"`+sum+`"`)
		w.Header().Set("X-Linked-Size", "7")
		w.Header().Set("Location", fmt.Sprint("https://cdn.example.org/w?signature=", n))
		w.WriteHeader(http.StatusFound)
	}))
	defer site.Close()
	had, _ := job.Named(job.WithSum("https://cdn.example.org/w", sum))
	had.Size = 7
	s := signer{hub: hub.Client{Endpoint: site.URL, Token: "token", HTTP: site.Client()}}
	for _, want := range []string{"https://cdn.example.org/w?signature=1", "https://cdn.example.org/w?signature=2"} {
		if got, err := s.sign(t.Context(), source, had); err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	sum = strings.Repeat("0b", 32)
	if got, err := s.sign(t.Context(), source, had); !errors.Is(err, objects.ErrChanged) {
		t.Errorf("a changed file: %s, %v", got, err)
	}
	s.hub.Token = ""
	if got, err := s.sign(t.Context(), source, had); err == nil || !strings.Contains(err.Error(), "HF_TOKEN") {
		t.Errorf("without a token: %s, %v", got, err)
	}
}

// The end of a signed URL is read from it; other URLs have none.
func TestEnds(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]time.Time{
		"https://h/w?X-Amz-Date=20240102T030405Z&X-Amz-Expires=60": time.Date(2024, 1, 2, 3, 5, 5, 0, time.UTC),
		"https://h/w?X-Amz-Date=20240102T030405Z":                  {},
		"https://h/w?X-Amz-Date=now&X-Amz-Expires=60":              {},
		"https://h/w?signature=x":                                  {},
		"%":                                                        {},
	} {
		if got := ends(url); !got.Equal(want) {
			t.Errorf("%s: got %v, want %v", url, got, want)
		}
	}
}
