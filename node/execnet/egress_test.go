package execnet

import (
	"encoding/binary"
	"net/netip"
	"testing"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/executor/member"
	"github.com/starling-network/starling/p2p/overlay/egress"
)

// The way out that a member of a cluster gets is that of the configuration, and none unless its job asks for it.
func TestOutside(t *testing.T) {
	t.Parallel()
	policy, limits := egress.Policy{Mode: egress.ModeInternet}, egress.Limits{Flows: 3}
	known := []ma.Multiaddr{ma.StringCast("/ip4/198.41.0.4/tcp/4001"), ma.StringCast("/ip6/2606:4700::1/udp/1/quic-v1"), ma.StringCast("/dns4/a.example/tcp/1")}
	own := func() []netip.Addr { return addrsOf(known) }
	if got := own(); len(got) != 2 || got[0] != netip.MustParseAddr("198.41.0.4") {
		t.Errorf("own addresses %v", got)
	}
	j := member.Joining{Cluster: "c1", Address: cluster.Address(1), MTU: 1280, Names: func(name string) []netip.Addr {
		if rank, ok := cluster.Resolve(name, "c1"); ok && rank < 2 {
			return []netip.Addr{cluster.Address(rank)}
		}
		return nil
	}}
	for _, asked := range []bool{false, true} {
		j.Internet = asked
		s, err := outside(policy, limits, own, j, egress.NewBudget(egress.DefaultBudget))
		if err != nil {
			t.Fatal(err)
		}
		to := netip.MustParseAddrPort("198.41.0.4:443")
		syn := segment(j.Address, to)
		s.Deliver([][]byte{syn, segment(j.Address, netip.MustParseAddrPort("192.168.0.1:443"))})
		if got := s.Stats().Refused; got[egress.ReasonHost] != 1 || got[egress.ReasonClosed] != 1 {
			t.Errorf("asked %v: refused %v, want the peer's own and the private address", asked, got)
		}
		if !asked {
			s.Deliver([][]byte{segment(j.Address, netip.MustParseAddrPort("192.0.78.1:443"))})
			if got := s.Stats().Refused; got[egress.ReasonMode] != 1 {
				t.Errorf("not asked: refused %v", got)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// segment begins a TCP connection.
func segment(from netip.Addr, to netip.AddrPort) []byte {
	b := make([]byte, 40)
	b[0], b[3], b[8], b[9] = 0x45, 40, 64, 6
	copy(b[12:], from.AsSlice())
	copy(b[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[20:], 1024)
	binary.BigEndian.PutUint16(b[22:], to.Port())
	b[32], b[33] = 5<<4, 2
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum+sum>>16))
	return b
}
