package dials

import (
	"fmt"
	"net/netip"
	"testing"

	ma "github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/closed"
)

func at(ip netip.Addr) ma.Multiaddr {
	if ip.Is4() {
		return ma.StringCast(fmt.Sprintf("/ip4/%s/tcp/1", ip))
	}
	return ma.StringCast(fmt.Sprintf("/ip6/%s/tcp/1", ip))
}

// TestAttackStrangersAddresses: whatever address a stranger names, a closed one is dialled in the networks of this
// machine's interfaces alone.
func TestAttackStrangersAddresses(t *testing.T) {
	t.Parallel()
	local := interfaces()
	rapid.Check(t, func(t *rapid.T) {
		var ip netip.Addr
		if rapid.Bool().Draw(t, "four") {
			ip = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "ip")))
		} else {
			ip = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ip"))).Unmap()
		}
		want := closed.Why(ip) == ""
		for _, p := range local {
			want = want || p.Contains(ip)
		}
		if got := New(false, nil).Allow(at(ip)); got != want {
			t.Fatalf("%s (%s): dialled: %v, want %v", ip, closed.Why(ip), got, want)
		}
		if !New(true, nil).Allow(at(ip)) {
			t.Fatalf("%s is not dialled in a private network", ip)
		}
	})
}

// A configured address opens its closed range; a named one is open by itself.
func TestOpenAndName(t *testing.T) {
	t.Parallel()
	r := New(false, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10")})
	r.Open(ma.StringCast("/ip4/192.168.1.1/tcp/1"), ma.StringCast("/ip4/8.8.8.8/tcp/1"), ma.StringCast("/ip4/0.0.0.0/tcp/1"),
		ma.StringCast("/dns4/example.org/tcp/1"), ma.StringCast("/ip4/192.168.2.2/tcp/1"))
	r.Name(ma.StringCast("/ip4/127.9.9.9/tcp/1"))
	for text, want := range map[string]bool{
		"/ip4/100.64.3.4/tcp/1": true, "/ip4/192.168.200.1/tcp/1": true, "/ip4/127.9.9.9/tcp/2": true,
		"/ip4/127.9.9.8/tcp/1": false, "/ip4/169.254.169.254/tcp/80": false, "/dns4/example.org/tcp/1": true,
	} {
		if got := r.Allow(ma.StringCast(text)); got != want {
			t.Errorf("%s: dialled: %v, want %v", text, got, want)
		}
	}
	if got := fmt.Sprint(r.Ranges()); got != "[100.64.0.0/10 192.168.0.0/16]" {
		t.Errorf("ranges %s", got)
	}
}

// The addresses that a user names are bounded, and the latest count.
func TestNamedIsBounded(t *testing.T) {
	t.Parallel()
	r := New(false, nil)
	for i := range 3 * maxNamed {
		r.Name(ma.StringCast(fmt.Sprintf("/ip4/127.1.%d.%d/tcp/1", i/256, i%256)))
	}
	if len(r.named) != maxNamed || !r.Allow(ma.StringCast("/ip4/127.1.2.255/tcp/1")) || r.Allow(ma.StringCast("/ip4/127.1.0.0/tcp/1")) {
		t.Errorf("%d addresses are named", len(r.named))
	}
}
