package discovery

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	dhtpb "github.com/libp2p/go-libp2p-kad-dht/pb"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/discovery/sites"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// common is how many leading bits the place of an ID in the DHT has in common with that of a key.
func common(id peer.ID, key []byte) (n int) {
	a, b := sha256.Sum256([]byte(id)), sha256.Sum256(key)
	for i := range a {
		x := a[i] ^ b[i]
		n += bits.LeadingZeros8(x)
		if x != 0 {
			break
		}
	}
	return n
}

// grind makes a key whose peer ID has so many bits in common with a key of the DHT. It tries from seed on and returns
// the next one.
func grind(t *testing.T, key []byte, bits int, seed uint64) (crypto.PrivKey, uint64) {
	t.Helper()
	for {
		var s [32]byte
		binary.BigEndian.PutUint64(s[:], seed)
		seed++
		id, err := p2p.PeerIDFromKey([32]byte(ed25519.NewKeyFromSeed(s[:]).Public().(ed25519.PublicKey)))
		if err != nil {
			t.Fatal(err)
		}
		if common(id, key) >= bits {
			return p2p.PrivKey(s), seed
		}
	}
}

// liar answers the DHT's questions at h with others of its kind alone, and those that it names as publishers, and
// forgets what it is given.
func liar(h *p2p.Host, others func() []peer.AddrInfo, names ...peer.AddrInfo) {
	h.SetStreamHandler(protocol.ID("/starling/"+p2ptest.Network+"/kad/1.0.0"), func(s network.Stream) {
		defer s.Close()
		r := bufio.NewReader(s)
		for {
			var m dhtpb.Message
			if protodelim.UnmarshalFrom(r, &m) != nil {
				return
			}
			if m.GetType() == dhtpb.Message_ADD_PROVIDER {
				continue
			}
			answer := dhtpb.NewMessage(m.GetType(), m.GetKey(), m.GetClusterLevel())
			answer.Record, answer.CloserPeers = m.Record, dhtpb.RawPeerInfosToPBPeers(others())
			if m.GetType() == dhtpb.Message_GET_PROVIDERS {
				answer.ProviderPeers = dhtpb.RawPeerInfosToPBPeers(names)
			}
			if _, err := protodelim.MarshalTo(s, answer); err != nil {
				return
			}
		}
	})
}

// TestAttackEclipse: twenty keys of one network that were made to lie nearest to a topic's key take 2 of the places of
// its publishers. Who begins to publish then is found by an old peer and by a newcomer.
func TestAttackEclipse(t *testing.T) {
	t.Parallel()
	const honest, evil = 12, 20
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 0, 20*time.Millisecond)
		topic := Topic{Class: "cpu"}
		join := func(h *p2p.Host) *Discovery {
			d, err := New(h, Config{Network: p2ptest.Network, Shards: 1, Logger: p2ptest.Quiet()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			return d
		}
		var ds []*Discovery
		for i := range honest {
			ds = append(ds, join(net.Hosts[net.Add(p2ptest.Key(i), 1<<16*(i+1))]))
		}
		key := topicKey(p2ptest.Network, topic, 0, epochOf(time.Now())).Hash()
		var near []peer.AddrInfo
		seed := uint64(1 << 30)
		for i := range evil {
			var k crypto.PrivKey
			k, seed = grind(t, key, 8, seed)
			at := net.Add(k, 1<<23+i)
			near = append(near, net.Addr(at))
			liar(net.Hosts[at], func() []peer.AddrInfo { return near })
		}
		for i := range net.Hosts {
			for j := range min(i, honest) {
				if err := net.Hosts[i].Connect(t.Context(), net.Addr(j)); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(10 * time.Second)
		if err := ds[6].Publish(t.Context(), offer("cpu", "local", "one")); err != nil {
			t.Fatal(err)
		}
		newcomer := join(net.Hosts[net.Add(p2ptest.Key(1000), 1<<16*200)])
		for _, i := range []int{0, 1, 2, honest, honest + 1, honest + 2} {
			if err := newcomer.h.Connect(t.Context(), net.Addr(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		for who, d := range map[string]*Discovery{"an old peer": ds[10], "a newcomer": newcomer} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			got, err := d.Find(ctx, topic, 48)
			cancel()
			if len(got) != 1 || got[0].Peer.ID != ds[6].h.ID() {
				t.Errorf("%s finds %d publishers, %v; want the one", who, len(got), err)
			}
		}
		// Of those that hold the key, most are honest.
		liars := 0
		for _, p := range ds[6].walkTo(t.Context(), key, func(ctx context.Context, p peer.ID) ([]*peer.AddrInfo, error) {
			return ds[6].messages.GetClosestPeers(ctx, p, peer.ID(key))
		}) {
			if common(p, key) >= 8 {
				liars++
			}
		}
		if liars > sites.LeastNear { // 20 places among 13 networks
			t.Errorf("%d of %d places are the attackers'", liars, nearest)
		}
	})
}

// TestAttackGroundKeys: IDs that were made for the key of a topic lie anywhere an hour later, and publishers are then
// found under the new key, by finders whose clocks are right or wrong by MaxSkew.
func TestAttackGroundKeys(t *testing.T) {
	t.Parallel()
	topic, now := Topic{Class: "cpu"}, time.Unix(1_000_000*3600, 0)
	key := func(at time.Time) []byte { return topicKey("test", topic, 0, epochOf(at)).Hash() }
	seed, nearer := uint64(0), 0
	for range 20 {
		var k crypto.PrivKey
		k, seed = grind(t, key(now), 8, seed)
		id, err := peer.IDFromPrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		if common(id, key(now.Add(epochLength))) >= 8 {
			nearer++
		}
	}
	if nearer > 3 {
		t.Errorf("%d of 20 IDs that were made for one epoch are as near in the next", nearer)
	}
	d := &Discovery{cfg: Config{Network: "test", Shards: 1, Validity: DefaultValidity}}
	// Every push of the last interval before a finder looks has stored under a key at which it looks.
	for second := range int64(epochLength / time.Second) {
		at := now.Add(time.Duration(second) * time.Second)
		for _, finder := range []time.Duration{-MaxSkew, 0, MaxSkew} {
			for _, publisher := range []time.Duration{-MaxSkew, 0, MaxSkew} {
				for _, ago := range []time.Duration{0, DefaultValidity * 2 / 5} { // the latest push was between these
					if !overlap(d.publishes(at.Add(publisher-ago)), epochs(at.Add(finder), epochAhead)) {
						t.Fatalf("%d s after the change a finder %v off does not find a publisher %v off that pushed %v ago", second, finder, publisher, ago)
					}
				}
			}
		}
	}
}

func overlap(a, b []int64) bool {
	for _, x := range a {
		for _, y := range b {
			if x == y {
				return true
			}
		}
	}
	return false
}

// TestAttackFinderFilled: sixteen publishers of one network take its share of what a finder gets, which finds all the
// others. Registered publishers come first, though nobody names one of them.
func TestAttackFinderFilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const honest, evil, max = 10, 16, 26
		net := p2ptest.NewNet(t, 0, 20*time.Millisecond)
		topic := Topic{Class: "cpu"}
		var ds []*Discovery
		for i := range honest {
			ds = append(ds, join(t, net.Hosts[net.Add(p2ptest.Key(i), 1<<16*(i+1))]))
		}
		finder := net.Hosts[net.Add(p2ptest.Key(999), 1<<16*100)]
		registered := []peer.ID{ds[0].h.ID(), ds[1].h.ID(), ds[2].h.ID()}
		f, err := New(finder, Config{Network: p2ptest.Network, Logger: p2ptest.Quiet(), Registered: func(context.Context) ([]peer.ID, error) { return registered, nil }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		var bad []*Discovery
		for i := range evil {
			bad = append(bad, join(t, net.Hosts[net.Add(p2ptest.Key(10_000+i), 1<<23+i)]))
		}
		for i := 1; i < len(net.Hosts); i++ {
			for _, to := range []int{0, i / 2, i * 2 / 3} {
				if to != i {
					if err := net.Hosts[i].Connect(t.Context(), net.Addr(to)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		time.Sleep(10 * time.Second)
		for i, d := range append(ds[1:], bad...) { // the first one is registered, and nobody names it
			if err := d.Publish(t.Context(), offer("cpu", "local", fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := ds[0].own.set(offer("cpu", "local", "unnamed")); err != nil {
			t.Fatal(err)
		}
		got, err := f.Find(t.Context(), topic, max)
		if err != nil {
			t.Fatal(err)
		}
		evils := 0
		for i, g := range got {
			if slices.ContainsFunc(bad, func(d *Discovery) bool { return d.h.ID() == g.Peer.ID }) {
				evils++
			}
			if first := slices.Contains(registered, g.Peer.ID); first != (i < len(registered)) {
				t.Errorf("found %d is registered: %v", i, first)
			}
		}
		// 26 places among 11 networks are 3 each.
		if evils > 3 || len(got)-evils != honest {
			t.Errorf("found %d of %d publishers, and %d of the attackers", len(got)-evils, honest, evils)
		}
	})
}

// TestAttackNamedByOne: one peer of the DHT that names thousands of publishers that are nowhere keeps nobody from
// finding those that are.
func TestAttackNamedByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const honest = 6
		net := p2ptest.NewNet(t, 0, 20*time.Millisecond)
		var ds []*Discovery
		for i := range honest {
			ds = append(ds, join(t, net.Hosts[net.Add(p2ptest.Key(i), 1<<16*(i+1))]))
		}
		bad := net.Hosts[net.Add(p2ptest.Key(99), 1<<23)]
		var nowhere []peer.AddrInfo
		for i := range 2000 {
			nowhere = append(nowhere, peer.AddrInfo{ID: idOf(10_000 + i), Addrs: []ma.Multiaddr{ma.StringCast(fmt.Sprintf("/ip4/9.%d.%d.1/udp/1/quic-v1", i%250, i/250))}})
		}
		liar(bad, func() []peer.AddrInfo { return nowhere[:1] }, nowhere...)
		net.ConnectAll()
		time.Sleep(5 * time.Second)
		for i, d := range ds[1:] {
			if err := d.Publish(t.Context(), offer("cpu", "local", fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := ds[0].Find(ctx, Topic{Class: "cpu"}, 48); len(got) != honest-1 {
			t.Errorf("found %d, %v; want %d", len(got), err, honest-1)
		}
	})
}

// TestAttackWrongAddresses: a liar that names somebody at addresses where it is not does not hide it from a walk or a
// search that others tell where it is; and it does not name anybody twice.
func TestAttackWrongAddresses(t *testing.T) {
	t.Parallel()
	wrong, right := ma.StringCast("/ip4/9.9.9.9/tcp/1"), ma.StringCast("/ip4/8.8.8.8/tcp/1")
	var h hint
	for range 5 {
		h.hear("liar", 0, []ma.Multiaddr{wrong})
	}
	if h.heard() != 1 {
		t.Errorf("one liar counts %d", h.heard())
	}
	for i := range 6 {
		h.hear(fmt.Sprint(i), 0, []ma.Multiaddr{right})
	}
	if h.settle(); len(h.Addrs) != 2 || !h.Addrs[0].Equal(right) || h.heard() != 3 {
		t.Errorf("looked for at %v", h.Addrs)
	}
	d := &Discovery{h: p2ptest.Loopback(t, 1)[0]}
	w := &walk{d: d, heard: map[peer.ID]*named{"liar": {}, "honest": {}, "target": {}}}
	steps := func(from peer.ID, addrs ...ma.Multiaddr) int {
		return len(w.hear(&step{AddrInfo: peer.AddrInfo{ID: from}}, []*peer.AddrInfo{{ID: "target", Addrs: addrs}}))
	}
	if n := steps("liar", wrong) + steps("liar", wrong) + steps("honest", right) + steps("honest", right, wrong); n != 3 {
		t.Errorf("%d steps to a peer that is said to be at two addresses, and at both", n)
	}
	if n := steps("target", right) + steps("honest", ma.StringCast("/ip4/7.7.7.7/tcp/1")); n != 0 || len(w.done) != 3 {
		t.Errorf("%d more steps when it has answered, and %d answers", n, len(w.done))
	}
}
