package addr

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ma "github.com/multiformats/go-multiaddr"
)

const (
	relayA = "/p2p/12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm/p2p-circuit"
	relayB = "/p2p/12D3KooWFUk3fp7MBjuJs3x4ExVoSwBBtatxUCqks2DkQKHDZZDW/p2p-circuit"
)

func chosen(t *testing.T, in ...string) []string {
	t.Helper()
	var addrs []ma.Multiaddr
	for _, s := range in {
		addrs = append(addrs, ma.StringCast(s))
	}
	var out []string
	for _, a := range Choose(addrs) {
		out = append(out, a.String())
	}
	return out
}

// The best addresses are announced, of every kind that is of use, and never more than eight.
func TestChoose(t *testing.T) {
	t.Parallel()
	var private []string
	for i := range 20 {
		private = append(private, fmt.Sprintf("/ip4/10.0.0.%d/tcp/4001", i+1))
	}
	via := func(ip, relay string) []string {
		return []string{"/ip6/2600::1/tcp/1" + relay, "/ip4/" + ip + "/udp/4001/quic-v1" + relay, "/ip4/" + ip + "/tcp/4001" + relay}
	}
	for name, c := range map[string]struct{ in, want []string }{
		"loopback alone":        {[]string{"/ip4/127.0.0.1/tcp/1"}, []string{"/ip4/127.0.0.1/tcp/1"}},
		"loopback beside":       {[]string{"/ip4/127.0.0.1/tcp/1", "/ip4/8.8.8.8/tcp/1"}, []string{"/ip4/8.8.8.8/tcp/1"}},
		"link local":            {[]string{"/ip6/fe80::1/tcp/1", "/ip4/8.8.8.8/tcp/1"}, []string{"/ip4/8.8.8.8/tcp/1"}},
		"public before private": {append(slices.Clone(private), "/ip4/8.8.8.8/tcp/1"), append([]string{"/ip4/8.8.8.8/tcp/1"}, private[:7]...)},
		"relays keep room": {slices.Concat(private, via("5.5.5.5", relayA), via("6.6.6.6", relayB)), slices.Concat(private[:4], []string{
			"/ip4/5.5.5.5/tcp/4001" + relayA, "/ip4/6.6.6.6/tcp/4001" + relayB, "/ip4/5.5.5.5/udp/4001/quic-v1" + relayA, "/ip4/6.6.6.6/udp/4001/quic-v1" + relayB})},
		"relays alone": {via("5.5.5.5", relayA), []string{"/ip4/5.5.5.5/tcp/4001" + relayA, "/ip4/5.5.5.5/udp/4001/quic-v1" + relayA, "/ip6/2600::1/tcp/1" + relayA}},
		"too long":     {[]string{"/dns4/" + strings.Repeat("a.", 125) + "example/tcp/1", "/ip4/8.8.8.8/tcp/1"}, []string{"/ip4/8.8.8.8/tcp/1"}},
	} {
		if got := chosen(t, c.in...); !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %s\nwant %s", name, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}
