package sim

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/verify/audit"
)

// l40s is a model that has no floor of its own.
const l40s market.Class = "gpu/l40s"

// asModel is a processor that says it is an L40S of 48 GB, and whether it can be sold in a class after an audit that it
// passed.
func asModel(order market.Class) func(w *world) player {
	return func(w *world) player {
		u := honest(w, sim.AMX64)
		u.class, u.resources = l40s, market.Resources{VRAMMiB: 46_068}
		u.asked()
		return func(window, committee int) audit.Report {
			rep := u.play(window, committee)
			if rep.Result == audit.Passed && !order.Accepts(audit.ProvenAs(u.class)) {
				rep.Result = audit.Undecided // it passed as something that the order does not ask for
			}
			return rep
		}
	}
}

// A product that the table of floors does not have. It proves the floor of any GPU, and is sold as that.
var modelKinds = []Kind{
	{Name: "model-unlisted",
		Threat: 3, What: "a 64-core CPU with AMX is sold to orders for an L40S, which has no floor of its own",
		play: asModel(l40s)},
	{
		Name: "model-family", Threat: 3, What: "the same is sold to orders for any GPU", play: asModel("gpu"),
		Limit: "that class is 10 TOPS and 10⁹ reads a second of some hardware",
	},
}
