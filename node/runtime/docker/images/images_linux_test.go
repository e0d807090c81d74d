package images

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/docker/docker/client"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("a", 64)
	for ref, want := range map[string]string{
		"alpine" + digest:                "docker.io/library/alpine" + digest,
		"alpine:3" + digest:              "docker.io/library/alpine" + digest,
		"ghcr.io/acme/train:v1" + digest: "ghcr.io/acme/train" + digest,
		"127.0.0.1:5000/a/b" + digest:    "127.0.0.1:5000/a/b" + digest,
		"alpine":                         "",
		"alpine@sha256:short":            "",
		"Alpine" + digest:                "",
		"ghcr.io/acme/../x" + digest:     "",
	} {
		if got, err := Canonical(ref); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", ref, got, err)
		}
	}
}

func TestReadLoad(t *testing.T) {
	t.Parallel()
	if err := readLoad(strings.NewReader(`{"stream":"Loaded"}` + "\n" + `{"stream":"x"}`)); err != nil {
		t.Error(err)
	}
	err := readLoad(strings.NewReader(`{"errorDetail":{"message":"no"},"error":"no"}`))
	if err == nil || err.Error() != "no" {
		t.Error(err)
	}
	if err := readLoad(strings.NewReader("garbage")); err == nil {
		t.Error("garbage is taken for success")
	}
}

// An engine that ends while it reads an archive is reported as an engine's failure, however the writer hears of it.
func TestEngineEndsDuringLoad(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/images/load") {
			return
		}
		_, _ = io.ReadFull(r.Body, make([]byte, 64<<10))
		panic(http.ErrAbortHandler) // closes the connection
	}))
	defer srv.Close()
	cli, err := client.NewClientWithOpts(client.WithHost("tcp://"+srv.Listener.Addr().String()),
		client.WithVersion(engine.MinAPIVersion))
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	m := &Images{engine: &engine.Engine{Client: cli}}
	for range 20 {
		if err := m.load(t.Context(), func(_ context.Context, w io.Writer) error {
			for {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return err
				}
			}
		}); !errors.Is(err, runtime.ErrEngine) {
			t.Fatal(err)
		}
	}
}
