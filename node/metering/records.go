package metering

import (
	"encoding/json"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/journal"
)

// SellerRecord is a seller in the journal.
type SellerRecord struct {
	Floor market.Slot     `json:"floor"` // no unit of the provider is billed from an earlier slot
	At    time.Time       `json:"at"`    // of writing
	Meter json.RawMessage `json:"meter"` // meter.Seller
}

// Sellers has the sellers by lease.
var Sellers = journal.Define[market.LeaseID, SellerRecord]("seller")
