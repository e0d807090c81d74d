package exchange

import (
	"errors"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/gossip"
)

// TestOrdersDecode is the topic's validator: what is passed on, what is dropped,
// and what costs its sender.
func TestOrdersDecode(t *testing.T) {
	t.Parallel()
	d := sign.Domain{Network: "test", Chain: sign.Sum([]byte("chain"))}
	buyer, other := sign.NewPrivate([32]byte{1}), sign.NewPrivate([32]byte{2})
	o := newOrders(nil, d, 1, nil, nil)
	order := market.Order{
		Class: "cpu", Count: 1, UnitsPer: 1, Runtime: "wasm", Slots: 100, ReplyKey: market.ReplyKey{1}, Draw: 1,
		Expires: time.Now().Add(time.Minute),
	}
	seal := func(d sign.Domain, o market.Order) []byte {
		t.Helper()
		b, err := o.Encode(d, buyer)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := seal(d, order)
	late := order
	late.Expires = time.Now().Add(-time.Second)
	stale := order
	stale.Expires = time.Now().Add(-2 * staleOrder)
	ahead := order
	ahead.Expires = time.Now().Add(market.MaxOrderValidity + market.MaxClockSkew + 10*time.Second)
	far := order
	far.Expires = time.Now().Add(100 * time.Hour)
	flipped := append([]byte(nil), good...)
	flipped[len(flipped)-1] ^= 1
	for _, c := range []struct {
		name string
		from sign.Key
		data []byte
		want error
	}{
		{"good", buyer.Key(), good, nil},
		{"published again, by another", other.Key(), good, market.ErrReplayed},
		{"changed", buyer.Key(), flipped, gossip.ErrReject},
		{"of another network", buyer.Key(), seal(sign.Domain{Network: "other", Chain: d.Chain}, order), gossip.ErrReject},
		{"expired", buyer.Key(), seal(d, late), gossip.ErrIgnore},
		{"expired long ago", buyer.Key(), seal(d, stale), gossip.ErrReject},
		{"valid for a little too long", buyer.Key(), seal(d, ahead), gossip.ErrIgnore},
		{"valid for too long", buyer.Key(), seal(d, far), gossip.ErrReject},
		{"empty", buyer.Key(), nil, gossip.ErrReject},
		{"noise", buyer.Key(), make([]byte, 300), gossip.ErrReject},
		{"good, again", buyer.Key(), good, market.ErrReplayed},
	} {
		id, err := p2p.PeerIDFromKey(c.from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.decode(id, id, c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestOrdersRelayed: an order may be published by another peer than its buyer,
// within limits for that peer and for the buyer; copies count against nobody.
func TestOrdersRelayed(t *testing.T) {
	t.Parallel()
	d := sign.Domain{Network: "test", Chain: sign.Sum([]byte("chain"))}
	peerOf := func(k sign.Key) peer.ID {
		id, err := p2p.PeerIDFromKey(k)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	entry, second := peerOf(sign.NewPrivate([32]byte{100}).Key()), peerOf(sign.NewPrivate([32]byte{101}).Key())
	order := func(buyer sign.Private, i int) []byte {
		b, err := market.Order{
			Class: "cpu", Count: 1, UnitsPer: 1, Runtime: "wasm", Slots: uint64(i + 1), ReplyKey: market.ReplyKey{1}, Draw: 1,
			Expires: time.Now().Add(time.Minute),
		}.Encode(d, buyer)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	count := func(o *orders, from peer.ID, orders [][]byte) (n int) {
		for _, b := range orders {
			_, err := o.decode(from, from, b)
			if err == nil {
				n++
			} else if !errors.Is(err, gossip.ErrIgnore) {
				t.Errorf("an order too many is not ignored: %v", err)
			}
		}
		return n
	}
	// slack is for buckets that fill again while the test runs.
	const slack = 30
	one := sign.NewPrivate([32]byte{1})
	var ofOne, ofMany [][]byte
	for i := range 4 * relayedBuyerBurst {
		ofOne = append(ofOne, order(one, i))
	}
	for i := range 4 * relayedEntryBurst {
		ofMany = append(ofMany, order(sign.NewPrivate([32]byte{2, byte(i), byte(i >> 8)}), i))
	}
	o := newOrders(nil, d, 1, nil, nil)
	if n := count(o, entry, ofOne); n < relayedBuyerBurst || n > relayedBuyerBurst+slack {
		t.Errorf("%d orders of one buyer were passed on, want about %d", n, relayedBuyerBurst)
	}
	if n := count(o, peerOf(one.Key()), ofOne); n < 2*relayedBuyerBurst {
		t.Errorf("%d of the rest were passed on when the buyer's own peer published them", n)
	}
	o = newOrders(nil, d, 1, nil, nil)
	if n := count(o, entry, ofMany); n < relayedEntryBurst || n > relayedEntryBurst+slack {
		t.Errorf("%d orders published by one peer were passed on, want about %d", n, relayedEntryBurst)
	}
	o = newOrders(nil, d, 1, nil, nil)
	for range 10 * relayedEntryBurst {
		count(o, entry, ofMany[:1])
	}
	if n := count(o, entry, ofMany[1:relayedEntryBurst]); n != relayedEntryBurst-1 {
		t.Errorf("copies count: %d of %d others were passed on", n, relayedEntryBurst-1)
	}
	if n := count(o, second, ofMany[:2*relayedEntryBurst]); n < relayedEntryBurst {
		t.Errorf("one entry's orders count against another: %d were passed on", n)
	}
}
