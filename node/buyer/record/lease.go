package record

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// LeaseAccount is one lease of a job with the proofs of its cost.
type LeaseAccount struct {
	Lease    market.LeaseID   `json:"lease"`
	Provider sign.Key         `json:"provider"`
	Payout   sign.Key         `json:"payout"`
	Rank     uint32           `json:"rank"`
	Epoch    uint32           `json:"epoch"`
	Route    string           `json:"route"` // by which its quote came
	Active   bool             `json:"active"`
	State    string           `json:"state"` // of the payer
	Owed     market.Amount    `json:"owed"`
	Reason   string           `json:"reason,omitempty"`
	Escrow   sign.Key         `json:"escrow,omitzero"` // that it is paid from
	Void     bool             `json:"void,omitempty"`  // its money was not in the escrow in time: it cost nothing
	Signed   []byte           `json:"signed"`          // market.Lease
	Keys     []byte           `json:"keys"`            // market.KeySet
	Voucher  []byte           `json:"voucher,omitempty"`
	Receipts []verify.Receipt `json:"receipts"`
}
