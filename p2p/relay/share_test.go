package relay

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/admit"
)

// TestAttackPlaces: the many addresses of one IPv6 customer do not take all places of a relay, and neither do those of one
// provider. Those who left leave theirs.
func TestAttackPlaces(t *testing.T) {
	t.Parallel()
	l := Limits{}.withDefaults()
	if most := l.resources().MaxReservationsPerASN; most != perASN || most >= l.Reservations {
		t.Errorf("one provider may have %d of %d places", most, l.Reservations)
	}
	here := map[peer.ID]bool{}
	s := newPlaces(l, func(p peer.ID) bool { return here[p] }, func(peer.ID) bool { return false })
	reserve := func(format string, n int) (given int) {
		for i := range n {
			a := ma.StringCast(fmt.Sprintf(format, i) + "/tcp/1")
			p := peer.ID(a.String())
			if here[p] = true; s.allow(p, a) {
				given++
				if !s.allow(p, a) {
					t.Errorf("%s does not renew its place", a)
				}
			}
		}
		return given
	}
	if n := reserve("/ip6/2001:db8:0:1::%x", 1000); n != l.sharePlaces() {
		t.Errorf("one /64 got %d places, want %d", n, l.sharePlaces())
	}
	if n := reserve("/ip6/2001:db8:0:ff::%x", 10); n != 0 {
		t.Errorf("another /64 of the same /56 got %d", n)
	}
	if n := reserve("/ip4/203.0.113.%d", 256); n != l.sharePlaces() {
		t.Errorf("one /24 got %d places, want %d", n, l.sharePlaces())
	}
	if n := reserve("/ip6/2001:db8:1::%x", 1); n != 1 {
		t.Error("somebody else gets none")
	}
	if n := reserve("/ip4/127.0.0.1/udp/%d", 100); n != 100 {
		t.Errorf("%d of 100 from this machine", n)
	}
	clear(here)
	if n := reserve("/ip6/2001:db8:0:1::1:%x", 1000); n != l.sharePlaces() {
		t.Errorf("after all left %d places are given, want %d", n, l.sharePlaces())
	}
	for i := range 1000 {
		s.allow(peer.ID(fmt.Sprint(i)), ma.StringCast(fmt.Sprintf("/ip4/10.%d.%d.1/tcp/1", i/256, i%256)))
	}
	if len(s.of) > 2*l.Reservations+1 {
		t.Errorf("%d networks are remembered", len(s.of))
	}
}

// TestAttackCircuits: the clients of one network do not take all circuits of a relay.
func TestAttackCircuits(t *testing.T) {
	t.Parallel()
	l := Limits{}.withDefaults()
	s := &Service{cfg: Config{Limits: l}, byPeer: map[peer.ID]int{}, from: shares{}}
	at := netip.MustParsePrefix("203.0.113.0/24")
	n := 0
	for i := range l.Circuits {
		if s.take(peer.ID(fmt.Sprint("c", i)), peer.ID(fmt.Sprint("t", i)), at) {
			n++
		}
	}
	if n != l.shareCircuits() || n >= l.Circuits {
		t.Errorf("one network has %d of %d circuits", n, l.Circuits)
	}
	if !s.take("c", "t", netip.MustParsePrefix("198.51.100.0/24")) {
		t.Error("somebody else gets none")
	}
	for i := range n {
		s.release(peer.ID(fmt.Sprint("c", i)), peer.ID(fmt.Sprint("t", i)), at)
	}
	if len(s.from) != 1 || s.open != 1 {
		t.Errorf("%d networks and %d circuits are left", len(s.from), s.open)
	}
}

// TestAttackRelayPlaces: strangers of a thousand networks have all circuits and places that there are for them; who has a lease still gets its own, and no
// stranger gets one of those.
func TestAttackRelayPlaces(t *testing.T) {
	t.Parallel()
	l := Limits{}.withDefaults()
	standing := func(p peer.ID) admit.Standing {
		if strings.HasPrefix(string(p), "buyer") {
			return admit.Counterparty
		}
		return admit.Stranger
	}
	s := &Service{cfg: Config{Limits: l, Standing: standing}, byPeer: map[peer.ID]int{}, from: shares{}}
	s.places = newPlaces(l, func(peer.ID) bool { return true }, s.kept)
	take := func(who string) (circuits, places int) {
		for i := range 1000 {
			a := ma.StringCast(fmt.Sprintf("/ip4/10.%d.%d.1/tcp/1", i/256, i%256))
			p := peer.ID(fmt.Sprint(who, i))
			if s.take(p, peer.ID(fmt.Sprint("target ", who, i)), admit.NetworkOf(a)) {
				circuits++
			}
			if s.places.allow(p, a) {
				places++
			}
		}
		return circuits, places
	}
	if circuits, places := take("stranger "); circuits != l.Circuits || places != l.Reservations {
		t.Errorf("strangers have %d circuits and %d places, want %d and %d", circuits, places, l.Circuits, l.Reservations)
	}
	if circuits, places := take("buyer "); circuits != l.Circuits/4 || places != 1000 || l.resources().MaxReservations != l.Reservations*5/4 {
		t.Errorf("buyers have %d circuits and may have %d places of %d", circuits, places, l.resources().MaxReservations)
	}
}
