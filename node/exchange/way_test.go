package exchange

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// An order goes from peer to peer, and each sends its quotes back to the one before it: the peer that published it for
// a light client to that.
func TestOrdersKnowTheirWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 4
		net := p2ptest.NewNet(t, n, 20*time.Millisecond)
		d := sign.Domain{Network: p2ptest.Network, Chain: sign.Sum([]byte("chain"))}
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		var all []*orders
		for _, h := range net.Hosts {
			g, err := gossip.New(ctx, h, gossip.Config{Network: p2ptest.Network, Logger: p2ptest.Quiet()})
			if err != nil {
				t.Fatal(err)
			}
			o := newOrders(g, d, 1, []market.Class{"cpu"}, func(context.Context, market.Class, int) ([]peer.AddrInfo, error) { return nil, nil })
			o.ctx = ctx
			t.Cleanup(o.close)
			if err := o.joinSold(); err != nil {
				t.Fatal(err)
			}
			all = append(all, o)
		}
		for i := range n - 1 {
			if err := net.Hosts[i].Connect(ctx, net.Addr(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		client, err := market.Order{
			Class: "cpu", Count: 3, UnitsPer: 1, Runtime: "wasm", Slots: 100, ReplyKey: market.ReplyKey{1}, Draw: 1, Expires: time.Now().Add(time.Minute),
		}.Encode(d, sign.NewPrivate([32]byte{200}))
		if err != nil {
			t.Fatal(err)
		}
		o, err := market.DecodeOrder(d, client, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if heard, err := all[0].publishFor(ctx, "client", o, client); err != nil || heard != 1 {
			t.Fatalf("%d heard it, %v", heard, err)
		}
		time.Sleep(5 * time.Second)
		for i, to := range []peer.ID{"client", net.Addr(0).ID, net.Addr(1).ID, net.Addr(2).ID} {
			if w, ok := all[i].way(o.ID); !ok || w != (replies.Way{To: to, Leases: 3}) {
				t.Errorf("peer %d sends quotes to %s, %v, want %s", i, w.To, ok, to)
			}
		}
		if len(all[0].handed.m) > 0 {
			t.Error("an order that was published is still kept as one to publish")
		}
	})
}
