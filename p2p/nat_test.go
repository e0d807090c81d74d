package p2p_test

import (
	"net/netip"
	"testing"

	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	circuit "github.com/starling-network/starling/p2p/relay"
)

// A peer that reserved a place is reached through the relay; nobody needs relays configured to dial through one.
func TestRelay(t *testing.T) {
	t.Parallel()
	relay := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), NAT: p2p.NAT{Serve: true}})
	hidden := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1)})
	asking := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(2)})
	p2ptest.ConnectAll(t, relay, hidden)
	p2ptest.ConnectAll(t, relay, asking)
	if _, err := client.Reserve(t.Context(), hidden, relay.AddrInfo()); err != nil {
		t.Fatal(err)
	}
	r, err := asking.Ping(t.Context(), p2ptest.Through(relay, hidden.ID()), 2)
	if err != nil || r.Conn.Path != p2p.PathRelayed || r.Conn.Via != relay.ID() || r.Conn.Limited || len(r.RTTs) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A relay with small limits tells both ends, and they still talk.
func TestLimitedRelay(t *testing.T) {
	t.Parallel()
	relay := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), NAT: p2p.NAT{Serve: true, Limits: circuit.Limits{Data: 1 << 20}}})
	hidden := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1)})
	asking := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(2)})
	p2ptest.ConnectAll(t, relay, hidden)
	r, err := asking.Ping(t.Context(), p2ptest.Through(relay, hidden.ID()), 1)
	if err != nil || !r.Conn.Limited {
		t.Errorf("%+v, %v", r, err)
	}
}

// A peer that is known by a relay's address only is told from one that is offline.
func TestBehindNAT(t *testing.T) {
	t.Parallel()
	relay := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), NAT: p2p.NAT{Serve: true}})
	asking := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1)})
	lost, err := p2p.PeerIDFromKey(mustKey(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	via := p2ptest.Through(relay, lost)
	wantReason(t, asking, via, p2p.ReasonBehindNAT, "behind a NAT", "no reservation at the relay")
	if err := relay.Close(); err != nil {
		t.Fatal(err)
	}
	other := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(3)})
	wantReason(t, other, via, p2p.ReasonBehindNAT, "the relays do not answer")
}

func mustKey(t *testing.T, i int) [32]byte {
	t.Helper()
	raw, err := p2ptest.Key(i).GetPublic().Raw()
	if err != nil {
		t.Fatal(err)
	}
	return [32]byte(raw)
}

// A peer that only dials out has no address of its own and works all the same.
func TestDialOutOnly(t *testing.T) {
	t.Parallel()
	out, err := p2p.New(p2p.Config{Key: p2ptest.Key(0), Network: p2ptest.Network, NAT: p2p.NAT{DialOutOnly: true}, Logger: p2ptest.Quiet(),
		Dials: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if a := out.Network().ListenAddresses(); len(a) != 1 || a[0].String() != "/p2p-circuit" {
		t.Errorf("listens on %v", a)
	}
	relay := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), NAT: p2p.NAT{Serve: true}})
	asking := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(2)})
	if err := out.Connect(t.Context(), relay.AddrInfo()); err != nil {
		t.Fatal(err)
	}
	if r, err := asking.Ping(t.Context(), p2ptest.Through(relay, out.ID()), 1); err != nil || r.Conn.Path != p2p.PathRelayed {
		t.Errorf("%+v, %v", r, err)
	}
}
