package node

import (
	"errors"
	"testing"
	"time"

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
	o := &orders{domain: d}
	order := market.Order{
		Class: "cpu", Count: 1, UnitsPer: 1, Runtime: "wasm", Slots: 100, Ceiling: 1, FundsAccount: buyer.Key(),
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
		{"published by another", other.Key(), good, gossip.ErrReject},
		{"changed", buyer.Key(), flipped, gossip.ErrReject},
		{"of another network", buyer.Key(), seal(sign.Domain{Network: "other", Chain: d.Chain}, order), gossip.ErrReject},
		{"expired", buyer.Key(), seal(d, late), gossip.ErrIgnore},
		{"valid for too long", buyer.Key(), seal(d, far), gossip.ErrIgnore},
		{"empty", buyer.Key(), nil, gossip.ErrReject},
		{"noise", buyer.Key(), make([]byte, 300), gossip.ErrReject},
		{"good, again", buyer.Key(), good, market.ErrReplayed},
	} {
		id, err := p2p.PeerIDFromKey(c.from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.decode(id, c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
