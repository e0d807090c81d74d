package reputation

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// The market of the simulations: honest providers that finish 95 to 99.9 % of their jobs, honest buyers, and malicious
// providers that fail six of ten real jobs and make up what else they can. A job that fails leaves a receipt of what was
// paid until then, which counts for its provider: nobody but its buyer knows how it ended.
const (
	honestProviders = 200
	malicious       = 50
	honestBuyers    = 1000
	honestJobs      = 20_000
	realJobs        = 15 // of each malicious provider
	sybilsEach      = 10
	mostBought      = 200 // honest buyers that may be bought
	days            = 60
	slotsPerDay     = 1000
	tokenUnits      = 100 // units of value in a token, as ParamsOf has it
)

var marketParams = Params{Unit: 1000, HalfLife: HalfLifeDays * slotsPerDay}

// bazaar is one market.
type bazaar struct {
	rng     *rand.Rand
	facts   []Fact
	n       int
	quality [honestProviders]float64
	volume  float64 // of the honest, in tokens
}

// kin makes keys of one kind.
func kin(kind byte, i int) sign.Key {
	var k sign.Key
	k[0] = kind
	binary.BigEndian.PutUint32(k[1:], uint32(i))
	return k
}

func provider(i int) sign.Key { return kin('p', i) }
func buyer(i int) sign.Key    { return kin('b', i) }
func attacker(i int) sign.Key { return kin('x', i) }
func sybil(i int) sign.Key    { return kin('y', i) }

// newBazaar has the jobs of the honest, and the real jobs of the malicious.
func newBazaar(seed uint64) *bazaar {
	b := &bazaar{rng: rand.New(rand.NewPCG(seed, 5))}
	for i := range b.quality {
		b.quality[i] = 0.95 + 0.049*b.rng.Float64()
	}
	for range honestJobs {
		p := int(honestProviders * math.Pow(b.rng.Float64(), 1.5))
		v := b.value()
		b.volume += v
		b.job(provider(p), buyer(b.rng.IntN(honestBuyers)), v, b.rng.Float64() < b.quality[p])
	}
	return b
}

// cheat lets each of the malicious do so many real jobs, of which a share ends well.
func (b *bazaar) cheat(jobs int, well float64) {
	for m := range malicious {
		for range jobs {
			b.job(attacker(m), buyer(b.rng.IntN(honestBuyers)), b.value(), b.rng.Float64() < well)
		}
	}
}

// value of a job, in tokens: median 1, mean 1.65.
func (b *bazaar) value() float64 { return math.Exp(b.rng.NormFloat64()) }

// job is one lease; one that fails breaks off somewhere.
func (b *bazaar) job(p, by sign.Key, tokens float64, well bool) {
	at := market.Slot(b.rng.IntN(days * slotsPerDay))
	paid := tokens
	if !well {
		paid *= b.rng.Float64()
		b.facts = append(b.facts, Fact{id(b.n), Failed, Provider, p, by, b.amount(tokens), at})
	}
	b.facts = append(b.facts, lease(b.n, p, by, b.amount(paid), at)...)
	b.n++
}

func (b *bazaar) amount(tokens float64) market.Amount {
	return market.Amount(tokens * tokenUnits * float64(marketParams.Unit))
}

// wash lets each attacker sell itself so many jobs through its sybils; of gives their numbers.
func (b *bazaar) wash(jobs int, tokens float64, of func(m, k int) sign.Key) {
	for m := range malicious {
		for k := range jobs {
			b.job(attacker(m), of(m, k), tokens, true)
		}
	}
}

// own are an attacker's own sybils.
func own(m, k int) sign.Key { return sybil(m*sybilsEach + k%sybilsEach) }

// reader is an honest buyer that nobody bought.
func (b *bazaar) reader() sign.Key { return buyer(mostBought + b.rng.IntN(honestBuyers-mostBought)) }

func (b *bazaar) look(t testing.TB, by sign.Key) *View {
	t.Helper()
	v, err := NewView(marketParams, by, days*slotsPerDay, b.facts, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// scoresOf are those of n peers.
func scoresOf(v *View, n int, name func(int) sign.Key) []float64 {
	keys := make([]sign.Key, n)
	for i := range keys {
		keys[i] = name(i)
	}
	out := make([]float64, n)
	for i, s := range v.Scores(Provider, keys...) {
		out[i] = float64(s.Millionths) / one
	}
	return out
}

// auc is how likely one of good has more than one of bad; a tie counts half.
func auc(good, bad []float64) float64 {
	n := 0.0
	for _, g := range good {
		for _, b := range bad {
			if g > b {
				n++
			} else if g == b {
				n += 0.5
			}
		}
	}
	return n / float64(len(good)*len(bad))
}

// spread are figures over seeds and readers.
type spread []float64

func (s spread) String() string {
	sorted := slices.Sorted(slices.Values(s))
	return fmt.Sprintf("%.4f | %.4f | %.4f", s.mean(), sorted[len(s)/20], sorted[0])
}

func (s spread) mean() float64 {
	sum := 0.0
	for _, x := range s {
		sum += x
	}
	return sum / float64(len(s))
}

// simulate looks at a market of each seed through the eyes of some of its honest buyers.
func simulate(t testing.TB, seeds, readers int, attack func(b *bazaar), figure func(v *View, by sign.Key) float64) spread {
	t.Helper()
	var out spread
	for seed := range seeds {
		b := newBazaar(uint64(seed))
		attack(b)
		for range readers {
			by := b.reader()
			out = append(out, figure(b.look(t, by), by))
		}
	}
	return out
}

// told is the AUC over all providers.
func told(v *View, _ sign.Key) float64 {
	return auc(scoresOf(v, honestProviders, provider), scoresOf(v, malicious, attacker))
}
