package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// Peers that send one identify message after the other do not keep a host from closing.
func TestAttackIdentifyWhileClosing(t *testing.T) {
	t.Parallel()
	const callers, rounds = 20, 5
	hosts := p2ptest.Loopback(t, callers)
	for round := range rounds {
		h, err := p2p.New(p2p.Config{ // nobody closes it at the end of the test: a host that hangs would keep that up too
			Key: p2ptest.Key(1000 + round), Network: p2ptest.Network, Logger: p2ptest.Quiet(), Listen: []string{"/ip4/127.0.0.1/tcp/0"},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var senders sync.WaitGroup
		for _, c := range hosts {
			if err := c.Connect(ctx, peer.AddrInfo{ID: h.ID(), Addrs: h.Addrs()}); err != nil {
				t.Fatal(err)
			}
			senders.Go(func() {
				for i := 0; ctx.Err() == nil; i++ { // each change of the protocols is sent to all neighbours
					p := protocol.ID(fmt.Sprintf("/test/%d", i))
					c.SetStreamHandler(p, func(s network.Stream) { s.Reset() })
					time.Sleep(time.Millisecond)
					c.RemoveStreamHandler(p)
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- h.Close() }()
		select {
		case err = <-closed:
		case <-time.After(time.Minute):
			err = errors.New("not closed after a minute")
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		}
		cancel()
		senders.Wait()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
