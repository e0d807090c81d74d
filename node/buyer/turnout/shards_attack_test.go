package turnout

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
)

// buys has a buyer order until an order brings a quote that is good, as it does where it was brought too few, and returns how many
// orders it took. quotes are the good ones and the junk that an order brings.
func (s *Turnout) buys(t *testing.T, number *uint64, quotes func(o market.Order) (good, junk int)) (orders int) {
	t.Helper()
	for asked := range 6 {
		*number++
		o := market.Order{Class: "gpu", Count: 1}
		binary.BigEndian.PutUint64(o.ID[:], *number)
		var sharded bool
		if o.Draw, sharded = s.Draw(o.Class, o.Count, asked); sharded {
			if asked > 0 {
				t.Fatal("an order that is asked again goes to one shard")
			}
			o.Shard = 1 + uint32(*number%market.Shards)
		}
		s.Ordered(o, time.Now())
		good, junk := quotes(o)
		for range min(good+junk, match.MaxQuotes(1)) {
			s.Quoted(o.ID, 1)
		}
		time.Sleep(countFor + time.Second)
		if good > 0 {
			return asked + 1
		}
	}
	t.Fatal("six orders found nobody honest")
	return 0
}

// TestAttackShard: keys are free, and an attacker makes as many of one shard as it likes, or is all that a buyer has for neighbours in
// every shard's topic. Whoever keeps an order from the honest does not keep the next one from them, and delays one order of 17.
func TestAttackShard(t *testing.T) {
	t.Parallel()
	const honest, orders = 3000, 170
	in := func(o market.Order, n int, kind byte) (drawn int) {
		for i := range n {
			k := sign.Key(sign.Sum([]byte{kind, byte(i >> 8), byte(i)}))
			if match.Drawn(o, k) {
				drawn++
			}
		}
		return drawn
	}
	for name, quotes := range map[string]func(o market.Order) (good, junk int){
		// Ten thousand quotes of one shard's keys crowd out all others of their order.
		"keys of one shard": func(o market.Order) (good, junk int) {
			if o.Shard == 5 {
				return 0, int(10_000 * 16 * float64(o.Draw) / (1 << 32))
			}
			return in(o, honest, 'h'), 0
		},
		"silence in all shards": func(o market.Order) (good, junk int) {
			if o.Shard != 0 {
				return 0, 0
			}
			return in(o, honest, 'h'), 0
		},
		"junk in all shards": func(o market.Order) (good, junk int) {
			if o.Shard != 0 {
				return 0, 1000
			}
			return in(o, honest, 'h'), 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := New(func(market.Class) int { return honest })
				var number uint64
				delayed := 0
				for range orders {
					took := s.buys(t, &number, quotes)
					if took > 2 {
						t.Errorf("an order is asked %d times", took)
					}
					if took > 1 {
						delayed++
					}
				}
				if delayed > orders/wideOrders {
					t.Errorf("%d of %d orders are delayed", delayed, orders)
				}
			})
		})
	}
}

// Orders of a small class, and of one that is not known, go to all of it.
func TestSmallClassHasNoShards(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		providers int
		want      bool
	}{{0, false}, {20, false}, {2000, false}, {2304, true}, {10_000, true}} {
		s := New(func(market.Class) int { return c.providers })
		if _, sharded := s.Draw("gpu", 1, 0); sharded != c.want {
			t.Errorf("an order of a class of %d goes to one shard: %v", c.providers, sharded)
		}
	}
}
