package match

import "github.com/starling-network/starling/market"

// Weights are the buyer's preferences. The first seven are relative to each other; a component with weight 0 does not
// count.
type Weights struct {
	Price      uint32 // cheaper, relative to the ceiling
	Reputation uint32 // score by its record
	RTT        uint32 // nearer: half at 50 ms
	Region     uint32 // earlier in the order's list
	Stake      uint32 // more at stake: half at StakeHalf
	Work       uint32 // more proven work for its price: half at the median of the offers
	Warm       uint32 // has the order's image, by its own word; does not count for an order without one

	MinReputation uint32 // millionths; lower scores are refused, newcomers too; 0 means no minimum
	StakeHalf     market.Amount
	NewcomerOneIn uint32 // one seat in this number is kept for newcomers; 0 means none
	SlotMillis    uint64 // length of a slot, to compute the cost of a lease
	Decimals      uint8  // how prices are written in refusals
	Audited       bool   // the network audits: units must be proven, unless the order accepts others
	Keep          int    // how many of the best to keep; 0 means 4 × Count + 32
}

// DefaultWeights suit a buyer without special preferences.
func DefaultWeights(g market.Genesis) Weights {
	thousand, err := market.ParseDecimal("1000", g.Decimals)
	if err != nil {
		thousand = 1 // a token so finely divided that a thousand of it do not fit
	}
	w := Weights{Price: 50, Reputation: 25, RTT: 10, Region: 5, Stake: 5, Warm: 3, StakeHalf: market.Amount(thousand),
		NewcomerOneIn: 8, SlotMillis: g.SlotMillis, Decimals: g.Decimals, Audited: g.AuditSlots > 0}
	if w.Audited {
		w.Work = 15
	}
	return w
}

// Parts are the components of a score, each in millionths.
type Parts struct {
	Price      uint32 `json:"price"`
	Reputation uint32 `json:"reputation"`
	RTT        uint32 `json:"rtt"`
	Region     uint32 `json:"region"`
	Stake      uint32 `json:"stake"`
	Work       uint32 `json:"work"`
	Warm       uint32 `json:"warm"`
}
