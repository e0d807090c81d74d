package jobcmd

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/p2p/blob"
)

// A URL without a digest is read once. Its digest is shown without the URL's query, which may be a signature.
func TestReadURL(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("text", 3<<20)
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/w.bin" {
			http.NotFound(w, req)
			return
		}
		_, _ = io.WriteString(w, text)
	}))
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	site.StartTLS()
	t.Cleanup(site.Close)
	roots := x509.NewCertPool()
	roots.AddCert(site.Certificate())
	c, err := web.New(web.Config{Hosts: []string{strings.TrimPrefix(site.URL, web.Scheme)}, Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	p := (&cli.App{Err: &said}).Progress()
	at := site.URL + "/w.bin?signature=secret"
	b, err := readURL(t.Context(), c, at, p)
	if err != nil || b.CID != blob.Sum([]byte(text)).String() || b.Size != int64(len(text)) || !slices.Equal(b.URLs, []string{at}) {
		t.Errorf("%+v, %v", b, err)
	}
	want := fmt.Sprintf("input %s/w.bin has sha256=%x, 12.0 MiB\n", site.URL, sha256.Sum256([]byte(text)))
	if got := said.String(); got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	_, err = readURL(t.Context(), c, site.URL+"/other?signature=secret", p)
	var e *cli.Error
	if !errors.As(err, &e) || e.Code != cli.ExitUsage || !strings.Contains(err.Error(), "/other: input is not at its URL: its server answered with status 404") ||
		strings.Contains(fmt.Sprint(err, e.Hint), "secret") {
		t.Errorf("%v", err)
	}
}
