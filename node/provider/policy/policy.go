// Package policy has the rules of a provider's operator: the inventory by class, the hours, the buyers that are served,
// images and clusters. It is pure: the time is an argument.
package policy

import (
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/sign"
)

// Policy is the operator's permissions beyond the lots themselves. The zero Policy allows everything.
type Policy struct {
	Hours Hours
	// Block are buyers that are not served; the reason is the operator's own note and is not sent to them.
	Block map[sign.Key]string
	// Blocked reports whether a peer was blocked at run time. It is optional; if nil, no peer is.
	Blocked func(sign.Key) bool
	// Only are the buyers that are served; if empty, all that are not blocked.
	Only []sign.Key
	// MaxLeasesPerBuyer bounds the live leases and holds of one buyer; 0 means no bound.
	MaxLeasesPerBuyer int
	// MinReputation is the minimum score of a buyer, in millionths; newcomers have none. 0 means no minimum.
	MinReputation uint32
	Images        images.Patterns
	Clusters      Clusters
}

// Clusters is the operator's permissions for clusters. The zero Clusters allows all.
type Clusters struct {
	No         bool // it takes part in none
	MaxMembers int  // leases and holds that are members of clusters, at a time; 0 means no bound
}

// AllowImage refuses an image that the operator does not run, with market.ReasonImage.
func (pol *Policy) AllowImage(ref string) error {
	if err := pol.Images.Check(ref); err != nil {
		return market.Refuse(market.ReasonImage, "%v", err)
	}
	return nil
}

// Serves refuses buyers that the operator does not serve, all with the same text.
func (pol *Policy) Serves(buyer sign.Key) *market.Refusal {
	_, blocked := pol.Block[buyer]
	if blocked || pol.Blocked != nil && pol.Blocked(buyer) || len(pol.Only) > 0 && !slices.Contains(pol.Only, buyer) {
		return market.Refuse(market.ReasonBlocked, "this provider does not serve you")
	}
	return nil
}
