package buyer

import (
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/relay"
)

func TestCarry(t *testing.T) {
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
		text, refused := carry(c.size, c.most)
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
	b := &Buyer{cfg: Config{Host: us}}
	q := quoted{quote: market.Quote{Provider: key}}
	spec := job.Job{
		Module: "m", Count: 2, Inputs: []job.Input{{Source: "in/{rank}", Path: "/in"}},
		Blobs: map[string]job.Blob{"m": {Size: 10 << 10}, "in/0": {Size: 1 << 10}, "in/1": {Size: 190 << 10}},
	}
	if got := brought(spec); got != 200<<10 {
		t.Errorf("the larger rank needs %d bytes", got)
	}
	if why := b.narrow(spec, q); why != "" {
		t.Errorf("nobody is connected: %q", why)
	}
	via := ma.StringCast("/p2p/" + at.ID().String() + "/p2p-circuit")
	if err := us.Connect(network.WithAllowLimitedConn(t.Context(), "test"), peer.AddrInfo{ID: far.ID(), Addrs: []ma.Multiaddr{via}}); err != nil {
		t.Fatal(err)
	}
	if why := b.narrow(spec, q); !strings.Contains(why, "files of 200.0 KiB do not get through a relay that ends a connection after 128.0 KiB") {
		t.Errorf("over a narrow relay: %q", why)
	}
	if why := b.narrow(job.Job{}, q); why != "" {
		t.Errorf("nothing to bring: %q", why)
	}
	if err := us.Connect(network.WithForceDirectDial(t.Context(), "test"), far.AddrInfo()); err != nil {
		t.Fatal(err)
	}
	if why := b.narrow(spec, q); why != "" {
		t.Errorf("connected directly: %q", why)
	}
}
