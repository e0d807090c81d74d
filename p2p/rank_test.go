package p2p

import (
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
)

// TCP is dialled at once, QUIC when it has had its time, and relays after both; whatever is missing is not waited for.
func TestTCPFirst(t *testing.T) {
	t.Parallel()
	const tcp, quic = "/ip4/1.2.3.4/tcp/1", "/ip4/1.2.3.4/udp/1/quic-v1"
	const relay = "/ip4/1.2.3.5/tcp/1/p2p/12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm/p2p-circuit"
	for _, c := range []struct {
		addrs []string
		want  map[string]time.Duration
	}{
		{[]string{relay, quic, tcp}, map[string]time.Duration{tcp: 0, quic: quicDelay, relay: relayDelay}},
		{[]string{quic, tcp}, map[string]time.Duration{tcp: 0, quic: quicDelay}},
		{[]string{relay, quic}, map[string]time.Duration{quic: 0, relay: relayDelay}},
		{[]string{relay}, map[string]time.Duration{relay: 0}},
		{nil, nil},
	} {
		var addrs []ma.Multiaddr
		for _, a := range c.addrs {
			addrs = append(addrs, ma.StringCast(a))
		}
		got := tcpFirst(addrs)
		if len(got) != len(c.want) {
			t.Errorf("%v: %d dials", c.addrs, len(got))
		}
		for _, d := range got {
			if least, ok := c.want[d.Addr.String()]; !ok || d.Delay < least || least == 0 && d.Delay > 0 {
				t.Errorf("%v: %s is dialled after %v, want %v", c.addrs, d.Addr, d.Delay, least)
			}
		}
	}
}
