package blob_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/blob/remove"
	"github.com/starling-network/starling/p2p/p2ptest"
)

var (
	imageMB  = flag.Int("image-mb", 100, "size of the image of BenchmarkSwarm; 500 is a whole one")
	uplinkMB = flag.Float64("uplink-mb", 25, "MB/s that the warm peer of BenchmarkSwarm sends")
	files    = flag.Int("files", 99_000, "files of BenchmarkSmallFiles")
)

// job are the cold peers of BenchmarkSwarm.
type job []peer.ID

func (j job) Of(p peer.ID, _ cid.Cid) []string {
	for _, id := range j {
		if p == id {
			return []string{"job"}
		}
	}
	return nil
}

func (job) Enter() (func(), bool) { return func() {}, true }

// BenchmarkSwarm sends an image from one warm peer to one cold peer, and then to four at the same time, which are each
// other's fellows. All that the warm peer sends goes over one uplink. "of-one" is the time of the four by that of the
// one, "of-uplink" the rate of the one by that of the uplink, and "copies" the number of images that the warm peer sends
// to the four. "peak-MB" is the memory of all five peers, which are in this process, while the four receive.
func BenchmarkSwarm(b *testing.B) {
	const cold = 4
	up := &uplink{rate: *uplinkMB * 1e6}
	hosts := []*p2p.Host{benchHost(b, 0, tcpVia(up))}
	var all job
	for i := range cold {
		h := benchHost(b, i+1, libp2p.Transport(tcp.NewTCPTransport))
		all = append(all, h.ID())
		// The warm peer dials, so that its end is the one with the uplink.
		if err := hosts[0].Connect(b.Context(), h.AddrInfo()); err != nil {
			b.Fatal(err)
		}
		for _, other := range hosts[1:] {
			if err := h.Connect(b.Context(), other.AddrInfo()); err != nil {
				b.Fatal(err)
			}
		}
		hosts = append(hosts, h)
	}
	size := int64(*imageMB) * 1e6
	from := open(b, 2*size)
	c, _, err := from.Put(b.Context(), io.LimitReader(rand.NewChaCha8([32]byte{1}), size))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(blob.Serve(hosts[0], p2ptest.Network, from, nil, nil).Close)
	var stores [cold]*blob.Store
	for i := range cold {
		stores[i] = open(b, 2*size)
		none := func(peer.ID, cid.Cid) bool { return false }
		b.Cleanup(blob.Serve(hosts[i+1], p2ptest.Network, stores[i], none, all).Close)
	}
	receive := func(i int, fellows bool) error {
		s := blob.Swarm{Shared: blob.Peer{Host: hosts[i+1], Network: p2ptest.Network, ID: hosts[0].ID()}, Turn: i}
		for j := range cold {
			if j != i && fellows {
				s.Fellows = append(s.Fellows, blob.Peer{Host: hosts[i+1], Network: p2ptest.Network, ID: all[j]})
			}
		}
		_, err := stores[i].Receive(b.Context(), s, c, size, []string{"job"}, nil)
		return err
	}
	clear := func() {
		for _, s := range stores {
			if err := s.Remove(c); err != nil {
				b.Fatal(err)
			}
		}
	}
	var one, four time.Duration
	var sent int64
	b.SetBytes(size)
	for b.Loop() {
		b.StopTimer()
		up.begin()
		begun := time.Now()
		if err := receive(0, false); err != nil {
			b.Fatal(err)
		}
		one += time.Since(begun)
		clear()
		before := up.total()
		forgetPeak()
		b.StartTimer()
		up.begin()
		begun = time.Now()
		errs := make([]error, cold)
		var wg sync.WaitGroup
		for i := range cold {
			wg.Go(func() { errs[i] = receive(i, true) })
		}
		wg.Wait()
		four += time.Since(begun)
		if err := errors.Join(errs...); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		sent += up.total() - before
		clear()
		b.StartTimer()
	}
	b.ReportMetric(four.Seconds()/one.Seconds(), "of-one")
	b.ReportMetric(float64(size)*float64(b.N)/one.Seconds()/up.rate, "of-uplink")
	b.ReportMetric(float64(sent)/float64(size)/float64(b.N), "copies")
	b.ReportMetric(peak(b), "peak-MB")
}

// BenchmarkSmallFiles stores a directory of many small files, sends it to another peer and unpacks it there. "files/s"
// is over all of that; "of-plain" is the rate by that of writing such files alone.
func BenchmarkSmallFiles(b *testing.B) {
	const size = 1 << 10
	a, h, to, from := two(b, plenty, nil)
	dir := b.TempDir()
	begun := time.Now()
	for i := range *files {
		sub := filepath.Join(dir, strconv.Itoa(i/1000))
		if i%1000 == 0 {
			if err := os.Mkdir(sub, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(sub, strconv.Itoa(i)), fmt.Appendf(make([]byte, 0, size), "%0*d", size, i), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	plain := time.Since(begun)
	forgetPeak()
	var took time.Duration
	for b.Loop() {
		begun := time.Now()
		tree, err := from.PutTree(b.Context(), dir, plenty)
		if err != nil {
			b.Fatal(err)
		}
		if err := blob.Fetch(b.Context(), a, p2ptest.Network, h.ID(), tree.CID, plenty, to, nil); err != nil {
			b.Fatal(err)
		}
		out := filepath.Join(b.TempDir(), "out")
		if _, err := to.Unpack(b.Context(), tree.CID, out, plenty); err != nil {
			b.Fatal(err)
		}
		took += time.Since(begun)
		b.StopTimer()
		if err := errors.Join(remove.All(out), from.Remove(tree.CID), to.Remove(tree.CID)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	rate := float64(*files) * float64(b.N) / took.Seconds()
	b.ReportMetric(rate, "files/s")
	b.ReportMetric(rate*plain.Seconds()/float64(*files), "of-plain")
	b.ReportMetric(peak(b), "peak-MB")
}

func benchHost(b *testing.B, i int, transport libp2p.Option) *p2p.Host {
	b.Helper()
	h, err := p2p.New(p2p.Config{Key: p2ptest.Key(i), Network: p2ptest.Network, Listen: []string{"/ip4/127.0.0.1/tcp/0"},
		Logger: p2ptest.Quiet(), Transport: transport})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	return h
}

// lateMost is the longest time in which nothing is sent that an uplink makes up for, as one with a queue does. It is
// longer than a sender oversleeps, or waits for a processor: a single sender would not fill the uplink, and several do.
const lateMost = 200 * time.Millisecond

// uplink carries so many bytes a second since begin, and no more, of all connections together.
type uplink struct {
	rate float64

	mu   sync.Mutex
	next time.Time // when it has carried all that was written
	sent int64
}

func (u *uplink) total() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sent
}

// begin forgets that nothing was sent before.
func (u *uplink) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.next = time.Now()
}

// carry waits until n bytes were carried.
func (u *uplink) carry(n int) {
	u.mu.Lock()
	now := time.Now()
	if late := now.Add(-lateMost); u.next.Before(late) {
		u.next = late
	}
	u.next = u.next.Add(time.Duration(float64(n) / u.rate * float64(time.Second)))
	u.sent += int64(n)
	wait := u.next.Sub(now)
	u.mu.Unlock()
	if wait > time.Millisecond {
		time.Sleep(wait)
	}
}

// tcpVia is TCP whose dialing end sends over an uplink.
func tcpVia(u *uplink) libp2p.Option {
	return libp2p.Transport(tcp.NewTCPTransport, tcp.WithDialerForAddr(func(ma.Multiaddr) (tcp.ContextDialer, error) {
		return upDialer{u}, nil
	}))
}

type upDialer struct{ u *uplink }

func (d upDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	var plain net.Dialer
	c, err := plain.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return upConn{c, d.u}, nil
}

type upConn struct {
	net.Conn
	u *uplink
}

func (c upConn) Write(b []byte) (int, error) {
	c.u.carry(len(b))
	return c.Conn.Write(b)
}

// forgetPeak begins another measurement of this process's memory.
func forgetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peak is the most memory that this process had since forgetPeak, in MB: 0 where the system does not say.
func peak(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib * 1024 / 1e6
		}
	}
	return 0
}
