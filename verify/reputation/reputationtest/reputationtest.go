// Package reputationtest makes markets for tests and simulations of reputation: honest providers that finish 95 to 99.9
// % of their jobs, honest buyers, and malicious providers that fail real jobs and forge other facts. A failed job
// leaves a receipt of the payments until then. It counts for its provider: only the buyer has a record of the failure.
package reputationtest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/reputation"
)

// Sizes of a market.
const (
	Providers  = 200 // honest
	Malicious  = 50
	Buyers     = 1000 // honest
	Jobs       = 20_000
	RealJobs   = 15  // of each malicious provider
	MostBought = 200 // honest buyers that may be bribed

	sybilsEach  = 10
	days        = 60
	slotsPerDay = 1000
	tokenUnits  = 100 // units of value in a token, as ParamsOf has it
)

// Now is the slot of all views of a market: its last.
const Now market.Slot = days * slotsPerDay

// Params are a market's.
var Params = reputation.Params{Unit: 1000, HalfLife: reputation.HalfLifeDays * slotsPerDay}

// Market is one market.
type Market struct {
	R      *rand.Rand
	Facts  []reputation.Fact
	Volume float64 // of the honest, in tokens

	n       int
	quality [Providers]float64
}

// key returns the key of peer i of a kind.
func key(kind byte, i int) sign.Key {
	var k sign.Key
	k[0] = kind
	binary.BigEndian.PutUint32(k[1:], uint32(i))
	return k
}

// Provider is honest provider i.
func Provider(i int) sign.Key { return key('p', i) }

// Buyer is honest buyer i, bought or not.
func Buyer(i int) sign.Key { return key('b', i) }

// Attacker is malicious provider i.
func Attacker(i int) sign.Key { return key('x', i) }

// Sybil is a key that an attacker made.
func Sybil(i int) sign.Key { return key('y', i) }

// Outsider is a reader without counterparties.
func Outsider() sign.Key { return key('r', 0) }

// New has the jobs of the honest.
func New(seed uint64) *Market {
	b := &Market{R: rand.New(rand.NewPCG(seed, 5))}
	for i := range b.quality {
		b.quality[i] = 0.95 + 0.049*b.R.Float64()
	}
	for range Jobs {
		p := int(Providers * math.Pow(b.R.Float64(), 1.5))
		v := b.value()
		b.Volume += v
		b.job(Provider(p), Buyer(b.R.IntN(Buyers)), v, b.R.Float64() < b.quality[p])
	}
	return b
}

// Cheat makes each malicious provider do a number of real jobs. A share of them succeeds.
func (b *Market) Cheat(jobs int, well float64) {
	for m := range Malicious {
		for range jobs {
			b.job(Attacker(m), Buyer(b.R.IntN(Buyers)), b.value(), b.R.Float64() < well)
		}
	}
}

// value of a job, in tokens: median 1, mean 1.65.
func (b *Market) value() float64 { return math.Exp(b.R.NormFloat64()) }

// job is one lease. A failed one ends at a random point.
func (b *Market) job(p, by sign.Key, tokens float64, well bool) {
	at := market.Slot(b.R.IntN(days * slotsPerDay))
	paid := tokens
	if !well {
		paid *= b.R.Float64()
		b.Fail(b.n, p, by, tokens, at)
	}
	b.Keep(b.n, p, by, paid, at)
	b.n++
}

// Keep adds the facts of lease n, which both kept.
func (b *Market) Keep(n int, p, by sign.Key, tokens float64, at market.Slot) {
	kept := reputation.Fact{ID: id(n), Kind: reputation.Kept, Value: Amount(tokens), At: at}
	provider, buyer := kept, kept
	provider.Role, provider.Subject, provider.Rater = reputation.Provider, p, by
	buyer.Role, buyer.Subject, buyer.Rater = reputation.Buyer, by, p
	b.Facts = append(b.Facts, provider, buyer)
}

// Fail adds that a provider broke lease n, by its buyer's word.
func (b *Market) Fail(n int, p, by sign.Key, tokens float64, at market.Slot) {
	b.Facts = append(b.Facts, reputation.Fact{ID: id(n), Kind: reputation.Failed, Role: reputation.Provider, Subject: p,
		Rater: by, Value: Amount(tokens), At: at})
}

func id(n int) sign.Hash {
	var h sign.Hash
	binary.BigEndian.PutUint32(h[:], uint32(n))
	return h
}

// Amount converts tokens to an amount.
func Amount(tokens float64) market.Amount {
	return market.Amount(tokens * tokenUnits * float64(Params.Unit))
}

// Wash makes each attacker sell jobs to the buyers from of.
func (b *Market) Wash(jobs int, tokens float64, of func(m, k int) sign.Key) {
	for m := range Malicious {
		for k := range jobs {
			b.job(Attacker(m), of(m, k), tokens, true)
		}
	}
}

// Own are an attacker's own sybils.
func Own(m, k int) sign.Key { return Sybil(m*sybilsEach + k%sybilsEach) }

// Ring shares n sybils among all attackers.
func Ring(n int) func(m, k int) sign.Key {
	return func(m, k int) sign.Key { return Sybil((7*m + k) % n) }
}

// Bought returns n bribed honest buyers, which sign false facts.
func Bought(n int) func(m, k int) sign.Key {
	return func(m, k int) sign.Key { return Buyer((7*m + k) % n) }
}

// Reader returns an honest buyer outside of the bribed ones.
func (b *Market) Reader() sign.Key { return Buyer(MostBought + b.R.IntN(Buyers-MostBought)) }

// Look is one peer's view of the market.
func (b *Market) Look(by sign.Key, stakes []reputation.Stake) (*reputation.View, error) {
	return reputation.NewView(Params, by, Now, b.Facts, stakes)
}

// Read returns the market's facts of a reader that requests the buyers' anchored receipts. They are its own, and of
// each buyer that shows them the newest `each` leases, in all at most the newest `most`.
func (b *Market) Read(by sign.Key, shows func(buyer sign.Key) bool, each, most int) []reputation.Fact {
	var out, others []reputation.Fact // of others one of each two
	for _, f := range b.Facts {
		switch {
		case f.Subject == by || f.Rater == by:
			out = append(out, f)
		case f.Kind == reputation.Kept && f.Role == reputation.Provider && shows(f.Rater):
			others = append(others, f)
		}
	}
	slices.SortFunc(others, func(x, y reputation.Fact) int {
		return cmp.Or(cmp.Compare(y.At, x.At), bytes.Compare(x.ID[:], y.ID[:]))
	})
	shown := map[sign.Key]int{}
	for _, f := range others {
		if shown[f.Rater]++; shown[f.Rater] > each || most == 0 {
			continue
		}
		most--
		buyer := f
		buyer.Role, buyer.Subject, buyer.Rater = reputation.Buyer, f.Rater, f.Subject
		out = append(out, f, buyer)
	}
	return out
}

// Scores returns the scores of the first n providers of a kind, from 0 to 1.
func Scores(v *reputation.View, n int, name func(int) sign.Key) []float64 {
	keys := make([]sign.Key, n)
	for i := range keys {
		keys[i] = name(i)
	}
	out := make([]float64, n)
	for i, s := range v.Scores(reputation.Provider, keys...) {
		out[i] = float64(s.Millionths) / 1e6
	}
	return out
}

// AUC is the probability that a value of good exceeds one of bad; a tie counts half.
func AUC(good, bad []float64) float64 {
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

// Told returns the AUC of the honest over the malicious in a view.
func Told(v *reputation.View) float64 {
	return AUC(Scores(v, Providers, Provider), Scores(v, Malicious, Attacker))
}
