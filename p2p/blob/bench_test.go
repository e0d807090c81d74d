package blob_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// BenchmarkFetch fetches 1 GiB, hashed and synced to the disk, and after each sends as much through a bare libp2p
// stream; "of-raw" is the rate of the fetch as a share of the stream's. Over a link of 5 Gbit/s the processor has time
// for both; over the loopback both ends, their encryption, the hash and the disk share the processor's cores.
func BenchmarkFetch(b *testing.B) {
	b.Run("link", func(b *testing.B) { benchmarkFetch(b, tcpLink(5e9/8)) })
	b.Run("loopback", func(b *testing.B) { benchmarkFetch(b, libp2p.Transport(tcp.NewTCPTransport)) })
}

func benchmarkFetch(b *testing.B, transport libp2p.Option) {
	const size = 1 << 30
	var hosts []*p2p.Host
	for i := range 2 {
		h, err := p2p.New(p2p.Config{Key: p2ptest.Key(i), Network: p2ptest.Network, Listen: []string{"/ip4/127.0.0.1/tcp/0"},
			Logger: p2ptest.Quiet(), Transport: transport})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { h.Close() })
		hosts = append(hosts, h)
		transport = libp2p.Transport(tcp.NewTCPTransport) // the link is on the first one's side
	}
	to, from := open(b, plenty), open(b, plenty)
	peer := hosts[1]
	srv := blob.Serve(peer, p2ptest.Network, from, nil, nil)
	b.Cleanup(srv.Close)
	if err := hosts[0].Connect(b.Context(), peer.AddrInfo()); err != nil {
		b.Fatal(err)
	}
	data := random(size)
	c := put(b, from, data)
	peer.SetStreamHandler("/raw", func(s network.Stream) {
		_, _ = s.Write(data)
		_ = s.Close()
	})
	var fetch, raw time.Duration
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		begun := time.Now()
		if err := blob.Fetch(b.Context(), hosts[0], p2ptest.Network, peer.ID(), c, size, to, nil); err != nil {
			b.Fatal(err)
		}
		fetch += time.Since(begun)
		b.StopTimer()
		if err := to.Remove(c); err != nil {
			b.Fatal(err)
		}
		begun = time.Now()
		s, err := hosts[0].NewStream(b.Context(), peer.ID(), "/raw")
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{s}, make([]byte, 256<<10)); n != size {
			b.Fatalf("%d bytes, %v", n, err)
		}
		raw += time.Since(begun)
		b.StartTimer()
	}
	b.ReportMetric(raw.Seconds()/fetch.Seconds(), "of-raw")
	b.ReportMetric(size/1e6*float64(b.N)/raw.Seconds(), "raw-MB/s")
}

// tcpLink is TCP whose dialing end receives so many bytes a second and no more.
func tcpLink(rate float64) libp2p.Option {
	return libp2p.Transport(tcp.NewTCPTransport, tcp.WithDialerForAddr(func(ma.Multiaddr) (tcp.ContextDialer, error) {
		return link{rate}, nil
	}))
}

type link struct{ rate float64 }

func (l link) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &linkConn{Conn: c, rate: l.rate}, nil
}

// linkConn holds back what came sooner than the link could have carried it. One goroutine reads it.
type linkConn struct {
	net.Conn
	rate float64
	next time.Time // when the link has carried all that was read
}

func (c *linkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	const buffered = 4 * time.Millisecond // what a sleep that lasted too long lets pile up on the way
	if late := time.Now().Add(-buffered); c.next.Before(late) {
		c.next = late
	}
	c.next = c.next.Add(time.Duration(float64(n) / c.rate * float64(time.Second)))
	if early := time.Until(c.next); early > time.Millisecond {
		time.Sleep(early)
	}
	return n, err
}
