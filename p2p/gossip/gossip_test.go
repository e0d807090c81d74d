package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// words decodes messages by their first word.
func words(_ peer.ID, data []byte) (string, error) {
	s := string(data)
	switch {
	case strings.HasPrefix(s, "ignore"):
		return "", fmt.Errorf("%w: expired", ErrIgnore)
	case strings.HasPrefix(s, "reject"):
		return "", fmt.Errorf("%w: nonsense", ErrReject)
	case strings.HasPrefix(s, "other"):
		return "", errors.New("store is closed")
	case strings.HasPrefix(s, "panic"):
		panic("boom")
	}
	return s, nil
}

func start(t *testing.T, h *p2p.Host) *Gossip {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	g, err := New(ctx, h, Config{Network: p2ptest.Network, Logger: p2ptest.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func join(t *testing.T, g *Gossip, queue int) *Topic[string] {
	t.Helper()
	topic, err := Join(g, "orders/cpu", words, queue)
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

// room is n connected hosts in one topic, each knowing of the others.
func room(t *testing.T, n, queue int) ([]*p2p.Host, []*Gossip, []*Topic[string]) {
	t.Helper()
	hosts := p2ptest.Loopback(t, n)
	var gs []*Gossip
	var topics []*Topic[string]
	for _, h := range hosts {
		g := start(t, h)
		gs, topics = append(gs, g), append(topics, join(t, g, queue))
	}
	p2ptest.ConnectAll(t, hosts...)
	for _, topic := range topics {
		if err := topic.WaitPeers(t.Context(), n-1); err != nil {
			t.Fatal(err)
		}
	}
	return hosts, gs, topics
}

func publish(t *testing.T, topic *Topic[string], s string) {
	t.Helper()
	if err := topic.Publish(t.Context(), []byte(s)); err != nil {
		t.Fatal(err)
	}
}

func next(t *testing.T, topic *Topic[string]) Message[string] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m, err := topic.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDelivers(t *testing.T) {
	t.Parallel()
	hosts, gs, topics := room(t, 4, 0)
	publish(t, topics[0], "hello")
	for _, topic := range topics[1:] {
		if m := next(t, topic); m.Data != "hello" || m.From != hosts[0].ID() {
			t.Errorf("got %+v", m)
		}
	}
	// One's own messages are not read back: the next one is somebody else's.
	publish(t, topics[1], "second")
	if m := next(t, topics[0]); m.Data != "second" {
		t.Errorf("got %+v", m)
	}
	if s := gs[2].Stats(); s.Accepted == 0 || s.Rejected != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	g := start(t, p2ptest.Loopback(t, 1)[0])
	topic := join(t, g, 0)
	if err := topic.Publish(t.Context(), make([]byte, MaxMessage+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	for _, s := range []string{"reject", "ignore", "other", "panic"} {
		if err := topic.Publish(t.Context(), []byte(s)); err == nil {
			t.Errorf("published %q, which the topic's own decoder refuses", s)
		}
	}
	for _, name := range []string{"", "Orders", "a b", "../x", strings.Repeat("a", maxName+1)} {
		if _, err := Join(g, name, words, 0); !errors.Is(err, ErrName) {
			t.Errorf("name %q: got %v, want ErrName", name, err)
		}
	}
	if _, err := Join(g, "orders/cpu", words, 0); err == nil {
		t.Error("joined one topic twice")
	}
	// A closed topic can be joined again.
	waiting := make(chan error)
	go func() {
		_, err := topic.Next(context.Background())
		waiting <- err
	}()
	if err := topic.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if err := topic.Publish(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if err := topic.Close(); err != nil {
		t.Error(err)
	}
	join(t, g, 0)
}

// A reader that does not read loses the newest messages, and they are counted.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	_, gs, topics := room(t, 2, 4)
	for i := range 10 {
		publish(t, topics[0], fmt.Sprint(i))
	}
	for topics[1].Dropped() < 6 {
		// delivered in pubsub's own time
		publishLater(t, topics[0], gs[1])
	}
	for range 4 { // validated side by side, so in any order
		if m := next(t, topics[1]); m.Data == "more" {
			t.Errorf("got %q, which came when the queue was full", m.Data)
		}
	}
	if s := gs[1].Stats(); s.Slow < 6 {
		t.Errorf("stats %+v", s)
	}
}

// publishLater gives the other side time by making it process one more message.
func publishLater(t *testing.T, topic *Topic[string], other *Gossip) {
	t.Helper()
	before := other.Stats()
	publish(t, topic, "more")
	for other.Stats() == before {
		if t.Context().Err() != nil {
			t.Fatal("no more messages arrive")
		}
		time.Sleep(time.Millisecond)
	}
}

// raw is a peer that speaks the wire protocol by hand.
type raw struct {
	t *testing.T
	w interface{ Write([]byte) (int, error) }
}

func newRaw(t *testing.T, h, to *p2p.Host) raw {
	t.Helper()
	s, err := h.NewStream(t.Context(), to.ID(), protocol.ID("/starling/meshsub/1.2/"+p2ptest.Network))
	if err != nil {
		t.Fatal(err)
	}
	return raw{t, s}
}

func (r raw) send(rpc *pb.RPC) {
	r.t.Helper()
	if _, err := protodelim.MarshalTo(r.w, rpc); err != nil {
		r.t.Fatal(err)
	}
}

// signed makes a message as pubsub signs it.
func signed(t *testing.T, author int, topic string, seqno uint64, data string) *pb.Message {
	t.Helper()
	key := p2ptest.Key(author)
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	m := &pb.Message{From: []byte(id), Data: []byte(data), Seqno: binary.BigEndian.AppendUint64(nil, seqno), Topic: &topic}
	bytes, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if m.Signature, err = key.Sign(append([]byte(pubsub.SignPrefix), bytes...)); err != nil {
		t.Fatal(err)
	}
	return m
}

// wait waits until the counts satisfy ok.
func wait(t *testing.T, g *Gossip, ok func(Stats) bool) {
	t.Helper()
	for !ok(g.Stats()) {
		if t.Context().Err() != nil {
			t.Fatalf("stats stay %+v", g.Stats())
		}
		time.Sleep(time.Millisecond)
	}
}

// Messages that no honest peer sends, each with what becomes of it.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	const topic = "/starling/" + p2ptest.Network + "/orders/cpu"
	unsigned := signed(t, 10, topic, 1, "unsigned")
	unsigned.Signature = nil
	forged := signed(t, 11, topic, 1, "forged")
	forged.Data = []byte("other data")
	weak := signed(t, 12, topic, 1, "weak key")
	weak.From = append([]byte{0x00, 0x24, 0x08, 0x01, 0x12, 0x20, 1}, make([]byte, 31)...)
	short := signed(t, 13, topic, 1, "short seqno")
	short.Seqno = []byte{1}
	for name, tc := range map[string]struct {
		m    *pb.Message
		want func(Stats) bool
	}{
		"unsigned":    {unsigned, func(s Stats) bool { return s.Rejected == 1 }},
		"forged":      {forged, func(s Stats) bool { return s.Rejected == 1 }},
		"weak key":    {weak, func(s Stats) bool { return s.Rejected == 1 }},
		"short seqno": {short, func(s Stats) bool { return s.Rejected == 1 }},
		"oversized":   {signed(t, 14, topic, 1, strings.Repeat("x", MaxMessage+1)), func(s Stats) bool { return s.Rejected == 1 }},
		"rejected":    {signed(t, 15, topic, 1, "reject"), func(s Stats) bool { return s.Rejected == 1 }},
		"ignored":     {signed(t, 16, topic, 1, "ignore"), func(s Stats) bool { return s.Ignored == 1 }},
		"other error": {signed(t, 17, topic, 1, "other"), func(s Stats) bool { return s.Ignored == 1 }},
		"panic":       {signed(t, 18, topic, 1, "panic"), func(s Stats) bool { return s.Ignored == 1 }},
		"good":        {signed(t, 19, topic, 1, "good"), func(s Stats) bool { return s.Accepted == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts := p2ptest.Loopback(t, 2)
			g := start(t, hosts[0])
			own := join(t, g, 0)
			p2ptest.ConnectAll(t, hosts...)
			r := newRaw(t, hosts[1], hosts[0])
			r.send(&pb.RPC{Publish: []*pb.Message{tc.m}})
			wait(t, g, tc.want)
			if tc.m.Signature != nil && name == "good" && next(t, own).Data != "good" {
				t.Error("the good message came out wrong")
			}
		})
	}
}

// A peer that keeps sending rejected messages is not listened to any more.
func TestSpammerIsDropped(t *testing.T) {
	t.Parallel()
	const topic = "/starling/" + p2ptest.Network + "/orders/cpu"
	hosts := p2ptest.Loopback(t, 2)
	g := start(t, hosts[0])
	join(t, g, 0)
	p2ptest.ConnectAll(t, hosts...)
	r := newRaw(t, hosts[1], hosts[0])
	for i := range uint64(6) {
		r.send(&pb.RPC{Publish: []*pb.Message{signed(t, 1, topic, i+1, "reject")}})
		wait(t, g, func(s Stats) bool { return s.Rejected == i+1 })
	}
	r.send(&pb.RPC{Publish: []*pb.Message{signed(t, 1, topic, 100, "good")}})
	// Another peer is still heard, after the spammer's last message was passed over.
	other := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(5)})
	p2ptest.ConnectAll(t, other, hosts[0])
	newRaw(t, other, hosts[0]).send(&pb.RPC{Publish: []*pb.Message{signed(t, 5, topic, 1, "good")}})
	wait(t, g, func(s Stats) bool { return s.Accepted > 0 })
	if s := g.Stats(); s.Accepted != 1 {
		t.Errorf("the spammer was heard: %+v", s)
	}
}

// A message is delivered once for good, also after pubsub has forgotten it, and messages of one author
// that overtake each other all arrive.
func TestReplayOnTheWire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const topic = "/starling/" + p2ptest.Network + "/orders/cpu"
		net := p2ptest.NewNet(t, 2, 10*time.Millisecond)
		g := start(t, net.Hosts[0])
		join(t, g, 0)
		net.ConnectAll()
		r := newRaw(t, net.Hosts[1], net.Hosts[0])
		for _, seqno := range []uint64{5, 3, 4} {
			r.send(&pb.RPC{Publish: []*pb.Message{signed(t, 7, topic, seqno, "order")}})
		}
		time.Sleep(time.Second)
		if s := g.Stats(); s.Accepted != 3 {
			t.Errorf("stats %+v, want three accepted", s)
		}
		time.Sleep(10 * time.Minute)
		r.send(&pb.RPC{Publish: []*pb.Message{signed(t, 7, topic, 5, "order"), signed(t, 7, topic, 3, "order")}})
		time.Sleep(time.Second)
		if s := g.Stats(); s.Accepted != 3 || s.Ignored != 2 {
			t.Errorf("stats %+v, want both replays ignored", s)
		}
	})
}

// The window accepts each number at most once, everything newer than it, and nothing before it.
func TestReplayWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := newReplays()
		seen := make(map[uint64]bool)
		var top uint64
		for range rapid.IntRange(1, 300).Draw(t, "messages") {
			n := rapid.OneOf(rapid.Uint64Range(0, 3000), rapid.Uint64Range(1<<60, 1<<60+100)).Draw(t, "seqno")
			got := r.fresh("author", binary.BigEndian.AppendUint64(nil, n))
			want := !seen[n] && (len(seen) == 0 || n > top || top-n < window)
			if got != want {
				t.Fatalf("number %d with highest %d: got %v, want %v", n, top, got, want)
			}
			seen[n] = true
			top = max(top, n)
		}
	})
}

func TestReplayAuthorsBounded(t *testing.T) {
	t.Parallel()
	r := newReplays()
	for i := range maxAuthors + 10 {
		r.fresh(peer.ID(fmt.Sprint(i)), make([]byte, 8))
	}
	if len(r.authors) != maxAuthors {
		t.Errorf("%d authors remembered", len(r.authors))
	}
}

func TestSubscriptionsBounded(t *testing.T) {
	t.Parallel()
	connected := true
	s := newSubscriptions("test", func(peer.ID) bool { return connected })
	sub := func(topics ...string) int {
		var subs []*pb.RPC_SubOpts
		for _, topic := range topics {
			subs = append(subs, &pb.RPC_SubOpts{Subscribe: proto.Bool(true), Topicid: &topic})
		}
		out, err := s.FilterIncomingSubscriptions("p", subs)
		if err != nil {
			t.Fatal(err)
		}
		return len(out)
	}
	if n := sub("/starling/other/a", "a", "/starling/test/", "/starling/test/A", "/starling/test/a"); n != 1 {
		t.Errorf("%d topics let in, want 1", n)
	}
	for i := range 2 * maxTopics {
		sub(fmt.Sprintf("/starling/test/t%d", i))
	}
	if n := len(s.peers["p"]); n != maxTopics {
		t.Errorf("%d topics remembered, want %d", n, maxTopics)
	}
	if sub("/starling/test/a") != 1 || sub("/starling/test/new") != 0 {
		t.Error("the bound forgets old topics or lets in new ones")
	}
	if _, err := s.FilterIncomingSubscriptions("p", make([]*pb.RPC_SubOpts, 2*maxTopics+1)); err == nil {
		t.Error("a huge list was accepted")
	}
	if s.left("p"); len(s.peers) != 1 {
		t.Error("a peer that has another connection is forgotten")
	}
	connected = false
	if s.left("p"); len(s.peers) != 0 || s.total != 0 {
		t.Error("a peer that left is remembered")
	}
	if sub("/starling/test/a") != 0 || len(s.peers) != 0 {
		t.Error("a peer that left subscribes")
	}
}

// TestAttackSubscriptionTables: peers that subscribe over a stream of theirs, take none of ours, and leave, leave nothing.
// While they are connected, keys do not multiply what they may fill.
func TestAttackSubscriptionTables(t *testing.T) {
	t.Parallel()
	var subs []*pb.RPC_SubOpts
	for i := range maxTopics {
		subs = append(subs, &pb.RPC_SubOpts{Subscribe: proto.Bool(true), Topicid: proto.String(fmt.Sprintf("%s%s%d", prefix(p2ptest.Network), strings.Repeat("x", 80), i))})
	}
	synctest.Test(t, func(t *testing.T) {
		const n = 6
		w := p2ptest.NewNet(t, n, 10*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		filter := newSubscriptions(p2ptest.Network, func(p peer.ID) bool { return w.Hosts[0].Network().Connectedness(p) != network.NotConnected })
		if _, err := newGossip(ctx, w.Hosts[0], Config{Network: p2ptest.Network, Logger: p2ptest.Quiet()}, filter); err != nil {
			t.Fatal(err)
		}
		tables := func() (peers, topics int) {
			synctest.Wait()
			filter.mu.Lock()
			defer filter.mu.Unlock()
			return len(filter.peers), filter.total
		}
		for _, h := range w.Hosts[1:] {
			if err := h.Connect(ctx, w.Addr(0)); err != nil {
				t.Fatal(err)
			}
			newRaw(t, h, w.Hosts[0]).send(&pb.RPC{Subscriptions: subs})
		}
		time.Sleep(time.Second)
		if peers, topics := tables(); peers != n-1 || topics != (n-1)*maxTopics {
			t.Fatalf("tables of %d peers with %d topics, want %d with %d", peers, topics, n-1, (n-1)*maxTopics)
		}
		for _, h := range w.Hosts[1:] {
			h.Close()
		}
		time.Sleep(time.Second)
		if peers, topics := tables(); peers != 0 || topics != 0 {
			t.Errorf("all have left, tables of %d peers with %d topics are kept", peers, topics)
		}
	})
	all := newSubscriptions(p2ptest.Network, func(peer.ID) bool { return true })
	for i := range 1024 {
		if _, err := all.FilterIncomingSubscriptions(peer.ID(fmt.Sprint(i)), subs); err != nil {
			t.Fatal(err)
		}
	}
	if most := maxSubscriptions + 1024*fewTopics; all.total > most || len(all.peers["1023"]) != fewTopics {
		t.Errorf("1024 peers fill %d topics, at most %d wanted; the last one has %d", all.total, most, len(all.peers["1023"]))
	}
}

// Twenty peers, each connected to a few: a message reaches all within a second of simulated time, also
// with three of them crashed.
func TestSimulated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		net := p2ptest.NewNet(t, n, 50*time.Millisecond)
		var topics []*Topic[string]
		for _, h := range net.Hosts {
			topics = append(topics, join(t, start(t, h), 0))
		}
		for i := range n {
			for _, step := range []int{1, 5, 7} {
				if err := net.Hosts[i].Connect(t.Context(), net.Addr((i+step)%n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(5 * time.Second)
		crashed := []int{4, 9, 13}
		for round := range 2 {
			begun := time.Now()
			text := fmt.Sprint("round ", round)
			publish(t, topics[0], text)
			for i, topic := range topics[1:] {
				if round == 1 && slices.Contains(crashed, i+1) {
					continue
				}
				if m := next(t, topic); m.Data != text {
					t.Errorf("host %d got %q", i+1, m.Data)
				}
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("round %d took %v", round, took)
			}
			if round == 0 {
				for _, i := range crashed {
					net.Crash(i)
				}
			}
		}
	})
}
