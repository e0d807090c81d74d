package exchange

import (
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/relay"
)

func TestOverRelay(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		size, most int64
		warns      string
		refused    bool
	}{
		{5 * mib, 0, "", false},
		{5 * mib, 5 * mib, "", false},
		{5*mib + 1, 2 * mib, "files of 5.0 MiB go through a relay that ends a connection after 2.0 MiB: they are brought in 3 parts or more", false},
		{mib + 1, mib, "in 2 parts or more", false},
		{200 << 10, 128 << 10, "files of 200.0 KiB do not get through a relay that ends a connection after 128.0 KiB", true},
		{100 << 10, 128 << 10, "do not get through", true}, // other streams share the connection
		{64 << 10, 128 << 10, "", false},
		{0, 1, "", false},
	} {
		text, refused := OverRelay(c.size, c.most)
		if refused != c.refused || !strings.Contains(text, c.warns) || c.warns == "" && text != "" {
			t.Errorf("%d bytes over %d: %q, %v", c.size, c.most, text, refused)
		}
	}
}

// A provider to which there is a narrow relay alone is told from one that is connected directly.
func TestNarrow(t *testing.T) {
	t.Parallel()
	at := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), NAT: p2p.NAT{Serve: true, Limits: relay.Limits{Data: 128 << 10}}})
	us, far := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1)}), p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(2)})
	for _, h := range []*p2p.Host{us, far} {
		if err := h.Connect(t.Context(), at.AddrInfo()); err != nil {
			t.Fatal(err)
		}
	}
	key, err := p2p.KeyFromPeerID(far.ID())
	if err != nil {
		t.Fatal(err)
	}
	const size = 200 << 10
	if why := Narrow(us, sign.Key(key), size); why != "" {
		t.Errorf("nobody is connected: %q", why)
	}
	via := ma.StringCast("/p2p/" + at.ID().String() + "/p2p-circuit")
	if err := us.Connect(network.WithAllowLimitedConn(t.Context(), "test"), peer.AddrInfo{ID: far.ID(), Addrs: []ma.Multiaddr{via}}); err != nil {
		t.Fatal(err)
	}
	if why := Narrow(us, sign.Key(key), size); !strings.Contains(why, "files of 200.0 KiB do not get through a relay that ends a connection after 128.0 KiB") {
		t.Errorf("over a narrow relay: %q", why)
	}
	if why := Narrow(us, sign.Key(key), 0); why != "" {
		t.Errorf("nothing to bring: %q", why)
	}
	if err := us.Connect(network.WithForceDirectDial(t.Context(), "test"), far.AddrInfo()); err != nil {
		t.Fatal(err)
	}
	if why := Narrow(us, sign.Key(key), size); why != "" {
		t.Errorf("connected directly: %q", why)
	}
}
