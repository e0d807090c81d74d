package audits

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
)

// A large server has the arithmetic of a card, and the memory rate of the smallest.
var amxKinds = []play.Kind{
	{
		Name: "amx", Threat: 2, What: "a 64-core CPU with AMX answers for an RTX 3090",
		Play: func(w *play.World) play.Player { return honest(w, sim.AMX64).claims(sim.RTX3090).play },
	},
	{
		Name: "amx-small", Threat: 2, What: "the same answers for an RTX 3060",
		Limit: "a server with eight channels of memory reads as fast as the smallest card",
		Play: func(w *play.World) play.Player {
			return honest(w, sim.AMX64).claims(sim.RTX3060).play
		},
	},
}

// A weaker model sold as a stronger one. It computes the missing part of the other model's memory again.
func upsell(has, says sim.Class) func(*play.World) play.Player {
	return func(w *play.World) play.Player {
		u := honest(w, has).claims(says)
		if short := 1 - float64(has.Memory())/float64(u.walk.Bytes()); short > 0 {
			u.lacks(short)
		}
		return u.play
	}
}

var upsellKinds = []play.Kind{
	{Name: "upsell", Threat: 3, What: "an RTX 3060 is sold as an RTX 4090", Play: upsell(sim.RTX3060, sim.RTX4090)},
	{Name: "upsell-near", Threat: 3, What: "an A100 of 80 GB is sold as an H100", Play: upsell(sim.A100, sim.H100),
		Limit: "by mma.sync an A100 has 0.8 of an H100's arithmetic, and half its reads lie within the allowances"},
	{Name: "upsell-memory", Threat: 3, What: "an H100 is sold as an H200, which only has more memory",
		Play: upsell(sim.H100, sim.H200)},
	{Name: "upsell-consumer", Threat: 3, What: "an RTX 4090 is sold as an A100", Play: upsell(sim.RTX4090, sim.A100)},
}

// l40s is a model without its own floor.
const l40s market.Class = "gpu/l40s"

// asModel is a processor that claims to be an L40S of 48 GB. It is sold if a passed audit qualifies it for a class.
func asModel(order market.Class) func(w *play.World) play.Player {
	return func(w *play.World) play.Player {
		u := honest(w, sim.AMX64)
		u.class, u.resources = l40s, market.Resources{VRAMMiB: 46_068}
		u.asked()
		return func(window, committee int) audit.Report {
			rep := u.play(window, committee)
			if rep.Result == audit.Passed && !order.Accepts(audit.ProvenAs(u.class)) {
				rep.Result = audit.Undecided // it passed in a class that the order excludes
			}
			return rep
		}
	}
}

// A product without a floor in the table. It proves the floor of any GPU, and is sold under it.
var modelKinds = []play.Kind{
	{Name: "model-unlisted",
		Threat: 3, What: "a 64-core CPU with AMX is sold to orders for an L40S, which lacks its own floor",
		Play: asModel(l40s)},
	{
		Name: "model-family", Threat: 3, What: "the same is sold to orders for any GPU", Play: asModel("gpu"),
		Limit: "that class is 10 TOPS and 10⁹ reads a second of some hardware",
	},
}

// A farm of processors that claim to be GPUs: one network had 1.8 million of them.
var metadataKinds = []play.Kind{{
	Name: "metadata", Threat: 1, What: "a 16-core CPU answers for an RTX 3060",
	Play: func(w *play.World) play.Player { return honest(w, sim.CPU16x).claims(sim.RTX3060).play },
	Real: unlisted,
}}

// unlisted checks that a unit without proof gets only orders that accept unproven units, regardless of its offer's
// hardware, price and records. It is cheaper than the proven unit.
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
	cheat.Proven, cheat.Proof = 8, sign.Sum([]byte("missing records"), []byte{byte(i)})
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
		return fmt.Errorf("%w: %d are ranked, refused: %v", play.ErrUnmet, len(res.Ranked), res.Counts)
	}
	return nil
}

// One card behind several identities. All are audited in one window. It answers for all at once, with a part of its
// memory for each; or it answers for one in turn, and then sells at most one.
var sybilKinds = []play.Kind{
	{Name: "sybils", Threat: 5, What: "one card behind 2 to 8 answering identities",
		Play: func(w *play.World) play.Player {
			u := honest(w, anyGPU(w))
			u.together = float64(2 + w.R.IntN(7))
			return u.lacks(1 - 1/u.together).play
		}},
	{Name: "sybils-in-turn", Threat: 5, What: "two identities answer in turn", Limit: "no gain: one is sold at a time",
		Play: func(w *play.World) play.Player {
			u := honest(w, anyGPU(w))
			return func(window, committee int) audit.Report {
				u.absent = window%2 == 1
				return u.play(window, committee)
			}
		}},
}
