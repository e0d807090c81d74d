package overlay_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/overlay"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/testnet/natlab"
)

// A peer of a benchmark is a process of its own in a network namespace of its own, as peers are: this test binary, told by
// the environment what to be.
const roleVar = "STARLING_OVERLAY_PEER"

type role struct {
	Mode    string // "overlay" or "wireguard"
	Space   string // path of the container's network namespace
	Me      int    // 0 or 1
	Listen  [2]string
	Address [2]string // inside
	MTU     int
}

func TestMain(m *testing.M) {
	if text := os.Getenv(refuseVar); text != "" {
		if err := refuseCalls(text); err != nil {
			fmt.Fprintln(os.Stderr, "refusing system calls:", err)
			os.Exit(1)
		}
	}
	if text := os.Getenv(roleVar); text != "" {
		var r role
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			panic(err)
		}
		if err := r.serve(); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve is a peer until its standard input ends.
func (r role) serve() error {
	fd, err := unix.Open(r.Space, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var f *os.File
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			lockThread()
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			f, err = openTun("ovl0", unix.IFF_VNET_HDR)
			return err
		}()
	}()
	if err := <-done; err != nil {
		return err
	}
	stop := profile(r)
	defer stop()
	if r.Mode == "wireguard" {
		return r.wireguard(f)
	}
	h, err := p2p.New(p2p.Config{Key: p2ptest.Key(r.Me), Network: p2ptest.Network, Listen: []string{quicOn(r.Listen[r.Me])}, Logger: p2ptest.Quiet()})
	if err != nil {
		return err
	}
	defer h.Close()
	d, err := h.Overlay().Join(overlay.Config{Key: key(r.Me), Address: netip.MustParseAddr(r.Address[r.Me]), Prefix: prefix, Tun: f, MTU: r.MTU, Log: p2ptest.Quiet()})
	if err != nil {
		return err
	}
	other := 1 - r.Me
	id, err := peerID(other)
	if err != nil {
		return err
	}
	h.Peerstore().AddAddr(id, multiaddr(quicOn(r.Listen[other])), time.Hour)
	pub, err := key(other).Public()
	if err != nil {
		return err
	}
	if err := d.SetMembers([]overlay.Member{{Key: pub, Peer: id, Address: netip.MustParseAddr(r.Address[other])}}); err != nil {
		return err
	}
	for {
		m := d.Members()[0]
		if m.Path == overlay.PathDirect && m.MTU >= r.MTU {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Fprintf(os.Stderr, "%v\n", h.Overlay().Stats().Dropped())
	return d.Close()
}

// wireguard is wireguard-go as it comes, on a socket of its own.
func (r role) wireguard(f *os.File) error {
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		return err
	}
	t, _, err := tun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		return err
	}
	d := device.NewDevice(fixedMTU{t, r.MTU}, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, ""))
	own, other := key(r.Me), 1-r.Me
	pub, err := key(other).Public()
	if err != nil {
		return err
	}
	if err := d.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=51820\npublic_key=%s\nallowed_ip=%s/32\nendpoint=%s:51820\n",
		hex.EncodeToString(own[:]), pub, r.Address[other], r.Listen[other])); err != nil {
		return err
	}
	if err := d.Up(); err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	d.Close()
	return nil
}

// quicOn is where a peer listens.
func quicOn(addr string) string {
	family := "ip4"
	if netip.MustParseAddr(addr).Is6() {
		family = "ip6"
	}
	return "/" + family + "/" + addr + "/udp/4001/quic-v1"
}

// fixedMTU is a TUN whose interface is in another namespace, where its MTU cannot be asked for.
type fixedMTU struct {
	tun.Device
	mtu int
}

func (f fixedMTU) MTU() (int, error) { return f.mtu, nil }

// lab are two peers with a container each:
//
//	a ── TUN ── peer ── link ── peer ── TUN ── b
type lab struct{ a, b *end }

type end struct {
	ns   *natlab.Namespace
	addr string
}

func (e *end) listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := e.ns.Listen("tcp", e.addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (e *end) dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := e.ns.Dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func namespace(t testing.TB) *natlab.Namespace {
	t.Helper()
	n, err := natlab.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// veth links two namespaces.
func veth(t testing.TB, a, b *natlab.Namespace) {
	t.Helper()
	must(t, a.Run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.Path()))
	for i, n := range []*natlab.Namespace{a, b} {
		must(t, n.Run("ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", 1+i), "dev", "eth0"))
		must(t, n.Run("ip", "link", "set", "eth0", "up"))
	}
}

// newLab makes the peers of a mode. Link joins their namespaces.
func newLab(t testing.TB, mode string, link func(t testing.TB, a, b *natlab.Namespace)) *lab {
	t.Helper()
	return newLabOn(t, mode, [2]string{"192.0.2.1", "192.0.2.2"}, link)
}

// newLabOn is newLab with peers at other addresses.
func newLabOn(t testing.TB, mode string, on [2]string, link func(t testing.TB, a, b *natlab.Namespace)) *lab {
	t.Helper()
	needsNamespaces(t)
	var nets [2]*natlab.Namespace
	for i := range nets {
		nets[i] = namespace(t)
	}
	link(t, nets[0], nets[1])
	if mode == "raw" {
		return &lab{&end{nets[0], "192.0.2.1"}, &end{nets[1], "192.0.2.2"}}
	}
	r := role{Mode: mode, Listen: on, Address: [2]string{"10.77.0.2", "10.77.0.3"}, MTU: 1420}
	var ends [2]*end
	var ready [2]io.Reader
	for i := range ends {
		ns := namespace(t)
		ends[i] = &end{ns, r.Address[i]}
		r.Me, r.Space = i, ns.Path()
		text, err := json.Marshal(r)
		must(t, err)
		var in io.WriteCloser
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), roleVar+"="+string(text))
		cmd.Stderr = os.Stderr
		in, err = cmd.StdinPipe()
		must(t, err)
		ready[i], err = cmd.StdoutPipe()
		must(t, err)
		must(t, nets[i].Do(cmd.Start))
		t.Cleanup(func() {
			in.Close()
			_ = cmd.Wait()
		})
		for i := 0; ; i++ { // until the peer has made its TUN
			if ns.Run("ip", "link", "show", "ovl0") == nil {
				break
			}
			if t.Context().Err() != nil {
				t.Fatal("the peer made no TUN")
			}
		}
		must(t, ns.Run("ip", "addr", "add", r.Address[i]+"/16", "dev", "ovl0"))
		must(t, ns.Run("ip", "link", "set", "ovl0", "mtu", fmt.Sprint(r.MTU), "up"))
	}
	for _, out := range ready {
		var word string
		if _, err := fmt.Fscan(out, &word); err != nil || word != "ready" {
			t.Fatal("a peer did not start: ", word, err)
		}
	}
	return &lab{ends[0], ends[1]}
}

// chunk is what one round of a bulk benchmark sends on all flows together.
const chunk = 8 << 20

// bulk sends rounds of chunk bytes over flows connections until the far side has read them.
func (l *lab) bulk(b *testing.B, flows int) {
	ln := l.b.listen(b)
	got := make(chan int, 1024)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				buf := make([]byte, 256<<10)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					got <- n
				}
			}()
		}
	}()
	turn := make([]chan struct{}, flows)
	for i := range turn {
		turn[i] = make(chan struct{}, 1)
		c := l.a.dial(b, ln.Addr().String())
		go func() {
			data := make([]byte, 256<<10)
			for range turn[i] {
				for left := chunk / flows; left > 0; {
					n, err := c.Write(data[:min(left, len(data))])
					if err != nil {
						return
					}
					left -= n
				}
			}
		}()
	}
	round := func() {
		for _, t := range turn {
			t <- struct{}{}
		}
		for left := chunk / flows * flows; left > 0; {
			left -= <-got
		}
	}
	for range 4 {
		round() // congestion windows open
	}
	b.SetBytes(chunk)
	for b.Loop() {
		round()
	}
	for _, t := range turn {
		close(t)
	}
}

// rpc measures calls of 100 bytes, one after the other, and says how long the slowest hundredth took.
func (l *lab) rpc(b *testing.B) {
	ln := l.b.listen(b)
	go echo(ln)
	c := l.a.dial(b, ln.Addr().String())
	buf := make([]byte, 100)
	var took []time.Duration
	call := func() {
		began := time.Now()
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	for range 20 {
		call()
	}
	took = took[:0]
	for b.Loop() {
		call()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// load sends on flows connections until the benchmark ends.
func (l *lab) load(b *testing.B, flows int) {
	ln := l.b.listen(b)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	for range flows {
		c := l.a.dial(b, ln.Addr().String())
		go func() {
			data := make([]byte, 256<<10)
			for {
				if _, err := c.Write(data); err != nil {
					return
				}
			}
		}()
	}
}

var modes = []string{"raw", "wireguard", "overlay"}

// BenchmarkTCP compares bulk over TCP between two containers: without an overlay, over wireguard-go on a socket of its own,
// over the overlay on QUIC's.
func BenchmarkTCP(b *testing.B) {
	for _, flows := range []int{1, 8} {
		for _, mode := range modes {
			b.Run(fmt.Sprintf("flows=%d/%s", flows, mode), func(b *testing.B) { newLab(b, mode, veth).bulk(b, flows) })
		}
	}
}

// BenchmarkRPC is the round trip of a small call, alone and beside bulk.
func BenchmarkRPC(b *testing.B) {
	for _, flows := range []int{0, 1, 8} {
		for _, mode := range modes {
			b.Run(fmt.Sprintf("bulk=%d/%s", flows, mode), func(b *testing.B) {
				l := newLab(b, mode, veth)
				l.load(b, flows)
				l.rpc(b)
			})
		}
	}
}
