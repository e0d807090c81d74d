package book_test

import (
	"testing"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/book"
)

// addresses is a host that has nothing but its address book.
type addresses struct {
	host.Host
	store peerstore.Peerstore
}

func (a addresses) Peerstore() peerstore.Peerstore { return a.store }

// The addresses of a provider come from strangers: those that cannot be read are left out, and the others are kept.
func TestRemember(t *testing.T) {
	t.Parallel()
	store, err := pstoremem.NewPeerstore()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	h, key := addresses{store: store}, sign.NewPrivate([32]byte{1}).Key()
	id, err := book.Remember(h, key, []string{"nonsense", "", "/ip4/9.9.9.9/udp/1/quic-v1", "/ip4/9.9.9.9/udp/1/quic-v1"})
	if err != nil || !id.MatchesPublicKey(store.PubKey(id)) {
		t.Fatalf("%s: %v", id, err)
	}
	if addrs := store.Addrs(id); len(addrs) != 1 {
		t.Errorf("remembered %v, want the one that can be read", addrs)
	}
	if _, err := book.Remember(h, key, nil); err != nil || len(store.Addrs(id)) != 1 {
		t.Errorf("addresses of a known peer: %v, error %v", store.Addrs(id), err)
	}
}
