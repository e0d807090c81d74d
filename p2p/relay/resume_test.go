package relay_test

import (
	"crypto/rand"
	"errors"
	"io"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/relay"
	"github.com/starling-network/starling/p2p/stream"
)

// A file larger than what a circuit may carry is fetched over several, each of which goes on where the last was cut.
func TestFetchResumes(t *testing.T) {
	t.Parallel()
	_, at, client, target := trio(t, relay.Config{Limits: relay.Limits{Data: 2 << 20}})
	stores := make([]*blob.Store, 2)
	for i := range stores {
		var err error
		if stores[i], err = blob.OpenStore(t.TempDir(), 64<<20); err != nil {
			t.Fatal(err)
		}
	}
	server := blob.Serve(target, p2ptest.Network, stores[0], nil, nil)
	defer server.Close()
	// Random bytes, so that nothing is shorter on the way.
	const size = 5 << 20
	r, w := io.Pipe()
	go func() {
		b := make([]byte, size)
		_, _ = rand.Read(b)
		_, err := w.Write(b)
		_ = w.CloseWithError(err)
	}()
	c, _, err := stores[0].Put(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var best int64
	for tries := 1; ; tries++ {
		client.Forgive(target.ID())
		client.Peerstore().ClearAddrs(target.ID()) // identify told the direct ones
		if err := client.Connect(network.WithAllowLimitedConn(t.Context(), "test"), via(at, target.ID())); err != nil {
			t.Fatal(err)
		}
		var first, last int64 = -1, 0
		err := blob.Fetch(t.Context(), client, p2ptest.Network, target.ID(), c, size, stores[1], func(done, _ int64) {
			if first < 0 {
				first = done
			}
			last = done
		})
		if first < best-64<<10 { // what was on its way to the disk may be asked for again
			t.Errorf("attempt %d began at %d, the last one had come to %d", tries, first, best)
		}
		best = last
		if err == nil {
			if tries < 3 {
				t.Errorf("%d bytes over %d circuits of 2 MiB", size, tries)
			}
			return
		}
		if !errors.Is(err, stream.ErrUnreachable) || tries > 10 {
			t.Fatalf("attempt %d, at %d: %v", tries, last, err)
		}
		_ = client.Network().ClosePeer(target.ID())
	}
}
