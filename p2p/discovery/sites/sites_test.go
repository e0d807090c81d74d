package sites

import (
	"fmt"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"
)

const relay = "/p2p/12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm/p2p-circuit"

func TestOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/ip4/20.1.2.3/tcp/1":                    "20.1.2.0/24 20.1.0.0/16 false",
		"/ip4/20.1.2.3/tcp/1" + relay:            "20.1.2.0/24 20.1.0.0/16 true",
		"/ip6/2a01:4f8:1:2ff:3::4/udp/1/quic-v1": "2a01:4f8:1:200::/56 2a01:4f8::/32 false",
		"/ip4/127.0.0.1/tcp/1":                   "invalid Prefix invalid Prefix false",
		"/ip4/10.1.2.3/tcp/1":                    "invalid Prefix invalid Prefix false",
		"/dns4/example.org/tcp/1":                "invalid Prefix invalid Prefix false",
	} {
		s := Of(ma.StringCast(text))
		if got := fmt.Sprint(s.near, " ", s.wide, " ", s.relayed); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// A peer counts where it can be reached directly, whatever it claims first.
func TestClaimed(t *testing.T) {
	t.Parallel()
	direct, relayed, private := ma.StringCast("/ip4/20.1.2.3/tcp/1"), ma.StringCast("/ip4/30.1.2.3/tcp/1"+relay), ma.StringCast("/ip4/10.1.2.3/tcp/1")
	for _, c := range []struct {
		addrs []ma.Multiaddr
		want  Site
	}{
		{nil, Site{}},
		{[]ma.Multiaddr{private}, Site{}},
		{[]ma.Multiaddr{private, relayed}, Of(relayed)},
		{[]ma.Multiaddr{relayed, direct}, Of(direct)},
		{[]ma.Multiaddr{direct, relayed}, Of(direct)},
	} {
		if got := Claimed(peer.AddrInfo{Addrs: c.addrs}); got != c.want {
			t.Errorf("%v: got %v, want %v", c.addrs, got, c.want)
		}
	}
}

// TestAttackOneNetwork: however many peers of one network ask, and however places come back, it has its part at most,
// every other network gets its own, and peers without a network are never refused.
func TestAttackOneNetwork(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		places, networks := rapid.IntRange(1, 100).Draw(t, "places"), rapid.IntRange(1, 40).Draw(t, "networks")
		var all []Site
		for i := range networks {
			all = append(all, Of(ma.StringCast(fmt.Sprintf("/ip4/20.%d.1.1/tcp/1", i))))
		}
		d := Divide(places, all)
		most, taken := max((places+networks-1)/networks, LeastNear), 0
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			if taken > 0 && rapid.Bool().Draw(t, "free") {
				d.Free(all[0])
				taken--
				continue
			}
			if got := d.Take(all[0]); got != (taken < most) {
				t.Fatalf("place %d of %d: %v", taken+1, most, got)
			} else if got {
				taken++
			}
		}
		for _, s := range all[1:] {
			for range min(most, LeastNear) {
				if !d.Take(s) {
					t.Fatal("another network has no place")
				}
			}
		}
		if !d.Take(Site{}) {
			t.Fatal("a peer without a network is refused")
		}
		relayed := all[0]
		relayed.relayed = true
		n := 0
		for d.Take(relayed) {
			n++
		}
		if n != 2*most && n != 2*max((places+networks-1)/networks, LeastWide) {
			t.Fatalf("%d places behind a relay, want twice as many as %d", n, most)
		}
	})
}
