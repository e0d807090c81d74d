package discovery

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	dhtpb "github.com/libp2p/go-libp2p-kad-dht/pb"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// TestAttackDHTRequests: a thousand keys of one network that ask without a pause are answered at its rate, and at that
// of all strangers if they come from everywhere; who has a lease, and a peer that was dialled, does not wait for them.
func TestAttackDHTRequests(t *testing.T) {
	t.Parallel()
	r, now := newRequests(), time.Unix(0, 0)
	here := netip.MustParsePrefix("1.2.3.0/24")
	flood := func(at func(i int) netip.Prefix, seconds int) (answered int) {
		for range seconds {
			for i := range 10_000 {
				if wait, ok := r.wait(peer.ID(fmt.Sprint(i%1000)), admit.Stranger, at(i), 1, now); ok && wait == 0 {
					answered++
				}
			}
			now = now.Add(time.Second)
		}
		return answered
	}
	if n := flood(func(int) netip.Prefix { return here }, 10); n > networkBurst+10*networkRate {
		t.Errorf("one network has %d answers at once in 10 s, want at most %d", n, networkBurst+10*networkRate)
	}
	if wait, ok := r.wait("elsewhere", admit.Stranger, netip.MustParsePrefix("4.5.6.0/24"), 1, now); wait > 0 || !ok {
		t.Errorf("a stranger elsewhere waits %v, %v", wait, ok)
	}
	everywhere := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{9, byte(i / 250), byte(i % 250), 0}), 24)
	}
	if n := flood(everywhere, 10); n > strangersBurst+10*strangersRate {
		t.Errorf("all networks have %d answers at once in 10 s, want at most %d", n, strangersBurst+10*strangersRate)
	}
	for _, s := range []admit.Standing{admit.Answered, admit.Counterparty} {
		if wait, ok := r.wait(peer.ID(s.String()), s, here, 1, now); wait > 0 || !ok {
			t.Errorf("%s waits %v, %v", s, wait, ok)
		}
	}
	for i := range 3 * maxAskers {
		r.wait(peer.ID(fmt.Sprint("more ", i)), admit.Stranger, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 250), byte(i % 250), 0}), 24), 1, now)
	}
	if len(r.peers.of) != maxAskers || len(r.peers.order) != maxAskers || len(r.networks.of) != maxAskers {
		t.Errorf("%d peers and %d networks are remembered, want %d", len(r.peers.of), len(r.networks.of), maxAskers)
	}
}

// TestAttackDHTStreams: a peer that asks over many streams at a time has the answers of one, and that of another peer
// comes at once.
func TestAttackDHTStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 3, 20*time.Millisecond)
		join(t, net.Hosts[0])
		net.ConnectAll()
		answered := make(chan struct{}, 100_000)
		ask := func(from int, times int) error {
			s, err := net.Hosts[from].NewStream(t.Context(), net.Hosts[0].ID(), protocol.ID("/starling/"+p2ptest.Network+"/kad/1.0.0"))
			if err != nil {
				return err
			}
			defer s.Reset()
			m := dhtpb.NewMessage(dhtpb.Message_PING, nil, 0)
			buf := make([]byte, 1024)
			for range times {
				if _, err := protodelim.MarshalTo(s, m); err != nil {
					return err
				}
				if _, err := s.Read(buf); err != nil {
					return err
				}
				answered <- struct{}{}
			}
			return nil
		}
		for range 16 {
			go func() { _ = ask(1, 1000) }()
		}
		time.Sleep(5 * time.Second)
		if n := len(answered); n > askBurst+5*askRate+askRate {
			t.Errorf("one peer has %d answers in 5 s, want at most %d", n, askBurst+5*askRate+askRate)
		}
		began := time.Now()
		if err := ask(2, 10); err != nil || time.Since(began) > time.Second {
			t.Errorf("another peer's ten answers took %v, %v", time.Since(began), err)
		}
		net.Hosts[1].Close()
		net.Hosts[1] = nil
	})
}
