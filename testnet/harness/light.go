package harness

import (
	"context"
	"path/filepath"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/client"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// Light is a light client of the network, in place of stranger i. It simulates a separate process.
type Light struct {
	*Peer // its journal, files and key; Node is the light peer
	*client.Client

	host *p2p.Light
	stop func()
}

// newPeer makes peer number i of a network, without its blobs and its node.
func newPeer(n *Net, i int, seed [32]byte, home string, programs map[string]guest.Program) *Peer {
	return &Peer{
		Key: sign.NewPrivate(seed), Journal: store.NewMemory(), Fake: runtimetest.NewFake("wasm", programs),
		Home: home, net: n, i: i,
	}
}

// Light starts a light client in place of the stranger with that number, funded like a buyer. It starts with the
// addresses of the entries.
func (n *Net) Light(stranger int, entries ...*Peer) *Light {
	n.t.Helper()
	i := n.opts.Providers + n.opts.Buyers + stranger
	seed, err := p2p.SeedOf(p2ptest.Key(i))
	if err != nil {
		n.t.Fatal(err)
	}
	home := filepath.Join(n.t.TempDir(), name(i))
	p := newPeer(n, i, seed, home, n.opts.Programs)
	if p.Blobs, err = blob.OpenStore(filepath.Join(home, "blobs"), 1<<30); err != nil {
		n.t.Fatal(err)
	}
	n.mint(p.Key.Key())
	l := &Light{Peer: p}
	l.Start(entries...)
	n.t.Cleanup(func() { l.Stop() })
	return l
}

// Start starts the client on its old state.
func (l *Light) Start(entries ...*Peer) {
	p, n := l.Peer, l.net
	n.t.Helper()
	var known []peer.AddrInfo
	for _, e := range entries {
		known = append(known, n.net.Addr(e.i))
	}
	l.host = n.net.Light(p.i)
	c, err := client.New(context.Background(), client.Parts{
		Config: config.Default(), Home: p.Home, Genesis: n.Genesis, Key: p.Key, Owner: p.Key.Key(),
		Host: l.host, Entries: known, Store: p.Journal, Blobs: p.Blobs,
		Runtimes: map[string]runtime.Runtime{"wasm": p.Fake}, Access: n.access(p.Key.Key()),
		SlotEvery: slotEvery, NoAPI: true, Version: "test",
		Log: n.opts.Log.With("peer", "light"),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	l.Client, p.Node = c, c.Node()
	l.stop = p2ptest.Go(n.t, c.Serve)
}

// Stop ends the client's process gracefully.
func (l *Light) Stop() {
	l.stop()
	l.host.Close()
}
