package reputation

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// full is for verify/BENCHMARKS.md: more markets and more readers of each.
var full = flag.Bool("full", false, "simulate each attack in 20 markets through the eyes of 5 readers, and print the table's rows")

// attack is one that the malicious try beside their real jobs.
type attack struct {
	name   string
	do     func(b *bazaar)
	figure func(v *View, by sign.Key) float64 // nil: the AUC of all providers
	least  float64                            // of the mean, or the test fails
	most   float64                            // likewise; 0: any
}

var attacks = []attack{
	{name: "none", do: func(b *bazaar) { b.cheat(realJobs, 0.4) }, least: 0.99},
	{name: "wash trades, 200 × 0.01", do: washed(200, 0.01, own), least: 0.995},
	{name: "wash trades, 200 × 1 (1.2 × honest volume)", do: washed(200, 1, own), least: 0.995},
	{name: "ring of all, 1 sybil", do: washed(200, 5, ring(1)), least: 0.99},
	{name: "ring of all, 10 sybils", do: washed(200, 5, ring(10)), least: 0.98},
	{name: "ring of all, 100 sybils", do: washed(200, 5, ring(100)), least: 0.8},
	{name: "ring of all, 500 sybils", do: washed(200, 5, ring(500)), least: 0.8},
	{name: "bought buyers, 1 %", do: washed(200, 5, bought(honestBuyers/100)), least: 0.9},
	{name: "bought buyers, 5 %", do: washed(200, 5, bought(honestBuyers/20))},
	{name: "bought buyers, 20 %", do: washed(200, 5, bought(mostBought))},
	{name: "new key after each failure", do: func(b *bazaar) {
		b.cheat(1, 1) // what its present key has
		b.wash(200, 5, own)
	}, least: 0.995},
}

func washed(jobs int, tokens float64, of func(m, k int) sign.Key) func(*bazaar) {
	return func(b *bazaar) {
		b.cheat(realJobs, 0.4)
		b.wash(jobs, tokens, of)
	}
}

// ring shares n sybils among all attackers.
func ring(n int) func(m, k int) sign.Key {
	return func(m, k int) sign.Key { return sybil((7*m + k) % n) }
}

// bought are n honest buyers that sign whatever they are paid for.
func bought(n int) func(m, k int) sign.Key {
	return func(m, k int) sign.Key { return buyer((7*m + k) % n) }
}

func markets() (seeds, readers int) {
	if *full {
		return 20, 5
	}
	return 2, 2
}

func TestAttacks(t *testing.T) {
	t.Parallel()
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			if a.figure == nil {
				a.figure = told
			}
			seeds, readers := markets()
			got := simulate(t, seeds, readers, a.do, a.figure)
			if *full {
				fmt.Printf("| %s | %v |\n", a.name, got)
			}
			if m := got.mean(); m < a.least || a.most > 0 && m > a.most {
				t.Errorf("%v, want at least %v", got, a.least)
			}
		})
	}
}

// The target of this package: honest over malicious at six times the honest volume, in twenty markets.
func TestWashTradesOfSixTimesTheHonestVolume(t *testing.T) {
	t.Parallel()
	readers := 1
	if *full {
		_, readers = markets()
	}
	volume := 0.0
	got := simulate(t, 20, readers, func(b *bazaar) {
		washed(200, 5, own)(b)
		volume += 200 * 5 / (b.volume / honestProviders) / 20
	}, told)
	if *full {
		fmt.Printf("| wash trades, 200 × 5 (%.1f × honest volume) | %v |\n", volume, got)
	}
	if volume < 5.9 || got.mean() < 0.995 {
		t.Errorf("at %.1f times the honest volume: %v", volume, got)
	}
}

// A sleeper is as good as the honest until it cheats, and nobody can tell. This holds how soon one who is cheated does.
func TestSleepersAreFoundOutByThoseTheyCheat(t *testing.T) {
	t.Parallel()
	seeds, readers := markets()
	for times, least := range []float64{0, 0.9, 0.95, 0.95} {
		var got spread
		for seed := range seeds {
			b := newBazaar(uint64(seed))
			b.cheat(60, 0.99)
			for range readers {
				by := b.reader()
				facts := b.facts
				for m := range malicious {
					for k := range times {
						b.facts = append(b.facts, Fact{id(1<<30 + m*10 + k), Failed, Provider, attacker(m), by, b.amount(1), days * slotsPerDay})
					}
				}
				got = append(got, told(b.look(t, by), by))
				b.facts = facts
			}
		}
		if *full {
			fmt.Printf("| sleeper, 60 good jobs, then %d failures of 1 towards the reader | %v |\n", times, got)
		}
		if got.mean() < least {
			t.Errorf("after %d failures: %v", times, got)
		}
	}
}

// Rivals buy small jobs from ten of the honest through keys of their own, break them off and tell everybody. What they say of
// one changes nothing of it; the sybils' trades with the others dilute what those say, by next to nothing.
func TestBadmouthingChangesNextToNothing(t *testing.T) {
	t.Parallel()
	seeds, readers := markets()
	var others, victims spread
	for seed := range seeds {
		b := newBazaar(uint64(seed))
		b.cheat(realJobs, 0.4)
		for range readers {
			by := b.reader()
			facts := b.facts
			before := b.look(t, by)
			for victim := range 10 {
				for k := range 500 {
					b.facts = append(b.facts, lease(1<<30+victim*1000+k, provider(victim), sybil(k), b.amount(0.01), days*slotsPerDay)...)
					b.facts = append(b.facts, Fact{id(1<<30 + victim*1000 + k), Failed, Provider, provider(victim), sybil(k), b.amount(1000), days * slotsPerDay})
				}
			}
			after := b.look(t, by)
			was, is := scoresOf(before, honestProviders, provider), scoresOf(after, honestProviders, provider)
			for i := range was {
				if i < 10 {
					victims = append(victims, was[i]-is[i])
				}
				others = append(others, math.Abs(is[i]-was[i]))
			}
			b.facts = facts
		}
	}
	if *full {
		fmt.Printf("badmouthing: victims lose %.6f on average and %.6f at most; the scores of all honest change by %.6f on average\n",
			victims.mean(), slices.Max(victims), others.mean())
	}
	if slices.Max(victims) > 0.02 || others.mean() > 0.01 {
		t.Errorf("victims lose up to %v, scores change by %v", slices.Max(victims), others.mean())
	}
}

// A reader that has dealt with nobody begins at those with stake. What malicious stake there is brings them that share.
func TestAReaderWithoutAHistoryBeginsAtTheStake(t *testing.T) {
	t.Parallel()
	seeds, _ := markets()
	for _, share := range []float64{0, 0.1, 0.3} {
		var got spread
		for seed := range seeds {
			b := newBazaar(uint64(seed))
			washed(200, 5, own)(b)
			var st []Stake
			for i := range honestProviders {
				st = append(st, Stake{provider(i), 1 << 40})
			}
			for m := range malicious {
				if n := share / (1 - share) * honestProviders / malicious; n > 0 {
					st = append(st, Stake{attacker(m), market.Amount(n * (1 << 40))})
				}
			}
			v, err := NewView(marketParams, kin('r', 0), days*slotsPerDay, b.facts, st)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, told(v, kin('r', 0)))
		}
		if *full {
			fmt.Printf("| wash trades, 200 × 5, reader without a history, %.0f %% of the stake malicious | %v |\n", 100*share, got)
		}
		if got.mean() < 0.95 {
			t.Errorf("with %v of the stake: %v", share, got)
		}
	}
}
