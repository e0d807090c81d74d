//go:build linux

package natlab

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// envPeer makes this test's program a peer inside a lab; it holds a peerConfig.
const envPeer = "STARLING_NATLAB_PEER"

func TestMain(m *testing.M) {
	if text := os.Getenv(envPeer); text != "" {
		if err := servePeer(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// peerConfig is what is special about a peer inside a lab.
type peerConfig struct {
	Key       int
	Listen    string // its IP address; empty: any
	Bootstrap []string
	PortMap   bool
	More      []peerConfig // peers beside it in the same process, which nobody asks
}

// host makes the peer's host and runs it until ctx ends.
func (c peerConfig) host(ctx context.Context, wg *sync.WaitGroup) (*p2p.Host, error) {
	var boot []peer.AddrInfo
	for _, b := range c.Bootstrap {
		info, err := peer.AddrInfoFromString(b)
		if err != nil {
			return nil, err
		}
		boot = append(boot, *info)
	}
	ip := cmp.Or(c.Listen, "0.0.0.0")
	h, err := p2p.New(p2p.Config{
		Key: p2ptest.Key(c.Key), Network: p2ptest.Network, Bootstrap: boot, Logger: p2ptest.Quiet(),
		Listen: []string{fmt.Sprintf("/ip4/%s/tcp/%d", ip, labPort), fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", ip, labPort)},
		NAT:    p2p.NAT{Auto: true, PortMap: c.PortMap},
	})
	if err != nil {
		return nil, err
	}
	wg.Go(func() {
		if err := errors.Join(h.Run(ctx), h.Close()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	return h, nil
}

// labPort is where every peer in a lab listens.
const labPort = 4001

// peerAnswer is how a peer stands, after it pinged whom it was asked to.
type peerAnswer struct {
	State p2p.ReachState
	Addrs []peerAddr
	Path  p2p.Path // of the ping
	Addr  string   // that it took
	Err   string   // why there was none
}

type peerAddr struct {
	Addr   string
	Class  addr.Class
	State  p2p.ReachState
	Mapped bool
}

// servePeer runs peers where it is. For each line, an address to ping or nothing, the first one pings it and tells how it
// stands. They end with the input, and so with the test.
func servePeer(text string) error {
	var c peerConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, more := range c.More {
		if _, err := more.host(ctx, &wg); err != nil {
			return err
		}
	}
	h, err := c.host(ctx, &wg)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := out.Encode(answer(ctx, h, lines.Text())); err != nil {
			return err
		}
	}
	return nil
}

func answer(ctx context.Context, h *p2p.Host, target string) peerAnswer {
	r := h.Reach()
	a := peerAnswer{State: r.State}
	for _, addr := range r.Addrs {
		a.Addrs = append(a.Addrs, peerAddr{addr.Addr.String(), addr.Class, addr.State, addr.Mapped})
	}
	if target == "" {
		return a
	}
	info, err := peer.AddrInfoFromString(target)
	if err == nil {
		var pong p2p.PingResult
		if pong, err = h.Ping(ctx, *info, 1); err == nil {
			a.Path, a.Addr = pong.Conn.Path, pong.Conn.Addr.String()
		}
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// labPeer is a peer's process in a lab.
type labPeer struct {
	id   peer.ID
	site *Site
	ask  func(target string) (peerAnswer, error)
}

// startPeer runs a peer at a site until the test ends.
func startPeer(t *testing.T, s *Site, c peerConfig) *labPeer {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.IDFromPrivateKey(p2ptest.Key(c.Key))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envPeer+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Errorf("the peer at %s ended with: %v", s.IP, err)
		}
	})
	answers := json.NewDecoder(out)
	return &labPeer{id: id, site: s, ask: func(target string) (a peerAnswer, err error) {
		if _, err := fmt.Fprintln(in, target); err != nil {
			return a, err
		}
		return a, answers.Decode(&a)
	}}
}

// labAddr is where a peer with a key is at an IP address.
func labAddr(t *testing.T, ip string, key int) string {
	t.Helper()
	id, err := peer.IDFromPrivateKey(p2ptest.Key(key))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/ip4/%s/tcp/%d/p2p/%s", ip, labPort, id)
}

// town runs n public peers, each with an address of its own, in one process, and returns where they are.
func town(t *testing.T, s *Site, n int) (at []string) {
	t.Helper()
	first := peerConfig{Listen: s.IP}
	at = append(at, labAddr(t, s.IP, 0))
	for i := 1; i < n; i++ {
		ip := strings.TrimSuffix(s.IP, "1") + strconv.Itoa(i+1)
		if err := s.Run("ip", "addr", "add", ip+"/16", "dev", "eth0"); err != nil {
			t.Fatal(err)
		}
		first.More = append(first.More, peerConfig{Key: i, Listen: ip})
		at = append(at, labAddr(t, ip, i))
	}
	if _, err := startPeer(t, s, first).ask(""); err != nil { // they listen
		t.Fatal(err)
	}
	return at
}

// until asks a peer how it stands until one of its addresses is as wanted, and returns that.
func (p *labPeer) until(t *testing.T, what string, want func(peerAddr) bool) (peerAddr, peerAnswer) {
	t.Helper()
	for deadline := time.Now().Add(labTime); ; {
		a, err := p.ask("")
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(a.Addrs, want); i >= 0 {
			return a.Addrs[i], a
		}
		if time.Now().After(deadline) {
			t.Fatalf("no address of the peer at %s is %s: it is %s, %+v", p.site.IP, what, a.State, a.Addrs)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

const (
	// labTime is how long a peer may take to learn how it stands: it asks each other peer once in two minutes, and looks again
	// for a router that it missed after one.
	labTime = 6 * time.Minute
	// labTown is how many public peers there are to ask: for each of a peer's addresses three, so that none has to be asked twice.
	labTown = 12
)

// A real router opens ports when it is asked by UPnP: a peer behind it that does is public, and others dial it. One that
// does not, behind another such router, is not.
func TestPortMap(t *testing.T) {
	t.Parallel()
	l := lab(t, UPnP)
	known := town(t, site(t, l, Public), labTown)
	outside := startPeer(t, site(t, l, Public), peerConfig{Key: 100})
	on := startPeer(t, site(t, l, UPnP), peerConfig{Key: 101, Bootstrap: known, PortMap: true})
	off := startPeer(t, site(t, l, UPnP), peerConfig{Key: 102, Bootstrap: known})

	mapped, a := on.until(t, "mapped and public", func(a peerAddr) bool { return a.Mapped && a.State == p2p.ReachPublic })
	if !strings.HasPrefix(mapped.Addr, "/ip4/"+on.site.Public+"/tcp/") || a.State != p2p.ReachPublic {
		t.Errorf("%s is mapped, and the router's address is %s; the peer is %s", mapped.Addr, on.site.Public, a.State)
	}
	// Others cannot say whether they reach QUIC: libp2p tries it for them only where it has often worked before.
	if !slices.ContainsFunc(a.Addrs, func(a peerAddr) bool { return a.Mapped && strings.HasPrefix(a.Addr, "/ip4/"+on.site.Public+"/udp/") }) {
		t.Errorf("QUIC is not mapped: %+v", a.Addrs)
	}
	pong, err := outside.ask(mapped.Addr + "/p2p/" + on.id.String())
	if err != nil || pong.Path != p2p.PathDirect || pong.Addr != mapped.Addr {
		t.Errorf("dialled over %q at %q, want direct at %s; %s, %v", pong.Path, pong.Addr, mapped.Addr, pong.Err, err)
	}
	t.Logf("%s is mapped, and others dial it", mapped.Addr)

	seen, a := off.until(t, "seen from outside and closed", func(a peerAddr) bool { return a.Class == addr.Public && a.State == p2p.ReachPrivate })
	for _, addr := range a.Addrs {
		if addr.Mapped || addr.State == p2p.ReachPublic {
			t.Errorf("without port mapping %s is %s, mapped: %v", addr.Addr, addr.State, addr.Mapped)
		}
	}
	pong, err = outside.ask(seen.Addr + "/p2p/" + off.id.String())
	if err != nil || !strings.Contains(pong.Err, "does not answer") {
		t.Errorf("without port mapping: dialled over %q at %q, %q, %v", pong.Path, pong.Addr, pong.Err, err)
	}
}
