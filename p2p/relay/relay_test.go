package relay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/pb"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/proto"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/util"
	ma "github.com/multiformats/go-multiaddr"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/relay"
)

// trio is a relay, a client that is connected to it alone, and a target that reserved nothing.
func trio(t *testing.T, cfg relay.Config) (s *relay.Service, at, client, target *p2p.Host) {
	t.Helper()
	hosts := p2ptest.Loopback(t, 3)
	cfg.Logger = p2ptest.Quiet()
	s, err := relay.New(hosts[0], cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	p2ptest.ConnectAll(t, hosts[0], hosts[1])
	p2ptest.ConnectAll(t, hosts[0], hosts[2])
	return s, hosts[0], hosts[1], hosts[2]
}

// via is how p is dialled through at.
func via(at *p2p.Host, p peer.ID) peer.AddrInfo {
	return peer.AddrInfo{ID: p, Addrs: []ma.Multiaddr{at.Addrs()[0].Encapsulate(ma.StringCast("/p2p/" + at.ID().String() + "/p2p-circuit"))}}
}

// echo answers with what it is sent.
const echo = "/test/echo"

func serveEcho(h *p2p.Host) {
	h.SetStreamHandler(echo, func(s network.Stream) {
		_, _ = io.Copy(s, s)
		_ = s.Close()
	})
}

// exchange sends n random bytes through an echo and wants them back.
func exchange(ctx context.Context, from *p2p.Host, to peer.ID, n int) error {
	s, err := from.NewStream(network.WithAllowLimitedConn(ctx, "test"), to, echo)
	if err != nil {
		return err
	}
	defer func() { _ = s.Reset() }()
	_ = s.SetDeadline(time.Now().Add(time.Minute))
	sent := make([]byte, n)
	_, _ = rand.Read(sent)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, _ = s.Write(sent)
		_ = s.CloseWrite()
	})
	got, err := io.ReadAll(s)
	if err == nil && !bytes.Equal(got, sent) {
		err = errors.New("came back changed")
	}
	return err
}

// A client with one connection reaches a peer that knows nothing of it, and is reached back over the same circuit.
func TestEntry(t *testing.T) {
	t.Parallel()
	s, at, client, target := trio(t, relay.Config{})
	serveEcho(target)
	serveEcho(client)
	if err := client.Connect(t.Context(), via(at, target.ID())); err != nil {
		t.Fatal(err)
	}
	for _, c := range client.Network().ConnsToPeer(target.ID()) {
		if c.Stat().Limited || !strings.HasSuffix(c.RemoteMultiaddr().String(), at.ID().String()+"/p2p-circuit") {
			t.Errorf("connected by %s, limited %v", c.RemoteMultiaddr(), c.Stat().Limited)
		}
	}
	if err := exchange(t.Context(), client, target.ID(), 5<<20); err != nil {
		t.Error(err)
	}
	if err := exchange(t.Context(), target, client.ID(), 1<<20); err != nil {
		t.Error(err)
	}
	if n := len(client.Network().Peers()); n != 2 {
		t.Errorf("the client is connected to %d peers, want the relay and the one through it", n)
	}
	if st := s.Stats(); st.Circuits != 1 || st.Opened != 1 {
		t.Errorf("%+v", st)
	}
}

// brokenFirst is a host whose first stream to a peer breaks, as over a connection that the peer has dropped.
type brokenFirst struct {
	host.Host
	broke atomic.Bool
}

func (b *brokenFirst) NewStream(ctx context.Context, p peer.ID, ids ...protocol.ID) (network.Stream, error) {
	s, err := b.Host.NewStream(ctx, p, ids...)
	if err == nil && b.broke.CompareAndSwap(false, true) {
		_ = s.Reset()
	}
	return s, err
}

// A target that dialled the relay over TCP and QUIC has dropped one of them, and the relay finds that out by asking over it.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 3)
	at, client, target := &brokenFirst{Host: hosts[0]}, hosts[1], hosts[2]
	s, err := relay.New(at, relay.Config{Logger: p2ptest.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p2ptest.ConnectAll(t, hosts[0], client)
	p2ptest.ConnectAll(t, hosts[0], target)
	serveEcho(target)
	if err := client.Connect(t.Context(), via(hosts[0], target.ID())); err != nil {
		t.Fatal(err)
	}
	if err := exchange(t.Context(), client, target.ID(), 100<<10); err != nil || !at.broke.Load() {
		t.Errorf("%v, broken once: %v", err, at.broke.Load())
	}
}

// The relay looks up where a target is that it is not connected to.
func TestFind(t *testing.T) {
	t.Parallel()
	far := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(9)})
	serveEcho(far)
	_, at, client, _ := trio(t, relay.Config{Find: func(_ context.Context, p peer.ID) (peer.AddrInfo, error) {
		if p != far.ID() {
			return peer.AddrInfo{}, errors.New("nobody")
		}
		return far.AddrInfo(), nil
	}})
	if err := client.Connect(t.Context(), via(at, far.ID())); err != nil {
		t.Fatal(err)
	}
	if err := exchange(t.Context(), client, far.ID(), 1000); err != nil {
		t.Error(err)
	}
}

// A place is reserved and refreshed as at any relay.
func TestReserve(t *testing.T) {
	t.Parallel()
	_, at, _, target := trio(t, relay.Config{Limits: relay.Limits{Reservations: 1}})
	for range 2 {
		r, err := client.Reserve(t.Context(), target, at.AddrInfo())
		if err != nil || time.Until(r.Expiration) < time.Minute {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	other := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(9)})
	if _, err := client.Reserve(t.Context(), other, at.AddrInfo()); err == nil {
		t.Error("a second place at a relay with one")
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	t.Run("data", func(t *testing.T) {
		t.Parallel()
		_, at, client, target := trio(t, relay.Config{Limits: relay.Limits{Data: 1 << 20}})
		serveEcho(target)
		ctx := network.WithAllowLimitedConn(t.Context(), "test")
		if err := client.Connect(ctx, via(at, target.ID())); err != nil {
			t.Fatal(err)
		}
		if c := client.Network().ConnsToPeer(target.ID()); len(c) != 1 || !c[0].Stat().Limited {
			t.Error("the client does not know that it is limited")
		}
		if err := exchange(t.Context(), client, target.ID(), 100<<10); err != nil {
			t.Error(err)
		}
		if err := exchange(t.Context(), client, target.ID(), 2<<20); err == nil {
			t.Error("more than the limit came through")
		}
	})
	t.Run("duration", func(t *testing.T) {
		t.Parallel()
		_, at, client, target := trio(t, relay.Config{Limits: relay.Limits{Duration: time.Second}})
		gone := make(chan struct{})
		client.Network().Notify(&network.NotifyBundle{DisconnectedF: func(_ network.Network, c network.Conn) {
			if c.RemotePeer() == target.ID() {
				close(gone)
			}
		}})
		if err := client.Connect(network.WithAllowLimitedConn(t.Context(), "test"), via(at, target.ID())); err != nil {
			t.Fatal(err)
		}
		<-gone
	})
	t.Run("circuits", func(t *testing.T) {
		t.Parallel()
		for name, limits := range map[string]relay.Limits{"in all": {Circuits: 1}, "of one peer": {PerPeer: 1}} {
			s, at, client, target := trio(t, relay.Config{Limits: limits})
			other := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(9)})
			p2ptest.ConnectAll(t, at, other)
			if err := client.Connect(t.Context(), via(at, target.ID())); err != nil {
				t.Fatal(err)
			}
			err := client.Connect(t.Context(), via(at, other.ID()))
			if err == nil || !strings.Contains(err.Error(), "RESOURCE_LIMIT") {
				t.Errorf("%s: %v", name, err)
			}
			// The place is free again when the circuit ends.
			if err := client.Network().ClosePeer(target.ID()); err != nil {
				t.Error(err)
			}
			idle(s)
			client.Forgive(other.ID())
			if err := client.Connect(t.Context(), via(at, other.ID())); err != nil {
				t.Errorf("%s: after the first ended: %v", name, err)
			}
		}
	})
	t.Run("nonsense", func(t *testing.T) {
		t.Parallel()
		h := p2ptest.Loopback(t, 1)[0]
		for _, l := range []relay.Limits{{Circuits: -1}, {Circuits: 1 << 20}, {PerPeer: -1}, {Duration: time.Millisecond}, {Reservations: -1}} {
			if s, err := relay.New(h, relay.Config{Limits: l}); !errors.Is(err, relay.ErrConfig) {
				t.Errorf("%+v: %v", l, err)
				if s != nil {
					_ = s.Close()
				}
			}
		}
	})
}

// idle waits until no circuit is open; a test that waits in vain shows where.
func idle(s *relay.Service) {
	for s.Stats().Circuits > 0 {
		runtime.Gosched()
	}
}

// ask sends the relay raw bytes and returns its answer's status.
func ask(t *testing.T, from, at *p2p.Host, raw []byte) (pb.Status, error) {
	t.Helper()
	s, err := from.NewStream(t.Context(), at.ID(), proto.ProtoIDv2Hop)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Reset() }()
	_ = s.SetDeadline(time.Now().Add(time.Minute))
	if _, err := s.Write(raw); err != nil {
		return 0, err
	}
	_ = s.CloseWrite()
	rd := util.NewDelimitedReader(s, 4096)
	defer rd.Close()
	var answer pb.HopMessage
	err = rd.ReadMsg(&answer)
	return answer.GetStatus(), err
}

func connectTo(t *testing.T, p peer.AddrInfo) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := protodelim.MarshalTo(&b, &pb.HopMessage{Type: pb.HopMessage_CONNECT.Enum(), Peer: util.PeerInfoToPeerV2(p)}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestHostile(t *testing.T) {
	t.Parallel()
	s, at, client, target := trio(t, relay.Config{Allow: func(_, target peer.ID) bool { return target != forbidden(t) }})
	// A listener that counts: where a client says that its target is, nobody may knock.
	trap := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(8)})
	noise := make([]byte, 4000)
	_, _ = rand.Read(noise)
	for name, c := range map[string]struct {
		raw  []byte
		want pb.Status
	}{
		"nothing":             {nil, pb.Status_MALFORMED_MESSAGE},
		"garbage":             {append([]byte{0xa0, 0x1f}, noise...), pb.Status_MALFORMED_MESSAGE},
		"oversized":           {[]byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2, 3}, pb.Status_MALFORMED_MESSAGE},
		"endless length":      {bytes.Repeat([]byte{0xff}, 20), pb.Status_MALFORMED_MESSAGE},
		"half a message":      {connectTo(t, target.AddrInfo())[:20], pb.Status_MALFORMED_MESSAGE},
		"no peer":             {[]byte{2, 8, 1}, pb.Status_MALFORMED_MESSAGE},
		"unknown type":        {[]byte{2, 8, 9}, pb.Status_MALFORMED_MESSAGE},
		"status as a request": {[]byte{2, 8, 2}, pb.Status_MALFORMED_MESSAGE},
		"itself":              {connectTo(t, client.AddrInfo()), pb.Status_PERMISSION_DENIED},
		"the relay":           {connectTo(t, at.AddrInfo()), pb.Status_PERMISSION_DENIED},
		"forbidden":           {connectTo(t, peer.AddrInfo{ID: forbidden(t)}), pb.Status_PERMISSION_DENIED},
		"unknown":             {connectTo(t, peer.AddrInfo{ID: trap.ID(), Addrs: trap.Addrs()}), pb.Status_NO_RESERVATION},
	} {
		got, err := ask(t, client, at, c.raw)
		if got != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
	if n := len(trap.Network().Conns()); n != 0 {
		t.Errorf("the relay dialled an address of the client's choice")
	}
	idle(s)
	if st := s.Stats(); st.Refused == 0 {
		t.Errorf("%+v", st)
	}
	// Nobody is worse off for it.
	serveEcho(target)
	if err := client.Connect(t.Context(), via(at, target.ID())); err != nil {
		t.Fatal(err)
	}
	if err := exchange(t.Context(), client, target.ID(), 1000); err != nil {
		t.Error(err)
	}
}

func forbidden(t *testing.T) peer.ID {
	id, err := peer.IDFromPrivateKey(p2ptest.Key(77))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A target that answers the relay with nonsense, or not at all, costs one refused circuit.
func TestHostileTarget(t *testing.T) {
	t.Parallel()
	s, at, client, target := trio(t, relay.Config{})
	for name, answer := range map[string][]byte{"nothing": nil, "garbage": {7, 1, 2, 3, 4, 5, 6, 7}, "oversized": bytes.Repeat([]byte{0xff}, 9), "connect": {2, 8, 0}, "refused": {5, 8, 1, 32, 200, 1}} {
		target.SetStreamHandler(proto.ProtoIDv2Stop, func(st network.Stream) {
			_, _ = st.Write(answer)
			_ = st.Close()
		})
		if status, err := ask(t, client, at, connectTo(t, target.AddrInfo())); status != pb.Status_CONNECTION_FAILED {
			t.Errorf("%s: %s, %v", name, status, err)
		}
	}
	idle(s)
}

// A circuit is not asked for over a circuit.
func TestNoNesting(t *testing.T) {
	t.Parallel()
	_, at, asking, middle := trio(t, relay.Config{})
	inner, err := relay.New(middle, relay.Config{Logger: p2ptest.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	if err := asking.Connect(t.Context(), via(at, middle.ID())); err != nil {
		t.Fatal(err)
	}
	if status, err := ask(t, asking, middle, connectTo(t, at.AddrInfo())); status != pb.Status_PERMISSION_DENIED {
		t.Errorf("%s, %v", status, err)
	}
}

// Close leaves nothing running, whatever hangs: circuits with traffic, requests that are never finished.
func TestClose(t *testing.T) {
	hosts := p2ptest.Loopback(t, 3)
	p2ptest.ConnectAll(t, hosts...)
	s, err := relay.New(hosts[0], relay.Config{Logger: p2ptest.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	var open []network.Stream
	for range 3 {
		st, err := hosts[1].NewStream(t.Context(), hosts[0].ID(), proto.ProtoIDv2Hop)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Write([]byte{100, 8}); err != nil {
			t.Fatal(err)
		}
		open = append(open, st)
	}
	st, err := hosts[1].NewStream(t.Context(), hosts[0].ID(), proto.ProtoIDv2Hop)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Write(connectTo(t, hosts[2].AddrInfo())); err != nil {
		t.Fatal(err)
	}
	for s.Stats().Opened == 0 {
		runtime.Gosched()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, g := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(g, "p2p/relay.(*Service)") && !strings.Contains(g, "TestClose") {
			t.Errorf("still running:\n%s", g)
		}
	}
	for _, st := range append(open, st) {
		_ = st.Reset()
	}
}
