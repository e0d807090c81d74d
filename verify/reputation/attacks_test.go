package reputation_test

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/reputation"
	world "github.com/starling-network/starling/verify/reputation/reputationtest"
)

// full is for verify/BENCHMARKS.md: more markets and more readers of each.
var full = flag.Bool("full", false, "simulate each attack in 20 markets through the eyes of 5 readers, and print the table's rows")

// attack is one that the malicious try beside their real jobs.
type attack struct {
	name string
	do   func(b *world.Market)

	least float64 // of the mean, or the test fails
	most  float64 // likewise; 0: any
}

var attacks = []attack{
	{name: "none", do: func(b *world.Market) { b.Cheat(world.RealJobs, 0.4) }, least: 0.99},
	{name: "wash trades, 200 × 0.01", do: washed(200, 0.01, world.Own), least: 0.995},
	{name: "wash trades, 200 × 1 (1.2 × honest volume)", do: washed(200, 1, world.Own), least: 0.995},
	{name: "ring of all, 1 sybil", do: washed(200, 5, world.Ring(1)), least: 0.99},
	{name: "ring of all, 10 sybils", do: washed(200, 5, world.Ring(10)), least: 0.98},
	{name: "ring of all, 100 sybils", do: washed(200, 5, world.Ring(100)), least: 0.8},
	{name: "ring of all, 500 sybils", do: washed(200, 5, world.Ring(500)), least: 0.8},
	{name: "bought buyers, 1 %", do: washed(200, 5, world.Bought(world.Buyers/100)), least: 0.9},
	{name: "bought buyers, 5 %", do: washed(200, 5, world.Bought(world.Buyers/20))},
	{name: "bought buyers, 20 %", do: washed(200, 5, world.Bought(world.MostBought))},
	{name: "new key after each failure", do: func(b *world.Market) {
		b.Cheat(1, 1) // what its present key has
		b.Wash(200, 5, world.Own)
	}, least: 0.995},
}

func washed(jobs int, tokens float64, of func(m, k int) sign.Key) func(*world.Market) {
	return func(b *world.Market) {
		b.Cheat(world.RealJobs, 0.4)
		b.Wash(jobs, tokens, of)
	}
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

func look(t testing.TB, b *world.Market, by sign.Key) *reputation.View {
	t.Helper()
	v, err := b.Look(by, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// simulate is the AUC of all providers in a market of each seed, through the eyes of some of its honest buyers.
func simulate(t testing.TB, seeds, readers int, attack func(b *world.Market)) spread {
	t.Helper()
	var out spread
	for seed := range seeds {
		b := world.New(uint64(seed))
		attack(b)
		for range readers {
			out = append(out, world.Told(look(t, b, b.Reader())))
		}
	}
	return out
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
			seeds, readers := markets()
			got := simulate(t, seeds, readers, a.do)
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
	got := simulate(t, 20, readers, func(b *world.Market) {
		washed(200, 5, world.Own)(b)
		volume += 200 * 5 / (b.Volume / world.Providers) / 20
	})
	if *full {
		fmt.Printf("| wash trades, 200 × 5 (%.1f × honest volume) | %v |\n", volume, got)
	}
	if volume < 5.9 || got.mean() < 0.995 {
		t.Errorf("at %.1f times the honest volume: %v", volume, got)
	}
}

// The same with what a reader has that asks the buyers what they anchored (node/reputation): the newest leases of each, in all no more than
// fit, while four in ten of the honest are never there and all sybils always are.
func TestWashTradesAsFactsAreRead(t *testing.T) {
	t.Parallel()
	const each, most = 256, 26_000
	read := func(seeds int, of func(m, k int) sign.Key) (got spread) {
		for seed := range seeds {
			b := world.New(uint64(seed))
			washed(200, 5, of)(b)
			by := b.Reader()
			away := map[sign.Key]bool{}
			for i := range world.Buyers {
				away[world.Buyer(i)] = b.R.IntN(10) < 4 && i >= world.MostBought
			}
			v, err := reputation.NewView(world.Params, by, world.Now, b.Read(by, func(k sign.Key) bool { return !away[k] }, each, most), nil)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, world.Told(v))
		}
		return got
	}
	seeds := 8
	if *full {
		seeds = 20
		fmt.Printf("| as read, bought buyers, 1 %% | %v |\n", read(seeds, world.Bought(world.Buyers/100)))
		fmt.Printf("| as read, bought buyers, 20 %% | %v |\n", read(seeds, world.Bought(world.MostBought)))
	}
	got := read(seeds, world.Own)
	if *full {
		fmt.Printf("| as read, wash trades, 200 × 5 | %v |\n", got)
	}
	if got.mean() < 0.995 {
		t.Errorf("%v", got)
	}
}

// A sleeper is as good as the honest until it cheats, and nobody can tell. This holds how soon one who is cheated does.
func TestSleepersAreFoundOutByThoseTheyCheat(t *testing.T) {
	t.Parallel()
	seeds, readers := markets()
	for times, least := range []float64{0, 0.9, 0.95, 0.95} {
		var got spread
		for seed := range seeds {
			b := world.New(uint64(seed))
			b.Cheat(60, 0.99)
			for range readers {
				by := b.Reader()
				facts := b.Facts
				for m := range world.Malicious {
					for k := range times {
						b.Fail(1<<30+m*10+k, world.Attacker(m), by, 1, world.Now)
					}
				}
				got = append(got, world.Told(look(t, b, by)))
				b.Facts = facts
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

// Rivals buy small jobs from ten of the honest through keys of their world.Own, break them off and tell everybody. What they say of
// one changes nothing of it; the sybils' trades with the others dilute what those say, by next to nothing.
func TestBadmouthingChangesNextToNothing(t *testing.T) {
	t.Parallel()
	seeds, readers := markets()
	var others, victims spread
	for seed := range seeds {
		b := world.New(uint64(seed))
		b.Cheat(world.RealJobs, 0.4)
		for range readers {
			by := b.Reader()
			facts := b.Facts
			before := look(t, b, by)
			for victim := range 10 {
				for k := range 500 {
					b.Keep(1<<30+victim*1000+k, world.Provider(victim), world.Sybil(k), 0.01, world.Now)
					b.Fail(1<<30+victim*1000+k, world.Provider(victim), world.Sybil(k), 1000, world.Now)
				}
			}
			after := look(t, b, by)
			was, is := world.Scores(before, world.Providers, world.Provider), world.Scores(after, world.Providers, world.Provider)
			for i := range was {
				if i < 10 {
					victims = append(victims, was[i]-is[i])
				}
				others = append(others, math.Abs(is[i]-was[i]))
			}
			b.Facts = facts
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
			b := world.New(uint64(seed))
			washed(200, 5, world.Own)(b)
			var st []reputation.Stake
			for i := range world.Providers {
				st = append(st, reputation.Stake{Peer: world.Provider(i), Amount: 1 << 40})
			}
			for m := range world.Malicious {
				if n := share / (1 - share) * world.Providers / world.Malicious; n > 0 {
					st = append(st, reputation.Stake{Peer: world.Attacker(m), Amount: market.Amount(n * (1 << 40))})
				}
			}
			v, err := b.Look(world.Outsider(), st)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, world.Told(v))
		}
		if *full {
			fmt.Printf("| wash trades, 200 × 5, reader without a history, %.0f %% of the stake malicious | %v |\n", 100*share, got)
		}
		if got.mean() < 0.95 {
			t.Errorf("with %v of the stake: %v", share, got)
		}
	}
}
