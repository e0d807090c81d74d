package discovery

import (
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	dhtpb "github.com/libp2p/go-libp2p-kad-dht/pb"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/p2p/p2ptest"
)

// TestAttackProviderFlood: 100,000 records of one connection leave a lookup as cheap as it was, and the store small.
func TestAttackProviderFlood(t *testing.T) {
	t.Parallel()
	d := join(t, p2ptest.Loopback(t, 1)[0])
	store, honest, attacker := d.dht.ProviderStore(), idOf(1), peer.AddrInfo{ID: idOf(2)}
	key := func(i int) []byte { return fmt.Appendf(nil, "key %030d", i) }
	if err := store.AddProvider(t.Context(), key(-1), peer.AddrInfo{ID: honest}); err != nil {
		t.Fatal(err)
	}
	lookup := func() time.Duration { // the best of some, on a machine that does other things too
		best := time.Hour
		for range 20 {
			begun := time.Now()
			got, err := store.GetProviders(t.Context(), key(-1))
			best = min(best, time.Since(begun))
			if err != nil || len(got) != 1 || got[0].ID != honest {
				t.Fatalf("the honest provider's key has %v: %v", got, err)
			}
		}
		return best
	}
	flood := func(n, from int) {
		for i := range n {
			if err := store.AddProvider(t.Context(), key(from+i), attacker); err != nil {
				t.Fatal(err)
			}
		}
	}
	flood(256, 0) // the honest record leaves the library's buffer for the store
	before := lookup()
	flood(100_000, 256)
	after := lookup()
	t.Logf("a lookup: %v before, %v after", before, after)
	if after > 200*before { // a scan of them all costs thousands of times as much
		t.Errorf("a lookup takes %v, %v before the flood", after, before)
	}
	const most = 128 // records of one provider
	if n, _ := d.providers.Held(ma.StringCast("/ip4/127.0.0.1/tcp/1")); n > 1+most {
		t.Errorf("%d records are stored, at most %d of the attacker", n, most)
	}
}

// A peer may send some ADD_PROVIDER messages at once. One that sends more has its stream reset. Its records count in the share of
// the network that it is connected from.
func TestAddProviderRate(t *testing.T) {
	t.Parallel()
	const addBurst = 100 // messages of one peer at once
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 2, 20*time.Millisecond)
		net.ConnectAll()
		d, attacker := join(t, net.Hosts[0]), net.Hosts[1]
		send := func(n int) error {
			s, err := attacker.NewStream(t.Context(), d.h.ID(), protocol.ID("/starling/"+p2ptest.Network+"/kad/1.0.0"))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Reset()
			var all []byte
			for i := range n {
				m := dhtpb.NewMessage(dhtpb.Message_ADD_PROVIDER, fmt.Appendf(nil, "key %d", i), 0)
				m.ProviderPeers = dhtpb.RawPeerInfosToPBPeers([]peer.AddrInfo{{ID: attacker.ID(), Addrs: attacker.Addrs()[:1]}})
				b, err := proto.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				all = append(binary.AppendUvarint(all, uint64(len(b))), b...)
			}
			if _, err := s.Write(all); err != nil {
				return err
			}
			if err := s.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			_, err = s.Read(make([]byte, 1)) // nothing answers ADD_PROVIDER
			return err
		}
		timedOut := func(err error) bool {
			e, ok := err.(interface{ Timeout() bool })
			return ok && e.Timeout()
		}
		if err := send(addBurst); !timedOut(err) {
			t.Errorf("after %d messages: %v", addBurst, err)
		}
		if err := send(addBurst); err == nil || timedOut(err) {
			t.Errorf("after %d messages the stream is open: %v", 2*addBurst, err)
		}
		time.Sleep(time.Minute)
		if err := send(addBurst); !timedOut(err) {
			t.Errorf("after %d messages a minute later: %v", addBurst, err)
		}
		if err := d.Close(); err != nil { // the library's buffer goes into the store
			t.Fatal(err)
		}
		if all, network := d.providers.Held(net.Addr(1).Addrs[0]); all == 0 || network != all {
			t.Errorf("%d records are stored, %d of the network", all, network)
		}
	})
}
