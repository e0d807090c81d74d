package files

import (
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// world is a provider, two buyers, and a server of the provider's operator that has a text at each path but /gone.
type world struct {
	*testing.T
	*Files
	ids    []peer.ID
	stores []*blob.Store
	url    string
	text   string
	asked  atomic.Int64
}

const provider, honest, evil = 0, 1, 2

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, text: strings.Repeat("text", 100_000)}
	hosts := p2ptest.Loopback(t, 3)
	for i, h := range hosts {
		s, err := blob.OpenStore(t.TempDir(), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if i != provider {
			t.Cleanup(blob.Serve(h, p2ptest.Network, s, nil, nil).Close)
		}
		w.ids, w.stores = append(w.ids, h.ID()), append(w.stores, s)
	}
	p2ptest.ConnectAll(t, hosts...)
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.asked.Add(1)
		if req.URL.Path == "/gone" {
			http.NotFound(rw, req)
			return
		}
		_, _ = io.WriteString(rw, w.text)
	}))
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	site.StartTLS()
	t.Cleanup(site.Close)
	w.url = site.URL
	roots := x509.NewCertPool()
	roots.AddCert(site.Certificate())
	client, err := web.New(web.Config{Hosts: []string{strings.TrimPrefix(site.URL, web.Scheme)}, Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	w.Files = New(Config{
		Host: hosts[provider], Blobs: w.stores[provider], Network: p2ptest.Network, Web: client, Log: slog.New(slog.DiscardHandler),
	})
	return w
}

func (w *world) obtain(by int, c cid.Cid, paths ...string) error {
	at := workload.Places{Peer: w.ids[by]}
	for _, p := range paths {
		at.URLs = append(at.URLs, w.url+p)
	}
	return w.Obtain(w.Context(), at, c, 1<<20)
}

// A file is read from its URL once, for all executions and all buyers. Without the URL its digest is no right to it.
func TestObtainOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := blob.Sum([]byte(w.text))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if err := w.obtain([]int{honest, evil}[i%2], c, "/w"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.asked.Load(); n != 1 || !w.stores[provider].Has(c) {
		t.Errorf("the server was asked %d times", n)
	}
	if err := w.obtain(honest, c, "/other"); err != nil || w.asked.Load() != 1 {
		t.Errorf("from elsewhere, for a buyer that had it: %v, asked %d times", err, w.asked.Load())
	}
}

// A buyer does not get a stored file by its digest and a URL that does not have it, nor by one that another may read.
func TestAttackKnownDigest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret, _, err := w.stores[honest].Put(t.Context(), strings.NewReader("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.obtain(honest, secret); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/w", "/gone"} {
		if err := w.obtain(evil, secret, path); !errors.Is(err, web.ErrAbsent) {
			t.Errorf("%s: %v", path, err)
		}
	}
	c := blob.Sum([]byte(w.text))
	if err := w.obtain(honest, c, "/w?signature=a"); err != nil {
		t.Fatal(err)
	}
	asked := w.asked.Load()
	if err := w.obtain(honest, c, "/w?signature=b"); err != nil || w.asked.Load() != asked {
		t.Errorf("the same buyer, signed again: %v, asked %d times", err, w.asked.Load()-asked)
	}
	if err := w.obtain(evil, c, "/gone", "/gone?signature=a"); !errors.Is(err, web.ErrAbsent) {
		t.Errorf("with a URL that is gone: %v", err)
	}
	asked = w.asked.Load()
	if err := w.obtain(evil, c, "/w?signature=a"); err != nil || w.asked.Load() == asked {
		t.Errorf("with the signed URL: %v, asked %d times", err, w.asked.Load()-asked)
	}
}

// While one buyer's fetch runs, another with the CID alone waits, and has to show the blob afterwards.
func TestAttackKnownCIDMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := bytes.Repeat([]byte("secret"), 100_000)
	c, _, err := w.stores[honest].Put(t.Context(), bytes.NewReader(secret))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := w.Fetch(t.Context(), w.ids[honest], c, 1<<20); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := w.Fetch(t.Context(), w.ids[evil], c, 1<<20); !errors.Is(err, blob.ErrNotFound) {
				t.Errorf("got %v, want ErrNotFound", err)
			}
		})
	}
	wg.Wait()
}

// A file that its URL does not have comes from the buyer, if it has it. A peer that reads no URLs asks the buyer alone.
func TestObtainFromBuyer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own, _, err := w.stores[honest].Put(t.Context(), strings.NewReader("own"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.obtain(honest, own, "/gone"); err != nil || !w.stores[provider].Has(own) {
		t.Error(err)
	}
	w.cfg.Web = nil
	other, _, err := w.stores[honest].Put(t.Context(), strings.NewReader("other"))
	if err != nil {
		t.Fatal(err)
	}
	asked := w.asked.Load()
	if err := w.obtain(honest, other, "/w"); err != nil || w.asked.Load() != asked {
		t.Errorf("%v, asked %d times", err, w.asked.Load()-asked)
	}
}
