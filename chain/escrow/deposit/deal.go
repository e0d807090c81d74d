package deposit

import (
	"fmt"
	"math/bits"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Limits of one Deposit.
const (
	MaxLeases   = 4096 // over its life
	maxTogether = 6    // tranches that one transaction opens
)

const (
	hiredTogether = 2   // tranches that one transaction of a Hire opens: 8 leaves
	maxHired      = 256 // leases that a Deposit believes to be hired
)

// Deal is the constant part of a buyer's escrow. The ledger's key is the buyer.
type Deal struct {
	Order       market.OrderID `json:"order"`
	Buyer       sign.Key       `json:"buyer"`                 // pays rent, which comes back to it, and fees
	Source      sign.Key       `json:"source,omitzero"`       // token account of deposits, which Buyer can spend
	RefundOwner sign.Key       `json:"refund_owner,omitzero"` // wallet with the associated token account for refunds
	Referrer    sign.Key       `json:"referrer,omitzero"`     // is an optional wallet
	Keys        market.KeySet  `json:"keys"`
	// Standbys are the providers that a Hire may pay.
	Standbys []account.Standby `json:"standbys,omitempty"`
	// LeaseBuyer is the buyer that leases name, if it is not Buyer: the key of a job that outlives its buyer's absence.
	// Zero means Buyer.
	LeaseBuyer sign.Key `json:"lease_buyer,omitzero"`
}

// leaseBuyer is the buyer that leases name.
func (d Deal) leaseBuyer() sign.Key {
	if d.LeaseBuyer.IsZero() {
		return d.Buyer
	}
	return d.LeaseBuyer
}

func (d Deal) check() error {
	switch {
	case d.Source.IsZero() || d.RefundOwner.IsZero():
		return fmt.Errorf("%w: deal: source and refund owner must be set", escrow.ErrEvent)
	case len(d.Standbys) > account.MaxStandbys:
		return fmt.Errorf("%w: deal: too many standbys", escrow.ErrEvent)
	}
	return d.checkKeys()
}

// checkKeys checks the rules that a Hire's deal must keep, too.
func (d Deal) checkKeys() error {
	switch {
	case d.Order.IsZero() || d.Buyer.IsZero():
		return fmt.Errorf("%w: deal: order and buyer must be set", escrow.ErrEvent)
	case d.Keys.Validate() != nil || len(d.Keys.Keys) > account.MaxVoucherKeys || escrow.LeavesFit(d.Keys) == 0:
		return fmt.Errorf("%w: deal: voucher keys", escrow.ErrEvent)
	}
	return nil
}

// names reports whether a lease is well-formed and of the deal's buyer and voucher keys.
func (d Deal) names(core market.LeaseCore) bool {
	return core.Buyer == d.leaseBuyer() && core.VoucherKeys == d.Keys.Hash() && core.Validate() == nil
}

// terms are the constant part of a machine: its network and deal, and the side that it is on.
type terms struct {
	net   escrow.Net
	deal  Deal
	hirer sign.Key // of a Hire: the ledger's key, which is not the buyer's then. Zero: it is a buyer's deposit
}

// hires reports whether this is a Hire's.
func (t *terms) hires() bool { return !t.hirer.IsZero() }

// fit is the number of leaves that the tranches of a number of leases have together. Tranches of voucher keys have
// other trees than those of the buyer, which need no lookup table if all of them fit into one transaction without.
func (t *terms) fit(leases int, hired bool) int {
	if hired || t.hires() {
		return min(escrow.LeavesFit(t.deal.Keys), program.MaxStandbyLeaves)
	}
	if bare := escrow.LeavesFitBare(t.deal.Keys); leases <= bare*maxTogether {
		return bare
	}
	return escrow.LeavesFit(t.deal.Keys)
}

// most is how many leases one transaction sets money aside for.
func (t *terms) most() int {
	if t.hires() {
		return t.fit(0, true) * hiredTogether
	}
	return escrow.LeavesFit(t.deal.Keys) * maxTogether
}

// shared reports whether others may open tranches too.
func (t *terms) shared() bool { return t.hires() || len(t.deal.Standbys) > 0 }

// retirers are the keys that sign that a leaf is retired.
func (t *terms) retirers(fails uint8) []sign.Key {
	if t.hires() {
		return t.voters(fails)
	}
	return []sign.Key{t.deal.Buyer}
}

// voters is a threshold of voucher keys, ascending: with the hirer's own, if it has one, and after each failure others.
func (t *terms) voters(fails uint8) []sign.Key {
	var sets [][]sign.Key
	var own uint
	for i, k := range t.deal.Keys.Keys {
		if k == t.hirer {
			own = 1 << i
		}
	}
	for set := range uint(1) << len(t.deal.Keys.Keys) {
		if bits.OnesCount(set) != int(t.deal.Keys.Threshold) || set&own != own {
			continue
		}
		var keys []sign.Key
		for i, k := range t.deal.Keys.Keys {
			if set&(1<<i) != 0 {
				keys = append(keys, k)
			}
		}
		sets = append(sets, keys)
	}
	return sets[int(fails)%len(sets)]
}

// over reports whether no claim on the escrow can be paid: everything in it may go back.
func (t *terms) over(v escrow.View) bool { return uint64(v.Slot) > v.Escrow.Deadline+t.net.Margin() }
