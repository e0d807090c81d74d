package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
)

// A key follows from peer and hold alone, is clamped, is fit to be named, and is another for every hold and peer.
func TestMemberKey(t *testing.T) {
	t.Parallel()
	seen := map[market.OverlayKey]bool{}
	for peer := range byte(4) {
		for hold := range byte(8) {
			p := sign.NewPrivate([32]byte{peer, 1})
			k := cluster.MemberKey(p, market.HoldID{hold})
			if k != cluster.MemberKey(p, market.HoldID{hold}) || k[0]&7 != 0 || k[31]&0xc0 != 0x40 {
				t.Fatalf("peer %d, hold %d: not the same every time, or not clamped", peer, hold)
			}
			if err := k.Public().Check(); err != nil || seen[k.Public()] {
				t.Fatal(err, "or named twice")
			}
			seen[k.Public()] = true
			if secret := fmt.Sprintf("%x", k[:]); strings.Contains(fmt.Sprintf("%v %+v %#v %s", k, k, k, k), secret) {
				t.Fatal("it prints itself")
			}
		}
	}
}

// The derivation is written down: a peer that was updated derives the keys of its live leases again.
func TestMemberKeyVector(t *testing.T) {
	t.Parallel()
	const want = "1ff4d7ff61a5a9d271faf7ce003aafb6340eaf6fff6ec7cbe81c4823ea1d2640"
	if got := cluster.MemberKey(sign.NewPrivate([32]byte{1, 2, 3}), market.HoldID{4, 5, 6}).Public().String(); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
}
