package admit

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// However many keys and networks ask, few are remembered; and what is refused takes nothing.
func TestRates(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	r := NewRates(Rate{1, 2}, Rate{2, 4}, Rate{1e6, 1e6})
	here := netip.MustParsePrefix("1.2.3.0/24")
	for i, want := range []bool{true, true, false, false} {
		if _, ok := r.Wait("a", Stranger, here, 1, now, 0); ok != want {
			t.Errorf("request %d: %v", i, ok)
		}
	}
	for i, want := range []bool{true, true, false} {
		if _, ok := r.Wait(peer.ID(fmt.Sprint("b", i)), Stranger, here, 1, now, 0); ok != want {
			t.Errorf("request %d of the others of a network: %v", i, ok)
		}
	}
	if _, ok := r.Wait("b2", Counterparty, here, 1, now, 0); !ok {
		t.Error("a counterparty of that network is refused")
	}
	for i := range 3 * maxBuckets {
		r.Wait(peer.ID(fmt.Sprint(i)), Stranger, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 250), byte(i % 250), 0}), 24), 1, now, 0)
	}
	if len(r.peers.of) != maxBuckets || len(r.peers.order) != maxBuckets || len(r.networks.of) != maxBuckets {
		t.Errorf("%d peers and %d networks are remembered, want %d", len(r.peers.of), len(r.networks.of), maxBuckets)
	}
}

// Who ordered what it can pay for is known for that for a minute, however many say so.
func TestFunded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewStandings()
		s.Fund("a")
		s.Fund("b")
		s.Deal("b", "lease")
		if s.Of("a") != Funded || s.Of("b") != Counterparty || s.Of("c") != Stranger {
			t.Errorf("%s, %s, %s", s.Of("a"), s.Of("b"), s.Of("c"))
		}
		time.Sleep(fundedFor)
		if s.Of("a") != Stranger {
			t.Errorf("%s after %v", s.Of("a"), fundedFor)
		}
		for i := range 2 * maxFunded {
			s.Fund(peer.ID(fmt.Sprint(i)))
			time.Sleep(time.Millisecond)
		}
		if n := len(s.funded); n != maxFunded || s.Of(peer.ID(fmt.Sprint(2*maxFunded-1))) != Funded {
			t.Errorf("%d are funded, want %d", n, maxFunded)
		}
	})
}
