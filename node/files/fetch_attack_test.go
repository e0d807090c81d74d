package files

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// A buyer that knows the CID of what another one brought gets it into no execution of its own: it has to send it first.
func TestAttackKnownCID(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 3)
	stores := make([]*blob.Store, 3)
	served := make([]int, 3)
	for i, h := range hosts {
		s, err := blob.OpenStore(t.TempDir(), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		srv := blob.Serve(h, p2ptest.Network, s, func(peer.ID, cid.Cid) bool { served[i]++; return true }, nil)
		t.Cleanup(srv.Close)
		stores[i] = s
	}
	p2ptest.ConnectAll(t, hosts...)
	provider, honest, evil := 0, 1, 2
	n := New(Config{Host: hosts[provider], Blobs: stores[provider], Network: p2ptest.Network, Log: slog.New(slog.DiscardHandler)})
	put := func(i int, content []byte) cid.Cid {
		c, _, err := stores[i].Put(t.Context(), bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	secret := []byte(strings.Repeat("secret", 100_000))
	c := put(honest, secret)
	for range 2 {
		if err := n.Fetch(t.Context(), hosts[honest].ID(), c, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	if served[honest] != 1 {
		t.Errorf("who brought it sent it %d times", served[honest])
	}
	if err := n.Fetch(t.Context(), hosts[evil].ID(), c, 1<<20); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("who knows only its CID: got %v, want ErrNotFound", err)
	}
	put(evil, secret) // now it has it
	if err := n.Fetch(t.Context(), hosts[evil].ID(), c, 1000); !errors.Is(err, blob.ErrTooLarge) {
		t.Errorf("with too little room: got %v, want ErrTooLarge", err)
	}
	served[evil] = 0
	for range 2 {
		if err := n.Fetch(t.Context(), hosts[evil].ID(), c, 1<<20); err != nil {
			t.Error(err)
		}
	}
	if served[evil] != 1 {
		t.Errorf("who has it sent it %d times", served[evil])
	}
	// What was made here for a buyer is its own, and what this peer has is its own.
	output := put(provider, []byte("output"))
	if err := n.Fetch(t.Context(), hosts[evil].ID(), output, 100); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("another's output: got %v, want ErrNotFound", err)
	}
	n.Grant(hosts[honest].ID(), output)
	for _, from := range []int{honest, provider} {
		if err := n.Fetch(t.Context(), hosts[from].ID(), output, 100); err != nil {
			t.Errorf("its own output: %v", err)
		}
	}
}
