package blob_test

import (
	"io"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// BenchmarkFetch fetches 64 MiB over loopback, hashed and synced to the disk, and after each sends as much
// through a bare libp2p stream; "fetch/raw" is how many times longer the fetch takes.
func BenchmarkFetch(b *testing.B) {
	const size = 64 << 20
	a, peer, to, from := two(b, plenty, nil)
	data := random(size)
	c := put(b, from, data)
	peer.SetStreamHandler("/raw", func(s network.Stream) {
		_, _ = s.Write(data)
		_ = s.Close()
	})
	var fetch, raw time.Duration
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		begun := time.Now()
		if err := blob.Fetch(b.Context(), a, p2ptest.Network, peer.ID(), c, size, to, nil); err != nil {
			b.Fatal(err)
		}
		fetch += time.Since(begun)
		b.StopTimer()
		if err := to.Remove(c); err != nil {
			b.Fatal(err)
		}
		begun = time.Now()
		s, err := a.NewStream(b.Context(), peer.ID(), "/raw")
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{s}, make([]byte, 256<<10)); n != size {
			b.Fatalf("%d bytes, %v", n, err)
		}
		raw += time.Since(begun)
		b.StartTimer()
	}
	b.ReportMetric(fetch.Seconds()/raw.Seconds(), "fetch/raw")
}
