package p2p_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// Invalid addresses of a peer are left out. A key that is no peer's is an error.
func TestRemember(t *testing.T) {
	t.Parallel()
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0)})
	other, err := peer.IDFromPrivateKey(p2ptest.Key(1))
	if err != nil {
		t.Fatal(err)
	}
	key, err := p2p.KeyFromPeerID(other)
	if err != nil {
		t.Fatal(err)
	}
	id, err := h.Remember(key, []string{"nonsense", "/ip4/9.9.9.9/udp/1/quic-v1"})
	if addrs := h.Peerstore().Addrs(other); err != nil || id != other || len(addrs) != 1 {
		t.Errorf("peer %s at %v, %v; want %s at one address", id, addrs, err, other)
	}
	if _, err := h.Remember([32]byte{1}, nil); !errors.Is(err, p2p.ErrWeakKey) {
		t.Errorf("a key of small order: %v, want ErrWeakKey", err)
	}
}

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	rsa, _, err := crypto.GenerateKeyPair(crypto.RSA, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]p2p.Config{
		"no key":       {Network: "test"},
		"RSA key":      {Key: rsa, Network: "test"},
		"no network":   {Key: p2ptest.Key(0)},
		"bad network":  {Key: p2ptest.Key(0), Network: "a/b"},
		"low and high": {Key: p2ptest.Key(0), Network: "test", Low: 9, High: 8},
		"announce":     {Key: p2ptest.Key(0), Network: "test", Announce: []string{"1.2.3.4"}},
	} {
		if h, err := p2p.New(cfg); !errors.Is(err, p2p.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
			if h != nil {
				h.Close()
			}
		}
	}
}

// Two hosts reach each other over each transport alone.
func TestTransports(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"/tcp/", "/quic-v1"} {
		hosts := p2ptest.Loopback(t, 2)
		info := peer.AddrInfo{ID: hosts[1].ID()}
		for _, a := range hosts[1].Addrs() {
			if strings.Contains(a.String(), kind) {
				info.Addrs = append(info.Addrs, a)
			}
		}
		if err := hosts[0].Connect(t.Context(), info); err != nil {
			t.Fatalf("over %s: %v", kind, err)
		}
		for _, c := range hosts[0].Network().ConnsToPeer(hosts[1].ID()) {
			if !strings.Contains(c.RemoteMultiaddr().String(), kind) {
				t.Errorf("connected by %s, want %s", c.RemoteMultiaddr(), kind)
			}
		}
	}
}

func TestAnnounce(t *testing.T) {
	t.Parallel()
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), Announce: []string{"/ip4/203.0.113.9/tcp/4001"}})
	if a := h.Addrs(); len(a) != 1 || a[0].String() != "/ip4/203.0.113.9/tcp/4001" {
		t.Errorf("tells %v", a)
	}
}

// Many hosts on one address connect to one of them at once, which libp2p's defaults refuse.
func TestManyFromLoopback(t *testing.T) {
	t.Parallel()
	const n = 40
	hosts := p2ptest.Loopback(t, n)
	errs := make(chan error, n)
	for _, h := range hosts[1:] {
		go func() { errs <- h.Connect(t.Context(), hosts[0].AddrInfo()) }()
	}
	for range hosts[1:] {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := len(hosts[0].Network().Peers()); got != n-1 {
		t.Errorf("%d peers connected, want %d", got, n-1)
	}
}

// Peers find the network by bootstrap peers, find it again after these have moved or died, by what they
// remember, and come back by themselves after a crash.
func TestRunReconnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 4, 20*time.Millisecond)
		dirs := []string{t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()}
		stops := make([]func(), 4)
		start := func(i int, bootstrap ...int) {
			cfg := p2p.Config{PeerstoreDir: dirs[i]}
			for _, b := range bootstrap {
				cfg.Bootstrap = append(cfg.Bootstrap, net.Addr(b))
			}
			stops[i] = p2ptest.Go(t, net.Restart(i, cfg).Run)
		}
		connected := func(i, j int) bool {
			return net.Hosts[i].Network().Connectedness(net.Addr(j).ID) == network.Connected
		}
		start(0)
		for i := 1; i < 4; i++ {
			start(i, 0, 3)
		}
		time.Sleep(2 * time.Second)
		for i := 1; i < 4; i++ {
			if !connected(0, i) {
				t.Errorf("host %d did not reach the bootstrap peer", i)
			}
		}
		// Host 1 has lost its bootstrap list and knows the others only from its file.
		stops[1]()
		start(1)
		time.Sleep(2 * time.Second)
		if !connected(1, 0) || !connected(1, 3) {
			t.Error("host 1 did not remember its peers")
		}
		// The bootstrap peer is killed and comes back with nothing; nobody dials it by hand.
		net.Crash(0)
		stops[0]()
		time.Sleep(5 * time.Second)
		if err := os.Remove(filepath.Join(dirs[0], "peers.json")); err != nil {
			t.Error(err)
		}
		start(0)
		time.Sleep(3 * time.Minute)
		if n := len(net.Hosts[0].Network().Peers()); n != 3 {
			t.Errorf("the returned bootstrap peer has %d peers, want 3", n)
		}
	})
}

// logged is a log that tests read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// times is how often the log has text.
func (l *logged) times(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// A peer that reaches nobody to join by warns once, and says when it has joined.
func TestAloneWarns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 3, 20*time.Millisecond)
		net.Crash(0)
		var joins, first logged
		p2ptest.Go(t, net.Restart(1, p2p.Config{Bootstrap: []peer.AddrInfo{net.Addr(0)}, Logger: joins.logger()}).Run)
		p2ptest.Go(t, net.Restart(2, p2p.Config{Logger: first.logger()}).Run)
		time.Sleep(2 * time.Minute)
		if n := joins.times("connected to no peer: no bootstrap peer answers"); n != 1 || joins.times(net.Addr(0).ID.String()) == 0 {
			t.Errorf("warned %d times: %s", n, &joins.text)
		}
		if n := first.times("no bootstrap peer is known"); n != 1 {
			t.Errorf("the first peer of a network warned %d times: %s", n, &first.text)
		}
		p2ptest.Go(t, net.Restart(0, p2p.Config{}).Run)
		time.Sleep(time.Minute)
		if n := joins.times("joined the network"); n != 1 {
			t.Errorf("joined %d times: %s", n, &joins.text)
		}
	})
}

// A peer whose only peer to join by does not answer is reported as alone after its first dial. The log and `starling
// peer status` have it.
func TestDeadBootstrapIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 2, 20*time.Millisecond)
		net.Crash(0)
		h := net.Restart(1, p2p.Config{Bootstrap: []peer.AddrInfo{net.Addr(0)}})
		p2ptest.Go(t, h.Run)
		began := time.Now()
		for {
			if tried, _, alone := h.Alone(); alone {
				if len(tried) == 0 {
					t.Error("the address is not named")
				}
				break
			}
			if time.Since(began) > time.Minute {
				t.Fatal("not reported")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > p2p.DialTimeout+time.Second {
			t.Errorf("reported after %v", took)
		}
	})
}

// A peer to join by that is of another network is a warning with advice, once, however often it is dialled.
func TestBootstrapOfOtherNetworkWarns(t *testing.T) {
	t.Parallel()
	var log logged
	other := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), Network: "other"})
	p2ptest.Go(t, other.Run)
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), Bootstrap: []peer.AddrInfo{other.AddrInfo()}, Logger: log.logger()})
	gone := make(chan struct{}, 16)
	h.Network().Notify(&network.NotifyBundle{DisconnectedF: func(network.Network, network.Conn) {
		select {
		case gone <- struct{}{}:
		default:
		}
	}})
	p2ptest.Go(t, h.Run)
	for range 3 {
		<-gone
	}
	for alone := false; !alone; _, _, alone = h.Alone() {
		<-gone
	}
	<-gone
	if n := log.times("no bootstrap peer answers"); n != 0 {
		t.Errorf("%d warnings that the peer of another network does not answer", n)
	}
	if log.times("level=WARN msg=\"cannot join by a peer\"") != 1 || log.times("both peers need the same genesis.json") != 1 || log.times("level=INFO") != 0 {
		t.Errorf("%s", &log.text)
	}
}

func TestOtherNetworkDisconnected(t *testing.T) {
	t.Parallel()
	a := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0)})
	b := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), Network: "other"})
	c := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(2)})
	p2ptest.Go(t, a.Run)
	gone := make(chan struct{}, 1)
	a.Network().Notify(&network.NotifyBundle{DisconnectedF: func(_ network.Network, conn network.Conn) {
		if conn.RemotePeer() == b.ID() {
			gone <- struct{}{}
		}
	}})
	for a.Network().Connectedness(b.ID()) != network.Connected {
		if err := b.Connect(t.Context(), a.AddrInfo()); err == nil {
			break
		}
	}
	if err := c.Connect(t.Context(), a.AddrInfo()); err != nil {
		t.Fatal(err)
	}
	<-gone
	if a.Network().Connectedness(c.ID()) != network.Connected {
		t.Error("a peer of the same network was disconnected")
	}
}

func TestPeersFileSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "peers.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), PeerstoreDir: dir})
	if _, err := os.Stat(path + ".bad"); err != nil {
		t.Error(err)
	}
}

func TestProtect(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	p := hosts[1].ID()
	hosts[0].Protect(p, "a")
	hosts[0].Protect(p, "b")
	if !hosts[0].Unprotect(p, "a") || hosts[0].Unprotect(p, "b") {
		t.Error("tags do not count")
	}
}
