package gossip

import (
	"testing"
	"time"

	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

const floodTopic = "/starling/" + p2ptest.Network + "/orders/cpu"

// frames are so many messages, each of another author, in frames of a hundred.
func frames(t *testing.T, first, n int) (out []*pb.RPC) {
	t.Helper()
	for i := range n {
		if i%100 == 0 {
			out = append(out, &pb.RPC{})
		}
		last := out[len(out)-1]
		last.Publish = append(last.Publish, signed(t, first+i, floodTopic, 1, "order"))
	}
	return out
}

// most is how many messages may have been taken of one neighbour since.
func most(since time.Time) uint64 { return peerBurst + uint64(time.Since(since).Seconds()*perPeer) + 1 }

// A neighbour that sends messages of thousands of authors has its share of them taken, and no more is passed on.
func TestAttackGossipFlood(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 3)
	g, far := start(t, hosts[0]), start(t, hosts[1])
	join(t, g, 1<<12)
	reader := join(t, far, 1<<12)
	p2ptest.ConnectAll(t, hosts[0], hosts[1])
	p2ptest.ConnectAll(t, hosts[0], hosts[2])
	if err := reader.WaitPeers(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	const n = 4 * peerBurst
	all := frames(t, 1000, n)
	r, begun := newRaw(t, hosts[2], hosts[0]), time.Now()
	for _, f := range all {
		r.send(f)
	}
	wait(t, g, func(s Stats) bool { return s.Accepted+s.Rejected+s.Ignored+s.Overloaded+s.Flood >= n })
	if s := g.Stats(); s.Accepted > most(begun) || s.Flood < n-most(begun) {
		t.Errorf("of %d messages of one neighbour: %+v", n, s)
	}
	if s := far.Stats(); s.Accepted > most(begun) {
		t.Errorf("%d messages were passed on", s.Accepted)
	}
	// Another neighbour is heard.
	other := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(7)})
	p2ptest.ConnectAll(t, other, hosts[0])
	before := g.Stats().Accepted
	newRaw(t, other, hosts[0]).send(&pb.RPC{Publish: []*pb.Message{signed(t, 9, floodTopic, 1, "honest")}})
	wait(t, g, func(s Stats) bool { return s.Accepted > before })
}

// A flooder that sends others' messages after its own, so that they are among those that are dropped, does not keep
// them from coming another way.
func TestAttackFlooderErasesMessages(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 3)
	g := start(t, hosts[0])
	topic := join(t, g, 1<<12)
	p2ptest.ConnectAll(t, hosts[0], hosts[1])
	p2ptest.ConnectAll(t, hosts[0], hosts[2])
	honest := signed(t, 1, floodTopic, 1, "honest")
	flood, begun := frames(t, 1000, 4*peerBurst), time.Now()
	flood = append(flood, &pb.RPC{Publish: []*pb.Message{honest}})
	r := newRaw(t, hosts[1], hosts[0])
	for _, f := range flood {
		r.send(f)
	}
	wait(t, g, func(s Stats) bool { return s.Accepted+s.Ignored+s.Overloaded+s.Flood > 4*peerBurst })
	if s := g.Stats(); s.Accepted > most(begun)+1 {
		t.Errorf("the flood was taken: %+v", s)
	}
	newRaw(t, hosts[2], hosts[0]).send(&pb.RPC{Publish: []*pb.Message{honest}})
	for next(t, topic).Data != "honest" {
	}
}

// Who sends far more than it may loses score until nobody listens; who passes on as much as a peer takes of all
// together loses none.
func TestFloodScore(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	p2ptest.ConnectAll(t, hosts...)
	f, m, now := newFlood(hosts[0]), &pb.Message{}, time.Now()
	in := f.intake(hosts[1].ID())
	for range 100 {
		for range ofAll {
			in.admits(m, now)
		}
		now = now.Add(time.Second)
	}
	if in.blame != 0 {
		t.Errorf("a peer that passes on all that it takes is blamed %v", in.blame)
	}
	for range farBurst - graylistThreshold + 1 {
		in.admits(m, now)
	}
	if in.since = time.Now(); f.score(hosts[1].ID()) > graylistThreshold+1 {
		t.Errorf("a flooder has the score %v", f.score(hosts[1].ID()))
	}
	if left := in.left(in.since.Add(10 * forgiveFlood)); left > 10 {
		t.Errorf("%v of the blame is never forgiven", left)
	}
}

// What strangers of one network send is counted together, however often they come with new keys; peers that this one
// dialled are not counted among them.
func TestFloodNetworks(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	f, now, taken := newFlood(hosts[0]), time.Now(), 0
	net := &shared{messages: newFlood(hosts[0]).strangers}
	net.messages.SetBurst(netBurst)
	for i := range 50 {
		in := newIntake()
		in.net = net
		f.peers[peer.ID(rune(i))] = in
		for range peerBurst {
			if in.admits(&pb.Message{}, now) && f.admitsStranger(in, now) {
				taken++
			}
		}
	}
	if taken > netBurst {
		t.Errorf("50 keys of one network sent %d messages at once, want %d at the most", taken, netBurst)
	}
	if f.intake(hosts[1].ID()) != nil {
		t.Error("a peer without a connection is kept")
	}
	p2ptest.ConnectAll(t, hosts...)
	f.intake(hosts[1].ID())
	if err := hosts[0].Network().ClosePeer(hosts[1].ID()); err != nil {
		t.Fatal(err)
	}
	for hosts[0].Network().Connectedness(hosts[1].ID()) != network.NotConnected {
		time.Sleep(time.Millisecond)
	}
	if f.left(hosts[1].ID()); f.peers[hosts[1].ID()] != nil {
		t.Error("a peer that left is kept")
	}
}

func BenchmarkFlood(b *testing.B) {
	f, m, now := newFlood(nil), &pb.Message{Data: make([]byte, 600)}, time.Now()
	in := newIntake()
	in.net = &shared{messages: f.strangers}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(10 * time.Millisecond)
		_ = in.admits(m, now) && f.admitsStranger(in, now) && f.all.AllowN(now, 1)
	}
}
