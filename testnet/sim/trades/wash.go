package trades

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/reputation"
	bazaar "github.com/starling-network/starling/verify/reputation/reputationtest"
)

// Trades of a market's malicious peers with each other: six times an honest provider's turnover.
const (
	// MinAUC is the target for a buyer's separation of honest and malicious providers.
	MinAUC = 0.995

	washTrades = 200
	washTokens = 5
	washGain   = bazaar.Providers / 100 // places among the honest: a hundredth of them is negligible
)

// washes simulates enough markets for the adversaries, each of Malicious among Providers honest ones and Buyers. In
// each, an independent honest buyer ranks the providers before the wash trades and after them.
func washes(o play.Options) (play.Line, error) {
	var line play.Line
	var auc, volume float64
	markets := max(o.Adversaries/bazaar.Malicious, 1)
	for seed := range markets {
		b := bazaar.New(o.Seed<<16 + uint64(seed))
		b.Cheat(bazaar.RealJobs, 0.4)
		by := b.Reader()
		before, err := b.Look(by, nil)
		if err != nil {
			return line, err
		}
		was := places(before)
		b.Wash(washTrades, washTokens, bazaar.Own)
		after, err := b.Look(by, nil)
		if err != nil {
			return line, err
		}
		is := places(after)
		for i := range is {
			if line.Peers++; is[i] <= was[i]+washGain {
				line.Caught++
			}
		}
		auc += bazaar.Told(after) / float64(markets)
		volume += washTrades * washTokens / (b.Volume / bazaar.Providers) / float64(markets)
	}
	line.Audits = line.Peers
	line.Caught /= float64(line.Peers)
	line.First = line.Caught
	line.Figures = []play.Figure{{
		What: fmt.Sprintf("AUC of honest over malicious providers, wash trades of %.1f times the honest volume",
			volume), Value: auc, Bound: MinAUC, Least: true,
		Of: fmt.Sprintf("%d markets of %d honest peers", markets, bazaar.Providers+bazaar.Buyers),
	}}
	return line, nil
}

// places returns for each malicious provider the number of honest ones below it.
func places(v *reputation.View) []int {
	honest := bazaar.Scores(v, bazaar.Providers, bazaar.Provider)
	slices.Sort(honest)
	out := make([]int, bazaar.Malicious)
	for i, s := range bazaar.Scores(v, bazaar.Malicious, bazaar.Attacker) {
		out[i], _ = slices.BinarySearch(honest, s)
	}
	return out
}

// A provider that fails real jobs and trades with itself for reputation. It counts as caught if it gained nothing: its
// place among the honest is unchanged, as an honest buyer computes it (verify/reputation).
var washKinds = []play.Kind{{Name: "wash", Threat: 17, What: "trades with its own sybils, six times the honest volume",
	All: washes}}
