package p2p

import (
	"fmt"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// TestAttackRememberedPeers: strangers that connect here with many keys, and later than everybody else, take no place of the peers that
// this one dialled; those of one network take few of the others.
func TestAttackRememberedPeers(t *testing.T) {
	t.Parallel()
	of := func(name string, n int, addr string, seen int64, dialled bool) (out []entry) {
		for i := range n {
			out = append(out, entry{ID: peer.ID(fmt.Sprint(name, i)), Addrs: []ma.Multiaddr{ma.StringCast(fmt.Sprintf(addr, i%250))}, Seen: seen, Dialled: dialled})
		}
		return out
	}
	count := func(entries []entry) (dialled, inbound int) {
		for _, e := range entries {
			if e.Dialled {
				dialled++
			} else {
				inbound++
			}
		}
		return dialled, inbound
	}
	dialled := of("d", 240, "/ip4/10.1.%d.1/tcp/1", 1, true)
	strangers := append(of("a", 1000, "/ip4/203.0.113.%d/tcp/1", 2, false), of("b", 1000, "/ip6/2001:db8::%x/tcp/1", 2, false)...)
	if d, in := count(choosePeers(append(strangers, dialled...))); d != 240 || in != 2*maxPerNetwork {
		t.Errorf("%d of 240 that were dialled are kept, and %d strangers of two networks", d, in)
	}
	everywhere := of("c", 1000, "/ip4/10.9.%d.1/tcp/1", 2, false)
	if d, in := count(choosePeers(append(everywhere, dialled...))); d != 240 || in != maxRemembered-240 {
		t.Errorf("%d of 240 that were dialled are kept, and %d strangers", d, in)
	}
	if d, in := count(choosePeers(everywhere)); d != 0 || in != maxInbound {
		t.Errorf("%d strangers are kept where nobody was dialled", in)
	}
	if _, in := count(choosePeers(of("e", 20, "/ip4/127.0.0.1/tcp/1%d", 2, false))); in != 20 {
		t.Errorf("%d of 20 on this machine are kept", in)
	}
}
