package files

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

// depot is an origin of contents by their CIDs. It counts the bytes that it sends.
type depot struct {
	all  map[cid.Cid][]byte
	sent atomic.Int64
}

func newDepot(all ...[]byte) *depot {
	d := &depot{all: map[cid.Cid][]byte{}}
	for _, data := range all {
		d.all[blob.Sum(data)] = data
	}
	return d
}

func (d *depot) Name() string { return "https://depot.example/" }

func (d *depot) Open(_ context.Context, c cid.Cid, offset, _ int64) (io.ReadCloser, int64, error) {
	data, ok := d.all[c]
	if !ok {
		return nil, 0, errors.New("not in the depot")
	}
	return &counted{bytes.NewReader(data[offset:]), &d.sent}, int64(len(data)), nil
}

func (d *depot) Part(ctx context.Context, c cid.Cid, _, offset int64, into []byte) ([]byte, error) {
	body, _, err := d.Open(ctx, c, offset, 0)
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(body, into)
	return nil, err
}

// counted counts the bytes that are read.
type counted struct {
	r io.Reader
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *counted) Close() error { return nil }

// from obtains a blob of an origin for a buyer's job.
func (w *team) from(at int, o workload.Origin, c cid.Cid, size int, fellows ...int) error {
	places := workload.Places{Peer: w.id(buyer), Origin: o, Size: int64(size)}
	for _, i := range fellows {
		places.Fellows = append(places.Fellows, w.id(i))
	}
	return w.files[at].Obtain(w.Context(), places, c, int64(size))
}

// patient gives the providers more time than any machine needs: which one sends is then no matter of speed.
func (w *team) patient() {
	for _, f := range w.files {
		f.pace = pace{turn: time.Minute, ask: time.Minute}
	}
}

// joins lets all providers of the buyer's job read some blobs of a provider.
func (w *team) joins(at int, all ...cid.Cid) {
	w.Cleanup(w.files[at].Join(w.id(buyer), []peer.ID{w.id(first), w.id(second), w.id(spy)}, all))
}

// Three providers bring the layers of an image at the same time. Each layer leaves the registry about once.
func TestRelay(t *testing.T) {
	t.Parallel()
	const layers, size = 6, 5 << 20
	w := newTeam(t, 8)
	w.patient()
	all := make([][]byte, layers)
	for i := range all {
		all[i] = content(size + i)
	}
	o := newDepot(all...)
	var wg sync.WaitGroup
	for _, at := range []int{first, second, spy} {
		for c := range o.all {
			w.joins(at, c)
			wg.Go(func() {
				if err := w.from(at, o, c, len(o.all[c]), first, second, spy); err != nil {
					t.Error(err)
				}
				if got := w.read(at, c); !bytes.Equal(got, o.all[c]) {
					t.Errorf("peer %d has other bytes", at)
				}
			})
		}
	}
	wg.Wait()
	shared := w.files[first].Shared() + w.files[second].Shared() + w.files[spy].Shared()
	if sent := o.sent.Load(); sent >= 3*layers*size || shared == 0 {
		t.Errorf("the registry sent %d MiB of %d, fellows %d parts", sent>>20, layers*size>>20, shared)
	}
}

func (w *team) read(at int, c cid.Cid) []byte {
	path, err := w.stores[at].Path(c)
	if err != nil {
		return nil
	}
	data, _ := os.ReadFile(path)
	return data
}

// A provider that has a blob sends it to one that comes later, and the origin sends nothing.
func TestRelayLater(t *testing.T) {
	t.Parallel()
	w := newTeam(t, 8)
	w.patient()
	data := content(5<<20 + 11)
	c, o := blob.Sum(data), newDepot(data)
	w.joins(first, c)
	if err := w.from(first, o, c, len(data)); err != nil {
		t.Fatal(err)
	}
	sent := o.sent.Load()
	if err := w.from(second, o, c, len(data), first); err != nil || !bytes.Equal(w.read(second, c), data) {
		t.Fatal(err)
	}
	if more := o.sent.Load() - sent; sent != int64(len(data)) || more >= sent {
		t.Errorf("the origin sent %d bytes, then %d", sent, more)
	}
}

// A fellow has other bytes than the layer's, too few or too many of them, refuses all, or never answers. The registry
// sends the layer then, and the fellow is left alone for a while.
func TestAttackPoisonedLayer(t *testing.T) {
	t.Parallel()
	const size = 5 << 20
	for name, test := range map[string]struct {
		change func(w *team, path string) error
		lost   bool
	}{
		"other bytes": {func(_ *team, path string) error {
			return os.WriteFile(path, content(size + 1)[:size], 0o600)
		}, true},
		"a later byte": {func(_ *team, path string) error { return flip(path, size-1) }, true},
		"too few":      {func(_ *team, path string) error { return os.Truncate(path, size/2) }, false},
		"too many":     {func(_ *team, path string) error { return os.Truncate(path, size*2) }, false},
		"no end":       {func(_ *team, path string) error { return os.Truncate(path, 1<<40) }, false},
		"none":         {func(_ *team, path string) error { return os.Remove(path) }, false},
		"no answer":    {func(w *team, _ string) error { w.mute(first); return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTeam(t, 8)
			for _, f := range w.files {
				if name != "no answer" {
					f.pace.ask = time.Minute
				}
			}
			data := content(size)
			c, o := blob.Sum(data), newDepot(data)
			w.joins(first, c)
			if err := w.from(first, o, c, size); err != nil {
				t.Fatal(err)
			}
			path, err := w.stores[first].Path(c)
			if err == nil {
				err = errors.Join(os.Chmod(path, 0o600), test.change(w, path))
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := w.from(second, o, c, size, first); err != nil || !bytes.Equal(w.read(second, c), data) {
				t.Fatalf("got other bytes, or %v", err)
			}
			if sent := o.sent.Load(); sent > 3*size {
				t.Errorf("the registry sent %d MiB for two providers", sent>>20)
			}
			if test.lost && !w.files[second].fellows.isLost(w.id(first)) {
				t.Error("the fellow will be asked again at once")
			}
			if used := w.stores[second].Used(); used != size {
				t.Errorf("%d bytes are in use, want %d", used, size)
			}
		})
	}
}

// flip changes a byte of a file.
func flip(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 1
	_, err = f.WriteAt(b, at)
	return err
}

// mute has a peer take all requests for blobs, and answer none.
func (w *team) mute(at int) {
	h := w.hosts[at]
	for _, p := range h.Mux().Protocols() {
		if strings.Contains(string(p), "/blob/") {
			h.SetStreamHandler(p, func(s network.Stream) {
				<-w.Context().Done()
				_ = s.Reset()
			})
		}
	}
}

// A fellow says that a layer comes, and never has it. The registry sends it after a time that follows from its size.
func TestAttackEndlessLayer(t *testing.T) {
	t.Parallel()
	const size = 5 << 20
	w := newTeam(t, 8)
	w.files[second].pace.ask = time.Minute
	data := content(size)
	c, o := blob.Sum(data), newDepot(data)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = w.stores[first].Receive(ctx, endless{ctx, size, sync.OnceFunc(func() { close(begun) })}, c, size,
			[]string{workload.Holder(w.id(buyer))}, nil)
	}()
	<-begun
	w.joins(first, c)
	if err := w.from(second, o, c, size, first); err != nil || !bytes.Equal(w.read(second, c), data) {
		t.Fatal(err)
	}
	if !w.files[second].fellows.isLost(w.id(first)) {
		t.Error("the fellow will be waited for again at once")
	}
	if sent := o.sent.Load(); sent != size {
		t.Errorf("the registry sent %d bytes, want %d", sent, size)
	}
	cancel()
	<-ended
}

// endless is a source that does not end.
type endless struct {
	ctx   context.Context
	size  int64
	begun func()
}

func (e endless) Open(context.Context, cid.Cid, int64, int64) (io.ReadCloser, int64, error) {
	return io.NopCloser(e), e.size, nil
}

func (e endless) Read([]byte) (int, error) {
	e.begun()
	<-e.ctx.Done()
	return 0, e.ctx.Err()
}

// Of a provider with an image's layers, no peer gets what the job's order does not name: other layers, layers of
// another buyer's image, nor any after the end. A thousand keys that are no members get none either.
func TestAttackLayerOfOthers(t *testing.T) {
	t.Parallel()
	w := newTeam(t, 8)
	layer, other, private := content(5<<20), content(5<<20+1), content(5<<20+2)
	o := newDepot(layer, other, private)
	leave := w.files[first].Join(w.id(buyer), []peer.ID{w.id(second)}, []cid.Cid{blob.Sum(layer)})
	for _, data := range [][]byte{layer, other} {
		if err := w.from(first, o, blob.Sum(data), len(data)); err != nil {
			t.Fatal(err)
		}
	}
	own := w.put(first, private)
	if !w.asks(second, first, blob.Sum(layer)) {
		t.Error("a member gets no layer of its job")
	}
	for _, c := range []cid.Cid{blob.Sum(other), own} {
		if w.asks(second, first, c) {
			t.Error("a member gets a layer that its order does not name")
		}
	}
	if w.asks(spy, first, blob.Sum(layer)) {
		t.Error("a stranger gets a layer")
	}
	for i := range 1000 {
		if h := w.files[first].fellows.Of(peer.ID(fmt.Sprint("key ", i)), blob.Sum(layer)); h != nil {
			t.Fatalf("key %d is a member", i)
		}
	}
	// Another buyer's image names the same layer: its registry has to send it before its fellows get it.
	defer w.files[first].Join(w.id(spy), []peer.ID{w.id(spy)}, []cid.Cid{own})()
	at := workload.Places{
		Peer: w.id(spy), Origin: newDepot(), Size: int64(len(private)), Fellows: []peer.ID{w.id(second)},
	}
	if err := w.files[first].Obtain(t.Context(), at, own, int64(len(private))); err == nil {
		t.Error("an image whose registry does not have its layer gets a stored file")
	}
	if w.asks(spy, first, own) {
		t.Error("a manifest that names a stored file is a right to it")
	}
	leave()
	if w.asks(second, first, blob.Sum(layer)) {
		t.Error("a member gets a layer after the end")
	}
}

// An input with a URL and a known size comes from a provider that has it, and else from its URL.
func TestRelayURL(t *testing.T) {
	t.Parallel()
	w := newTeam(t, 8)
	w.patient()
	data := content(5<<20 + 3)
	c := blob.Sum(data)
	var asked atomic.Int64
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		http.ServeContent(rw, req, "data", time.Time{}, bytes.NewReader(data))
	}))
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	site.StartTLS()
	t.Cleanup(site.Close)
	roots := x509.NewCertPool()
	roots.AddCert(site.Certificate())
	for _, at := range []int{first, second} {
		client, err := web.New(web.Config{Hosts: []string{strings.TrimPrefix(site.URL, web.Scheme)}, Roots: roots})
		if err != nil {
			t.Fatal(err)
		}
		w.files[at].cfg.Web = client
	}
	obtain := func(at int, size int64, fellows ...peer.ID) {
		t.Helper()
		places := workload.Places{Peer: w.id(buyer), URLs: []string{site.URL + "/data"}, Size: size, Fellows: fellows}
		if err := w.files[at].Obtain(t.Context(), places, c, 1<<30); err != nil || !bytes.Equal(w.read(at, c), data) {
			t.Fatal(err)
		}
	}
	w.joins(first, c)
	obtain(first, int64(len(data)), w.id(second))
	if n := asked.Load(); n != 1 {
		t.Errorf("the URL was asked %d times", n)
	}
	obtain(second, int64(len(data)), w.id(first))
	if w.files[first].Shared() == 0 {
		t.Error("the provider that has it sent nothing")
	}
	if err := w.stores[second].Remove(c); err != nil {
		t.Fatal(err)
	}
	shared, before := w.files[first].Shared(), asked.Load()
	obtain(second, 0, w.id(first))
	if w.files[first].Shared() != shared || asked.Load() == before {
		t.Error("a fellow was believed its size")
	}
}
