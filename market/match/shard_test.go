package match_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
)

// crowdOf is n keys by their shards.
func crowdOf(n int) (all []sign.Key, in [market.Shards + 1][]sign.Key) {
	for i := range n {
		k := key(i)
		all, in[match.ShardOf(k)] = append(all, k), append(in[match.ShardOf(k)], k)
	}
	return all, in
}

// Every provider is in one shard, and no shard has far more than others.
func TestShards(t *testing.T) {
	t.Parallel()
	_, in := crowdOf(16_000)
	if len(in[0]) > 0 {
		t.Errorf("%d providers are in no shard", len(in[0]))
	}
	for s, keys := range in[1:] {
		if len(keys) < 850 || len(keys) > 1150 {
			t.Errorf("shard %d has %d of 16,000 providers", s+1, len(keys))
		}
	}
}

// Whatever the population and the order, what it brings is about what it wants, to a shard or not; where it may go to a shard, the
// shard has more than it wants, and only the shard's answer.
func TestShardBringsWhatIsWanted(t *testing.T) {
	t.Parallel()
	all, _ := crowdOf(100_000)
	sharded := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		n := int(float64(20) * math.Pow(5000, rapid.Float64Range(0, 1).Draw(t, "of 20 to 100,000")))
		leases := rapid.Uint32Range(1, 100).Draw(t, "leases")
		p := match.Guess(n)
		o := market.Order{Count: leases, Draw: p.Draw(leases, 0)}
		o.ID = numbered(rapid.Uint64().Draw(t, "order"))
		want, fits := max(48, 3*int(leases)), p.FitsShard(leases)
		if fits != (n >= 16*3*want) {
			t.Fatalf("%d providers, %d wanted: a shard is enough: %v", n, want, fits)
		}
		if fits {
			o.Shard = rapid.Uint32Range(1, market.Shards).Draw(t, "shard")
			if o.Draw >= 1<<28 {
				t.Fatalf("draw %d does not fit a shard", o.Draw)
			}
		}
		heard, quotes := 0, 0
		for _, k := range all[:n] {
			if fits && match.ShardOf(k) == o.Shard {
				heard++
			}
			if match.Drawn(o, k) {
				quotes++
				if fits && match.ShardOf(k) != o.Shard {
					t.Fatal("a provider of another shard quotes")
				}
			}
		}
		sharded[fits]++
		if fits && heard < 2*want {
			t.Fatalf("%d hear the order, %d quotes are wanted", heard, want)
		}
		if expected := min(want, n); quotes < expected/3 || quotes > 2*expected {
			t.Fatalf("%d of %d providers quote for %d leases in shard %d, want about %d", quotes, n, leases, o.Shard, expected)
		}
		if quotes > match.MaxQuotes(leases)*2 {
			t.Fatalf("%d quotes, %d are kept", quotes, match.MaxQuotes(leases))
		}
	})
	if sharded[true] == 0 || sharded[false] == 0 {
		t.Errorf("orders to a shard and to all: %v", sharded)
	}
}

// The estimate is the same whether orders go to a shard or to all.
func TestLearnFromShards(t *testing.T) {
	t.Parallel()
	const n = 10_000
	all, _ := crowdOf(n)
	for _, first := range []int{n, 4 * n, n / 4, 0} {
		p, sum := match.Guess(first), 0
		for i := range uint64(30) {
			o := market.Order{Count: 1, Draw: p.Draw(1, 0)}
			if o.ID = numbered(i); p.FitsShard(1) {
				o.Shard = 1 + uint32(i*5%market.Shards)
			}
			quotes := 0
			for _, k := range all {
				if match.Drawn(o, k) {
					quotes++
				}
			}
			if i >= 10 {
				sum += quotes
				if o.Shard == 0 {
					t.Errorf("first taken for %d: order %d of %d providers goes to all", first, i, p.Size())
				}
			}
			p = p.Learn(o.Draw, min(quotes, match.MaxQuotes(1)), match.MaxQuotes(1))
		}
		if mean := float64(sum) / 20; mean < 36 || mean > 64 || p.Size() < n/2 || p.Size() > 2*n {
			t.Errorf("first taken for %d: orders bring %.1f quotes, the estimate is %d", first, mean, p.Size())
		}
	}
}

// mesh counts the copies of a message that n members of a topic get from each other, each with degree neighbours at random; the
// publisher is one of them.
func mesh(r *rand.Rand, n, degree int) (copies int) {
	links := make([][]int, n)
	for i := range n {
		for len(links[i]) < degree {
			j := r.IntN(n)
			if j == i || len(links[j]) >= degree+2 {
				if len(links[i]) >= degree/2 {
					break
				}
				continue
			}
			links[i], links[j] = append(links[i], j), append(links[j], i)
		}
	}
	from, queue := make([]int, n), []int{0}
	for i := range from {
		from[i] = -1
	}
	from[0] = 0
	for ; len(queue) > 0; queue = queue[1:] {
		for _, j := range links[queue[0]] {
			if queue[0] != 0 && j == from[queue[0]] {
				continue // not back to whom it came from
			}
			copies++
			if from[j] < 0 {
				from[j], queue = queue[0], append(queue, j)
			}
		}
	}
	return copies
}

// TestShardTraffic: what an order costs 10,000 providers of a class is a sixteenth.
func TestShardTraffic(t *testing.T) {
	t.Parallel()
	const n, degree = 10_000, 6
	r := rand.New(rand.NewChaCha8([32]byte{1}))
	_, in := crowdOf(n)
	all := float64(mesh(r, n, degree)) / n
	part := 0
	for _, keys := range in[1:] {
		part += mesh(r, len(keys), degree)
	}
	one := float64(part) / market.Shards / n
	t.Logf("copies of an order for each provider of the class: %.2f to all, %.2f to a shard", all, one)
	if all < 12*one || all > 20*one {
		t.Errorf("a shard costs %.2f of %.2f copies for each provider", one, all)
	}
}
