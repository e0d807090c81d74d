package blob_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// two is a store served by the second of two connected hosts, and one to fetch into by the first.
func two(t testing.TB, max int64, allow func(peer.ID, cid.Cid) bool) (a, b *p2p.Host, to, from *blob.Store) {
	hosts := p2ptest.Loopback(t, 2)
	to, from = open(t, max), open(t, plenty)
	srv := blob.Serve(hosts[1], p2ptest.Network, from, allow, nil)
	t.Cleanup(srv.Close)
	p2ptest.ConnectAll(t, hosts...)
	return hosts[0], hosts[1], to, from
}

func TestFetch(t *testing.T) {
	t.Parallel()
	secret := blob.Sum([]byte("secret"))
	a, b, to, from := two(t, 3<<20, func(_ peer.ID, c cid.Cid) bool { return c != secret })
	fetch := func(c cid.Cid, max int64, progress func(int64, int64)) error {
		return blob.Fetch(t.Context(), a, p2ptest.Network, b.ID(), c, max, to, progress)
	}
	for _, n := range []int{0, 1, 1<<20 + 7} {
		data := random(n)
		c := put(t, from, data)
		var last, calls int64
		err := fetch(c, int64(n), func(done, total int64) {
			calls++
			if done < last || total != int64(n) {
				t.Errorf("progress %d of %d after %d", done, total, last)
			}
			last = done
		})
		if err != nil || last != int64(n) || calls == 0 || !bytes.Equal(read(t, to, c), data) {
			t.Errorf("%d bytes: %v, progress %d in %d calls", n, err, last, calls)
		}
		if err := fetch(c, 0, nil); err != nil {
			t.Errorf("what is there was fetched again: %v", err)
		}
	}
	put(t, from, []byte("secret"))
	for name, tc := range map[string]struct {
		c    cid.Cid
		max  int64
		want error
	}{
		"missing":     {blob.Sum([]byte("missing")), plenty, blob.ErrNotFound},
		"not allowed": {secret, plenty, blob.ErrNotFound},
		"too large":   {put(t, from, random(1001)), 1000, blob.ErrTooLarge},
		"store full":  {put(t, from, random(2<<20)), plenty, blob.ErrFull},
		"no CID":      {cid.Undef, plenty, blob.ErrBadCID},
	} {
		if err := fetch(tc.c, tc.max, nil); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
		if tc.c.Defined() && to.Has(tc.c) {
			t.Errorf("%s: it is there all the same", name)
		}
	}
	if want := int64(1<<20 + 7 + 1); to.Used() != want {
		t.Errorf("%d bytes in use after failures, want %d", to.Used(), want)
	}
}

// Fetches of one blob wait for each other: it comes over the wire once.
func TestFetchTogether(t *testing.T) {
	t.Parallel()
	a, b, to, from := two(t, plenty, nil)
	c := put(t, from, random(1<<20))
	var wg sync.WaitGroup
	var mu sync.Mutex
	fetches := 0
	for range 8 {
		wg.Go(func() {
			err := blob.Fetch(t.Context(), a, p2ptest.Network, b.ID(), c, plenty, to, func(done, total int64) {
				if done == total {
					mu.Lock()
					fetches++
					mu.Unlock()
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if fetches != 1 || to.Used() != 1<<20 {
		t.Errorf("%d fetches, %d bytes in use", fetches, to.Used())
	}
}

// A fetch that broke off goes on where it was; a first part that is a lie is found out and fetched anew.
func TestFetchResumes(t *testing.T) {
	t.Parallel()
	data := random(1 << 20)
	lie := bytes.Clone(data[:1<<19])
	lie[1000] ^= 1
	for name, tc := range map[string]struct {
		partial []byte
		first   int64 // bytes there at the first call of progress
	}{
		"nothing":  {nil, 0},
		"half":     {data[:1<<19], 1 << 19},
		"all":      {data, 1 << 20},
		"a lie":    {lie, 1 << 19},
		"too much": {append(bytes.Clone(data), random(5000)...), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, _, from := two(t, 0, nil)
			dir := t.TempDir()
			to, err := blob.OpenStore(dir, plenty)
			if err != nil {
				t.Fatal(err)
			}
			c := put(t, from, data)
			if tc.partial != nil {
				if err := os.WriteFile(filepath.Join(dir, "partial", c.String()), tc.partial, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			first := int64(-1)
			err = blob.Fetch(t.Context(), a, p2ptest.Network, b.ID(), c, plenty, to, func(done, _ int64) {
				if first < 0 {
					first = done
				}
			})
			if err != nil || first != tc.first || !bytes.Equal(read(t, to, c), data) || to.Used() != 1<<20 {
				t.Errorf("%v, began at %d, want %d; %d bytes in use", err, first, tc.first, to.Used())
			}
			empty(t, filepath.Join(dir, "partial"))
		})
	}
}

// A large blob goes past the page cache, except for its ragged end; cut anywhere, it goes on from a whole block.
func TestFetchLarge(t *testing.T) {
	t.Parallel()
	data := random(20<<20 + 4096 + 123)
	for name, tc := range map[string]struct{ cut, first int64 }{
		"whole":      {0, 0},
		"cut":        {3<<20 + 5000, 3<<20 + 4096},
		"end left":   {20<<20 + 4096 + 100, 20<<20 + 4096},
		"first byte": {1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, _, from := two(t, 0, nil)
			dir := t.TempDir()
			to, err := blob.OpenStore(dir, plenty)
			if err != nil {
				t.Fatal(err)
			}
			c := put(t, from, data)
			if err := os.WriteFile(filepath.Join(dir, "partial", c.String()), data[:tc.cut], 0o600); err != nil {
				t.Fatal(err)
			}
			first, last := int64(-1), int64(0)
			err = blob.Fetch(t.Context(), a, p2ptest.Network, b.ID(), c, plenty, to, func(done, _ int64) {
				if first < 0 {
					first = done
				}
				if done < last {
					t.Errorf("progress went back from %d to %d", last, done)
				}
				last = done
			})
			if err != nil || first != tc.first || last != int64(len(data)) || !bytes.Equal(read(t, to, c), data) || to.Used() != int64(len(data)) {
				t.Errorf("%v, from %d (want %d) to %d; %d bytes in use", err, first, tc.first, last, to.Used())
			}
		})
	}
}

// A peer that sends other bytes, too few, or a false size.
func TestFetchFromLiar(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	dir := t.TempDir()
	to, err := blob.OpenStore(dir, plenty)
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan []byte, 1)
	hosts[1].SetStreamHandler("/starling/blob/1/test", func(s network.Stream) {
		_, _ = s.Read(make([]byte, 256))
		_, _ = s.Write(<-answers)
		_ = s.Close()
	})
	p2ptest.ConnectAll(t, hosts...)
	c := blob.Sum([]byte("true"))
	ok := []byte{0, 100, 0, 0, 0, 2, 0x08, 4} // head with size 4
	for name, tc := range map[string]struct {
		answer []byte
		want   error
	}{
		"other bytes": {append(append(ok[:8:8], 0, 0, 0, 0, 0, 0, 0, 4), "lies"...), blob.ErrDigest},
		"false size":  {append(append(ok[:8:8], 0, 0, 0, 0, 0, 0, 0, 3), "tru"...), stream.ErrBadReply},
		"endless":     {append(ok[:8:8], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), stream.ErrBadReply},
		"huge":        {[]byte{0, 100, 0, 0, 0, 10, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0}, blob.ErrTooLarge},
		"too few":     {append(append(ok[:8:8], 0, 0, 0, 0, 0, 0, 0, 4), "tr"...), stream.ErrUnreachable},
	} {
		answers <- tc.answer
		err := blob.Fetch(t.Context(), hosts[0], p2ptest.Network, hosts[1].ID(), c, 1000, to, nil)
		if !errors.Is(err, tc.want) || to.Has(c) || to.Used() != 0 {
			t.Errorf("%s: got %v, want %v; %d bytes in use", name, err, tc.want, to.Used())
		}
		if err := to.Remove(c); err != nil { // what "too few" left
			t.Fatal(err)
		}
	}
}

// A peer that crashes in the middle is given up, and another one finishes.
func TestFetchSimulated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 3, 40*time.Millisecond)
		to, from := open(t, plenty), open(t, plenty)
		for _, h := range net.Hosts[1:] {
			srv := blob.Serve(h, p2ptest.Network, from, nil, nil)
			defer srv.Close()
		}
		net.ConnectAll()
		c := put(t, from, random(4<<20))
		err := blob.Fetch(t.Context(), net.Hosts[0], p2ptest.Network, net.Addr(1).ID, c, plenty, to, func(done, _ int64) {
			if done > 1<<20 && net.Hosts[1] != nil {
				net.Crash(1)
			}
		})
		if !errors.Is(err, stream.ErrUnreachable) {
			t.Errorf("got %v, want ErrUnreachable", err)
		}
		resumed := int64(0)
		err = blob.Fetch(t.Context(), net.Hosts[0], p2ptest.Network, net.Addr(2).ID, c, plenty, to, func(done, _ int64) {
			if resumed == 0 {
				resumed = done
			}
		})
		if err != nil || resumed <= 1<<20 || !to.Has(c) {
			t.Errorf("%v, resumed at %d", err, resumed)
		}
	})
}
