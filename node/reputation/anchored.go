package reputation

import (
	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/reputation"
)

// keptBy are the facts of a receipt, about its provider and about its buyer.
func keptBy(of [2]sign.Key, r verify.Receipt) (out [2]reputation.Fact) {
	for role, subject := range of {
		out[role] = reputation.Fact{
			ID: sign.Hash(r.Lease), Kind: reputation.Kept, Role: reputation.Role(role), Subject: subject,
			Rater: of[1-role], Value: r.Cumulative, At: r.To,
		}
	}
	return out
}

// Source is the evidence of a fact.
type Source struct {
	Receipt sign.Hash  `json:"receipt,omitzero"` // verify.Receipt.SignedHash of the lease's last known receipt
	Record  sign.Hash  `json:"record,omitzero"`  // of the audit
	Tx      chain.TxID `json:"tx,omitempty"`     // that anchors it
}
