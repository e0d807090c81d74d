package overlay_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/quic-go/quic-go"
	"go.uber.org/fx"

	"github.com/starling-network/starling/p2p/overlay"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// quicHost is a libp2p host over QUIC alone, whose ports are opened by n, or as libp2p does it (nil).
func quicHost(t testing.TB, i int, n *overlay.Network) host.Host {
	t.Helper()
	opts := []quicreuse.Option{}
	if n != nil {
		opts = append(opts, quicreuse.OverrideListenUDP(n.ListenUDP))
	}
	h, err := libp2p.New(libp2p.Identity(p2ptest.Key(i)), libp2p.ListenAddrStrings("/ip4/127.0.0.1/udp/0/quic-v1"), libp2p.Transport(libp2pquic.NewTransport),
		libp2p.QUICReuse(func(reset quic.StatelessResetKey, token quic.TokenGeneratorKey, life fx.Lifecycle) (*quicreuse.ConnManager, error) {
			m, err := quicreuse.NewConnManager(reset, token, opts...)
			if err == nil {
				life.Append(fx.StopHook(m.Close)) // libp2p closes its own only
			}
			return m, err
		}), libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics(), libp2p.DisableRelay())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// quicPair are two hosts: "plain" as libp2p makes them, "idle" with ports of the overlay that nobody has joined, "shared" with such
// from which datagrams are sorted.
func quicPair(t testing.TB, mode string) (a, b host.Host) {
	t.Helper()
	var hosts [2]host.Host
	for i := range hosts {
		var n *overlay.Network
		if mode != "plain" {
			n = overlay.New("test", p2ptest.Quiet())
		}
		hosts[i] = quicHost(t, i, n)
		if mode == "shared" {
			overlay.Share(n)
		}
	}
	return hosts[0], hosts[1]
}

func TestQUICWorksOnASharedPort(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"idle", "shared"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a, b := quicPair(t, mode)
			b.SetStreamHandler("/echo", func(s network.Stream) {
				_, _ = io.Copy(s, s)
				_ = s.Close()
			})
			if err := a.Connect(t.Context(), peer.AddrInfo{ID: b.ID(), Addrs: b.Addrs()}); err != nil {
				t.Fatal(err)
			}
			s, err := a.NewStream(t.Context(), b.ID(), "/echo")
			if err != nil {
				t.Fatal(err)
			}
			const size = 4 << 20
			go func() {
				_, _ = s.Write(make([]byte, size))
				_ = s.CloseWrite()
			}()
			if got, err := io.ReadAll(s); err != nil || len(got) != size {
				t.Fatalf("%d bytes came back, %v", len(got), err)
			}
		})
	}
}

// BenchmarkQUIC is bulk over a libp2p stream on loopback.
func BenchmarkQUIC(b *testing.B) {
	for round := range 3 {
		for _, mode := range []string{"plain", "idle", "shared"} {
			b.Run(fmt.Sprintf("%s/%d", mode, round), func(b *testing.B) {
				from, to := quicPair(b, mode)
				to.SetStreamHandler("/bulk", func(s network.Stream) {
					buf := make([]byte, 256<<10)
					for got := 0; ; {
						n, err := s.Read(buf)
						if err != nil {
							return
						}
						for got += n; got >= chunkQUIC; got -= chunkQUIC {
							if _, err := s.Write(buf[:1]); err != nil {
								return
							}
						}
					}
				})
				if err := from.Connect(b.Context(), peer.AddrInfo{ID: to.ID(), Addrs: to.Addrs()}); err != nil {
					b.Fatal(err)
				}
				s, err := from.NewStream(b.Context(), to.ID(), "/bulk")
				if err != nil {
					b.Fatal(err)
				}
				data := make([]byte, chunkQUIC)
				send := func() {
					if _, err := s.Write(data); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(s, data[:1]); err != nil {
						b.Fatal(err)
					}
				}
				for range 8 {
					send()
				}
				b.SetBytes(chunkQUIC)
				for b.Loop() {
					send()
				}
			})
		}
	}
}

const chunkQUIC = 4 << 20
