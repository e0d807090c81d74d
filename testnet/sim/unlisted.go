package sim

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
)

// unlisted checks that a unit without proof gets only orders that accept unproven units, despite its offer's hardware,
// price and records. It is cheaper than the proven one.
func unlisted(i int) error {
	now := time.Unix(1_000_000, 0).UTC()
	offer := func(name string, price market.Price) market.Offer {
		return market.Offer{
			Provider: sign.Key(sign.Sum([]byte(name))), Class: "gpu/h100", Region: "local", Units: 8, Total: 8,
			PerUnit: market.Resources{VRAMMiB: 81_559, MilliCPU: 1000, MemoryMiB: 512}, Price: price, MinSlots: 1,
			MaxSlots: 1000, Runtimes: []string{"docker"}, Expires: now.Add(time.Minute), Model: "NVIDIA H100",
		}
	}
	cheat := offer("cheat", 1)
	cheat.Proven, cheat.Proof = 8, sign.Sum([]byte("records that nobody has"), []byte{byte(i)})
	order := market.Order{
		ID: market.OrderID(sign.Sum([]byte("order"), []byte{byte(i)})), Buyer: sign.Key{9}, Class: "gpu/h100", Count: 1,
		UnitsPer: 1, Runtime: "docker", Slots: 100, Ceiling: 100, Expires: now.Add(time.Minute),
	}
	res := match.Rank(order, []match.Candidate{
		{Offer: cheat, Reputation: 900_000, Stake: 1 << 40, Shown: match.Shown{Doubt: "it gave no record"}},
		{Offer: offer("honest", 90), Shown: match.Shown{Units: 8}},
	}, now, match.Weights{Price: 50, Reputation: 25, Stake: 5, StakeHalf: 1000, SlotMillis: 400, Audited: true})
	if len(res.Ranked) != 1 || res.Ranked[0].Candidate.Offer.Provider == cheat.Provider ||
		res.Counts[market.ReasonUnproven] != 1 {
		return fmt.Errorf("%w: %d are ranked, refused: %v", errUnmet, len(res.Ranked), res.Counts)
	}
	return nil
}
