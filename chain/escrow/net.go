package escrow

import (
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// Net is where escrows are: a program, one network's account of it, and the token in which leases are paid.
type Net struct {
	Program sign.Key
	Account account.Network
	Mint    sign.Key

	address sign.Key
	index   uint8 // of the mint
}

// NewNet is the network with this account of the program. ErrMint if its leases cannot be paid in the mint.
func NewNet(at sign.Key, n account.Network, mint sign.Key) (Net, error) {
	for i, m := range n.Params.Mints {
		if m.Mint == mint {
			return Net{Program: at, Account: n, Mint: mint, address: account.NetworkAddress(at, n.Params),
				index: uint8(i)}, nil
		}
	}
	return Net{}, fmt.Errorf("%w: network %s does not take %s", ErrMint, n.Params.Network, mint)
}

// Claims are made one at a time. If one is pending when a leaf is retired, it must be final before the last one is
// sent, and the last one must land.
const (
	finalSlots = 32 // after which a block is final, on a chain that runs
	// MinResponseSlots is the minimum of a network's response slots: twice the time to finality, and the same again to
	// notice, to send, and to repeat one lost transaction.
	MinResponseSlots = 3 * finalSlots
)

// CheckWindows refuses, with ErrWindows, a network with too few response slots: providers could not be sure to claim
// their earnings in them.
func CheckWindows(p account.Params) error {
	if p.ResponseSlots < MinResponseSlots {
		return fmt.Errorf("%w: response slots: got %d, want at least %d",
			ErrWindows, p.ResponseSlots, MinResponseSlots)
	}
	return nil
}

// Address is the network's account.
func (n Net) Address() sign.Key { return n.address }

// Domain is where vouchers and receipts are signed that the program takes.
func (n Net) Domain() sign.Domain { return n.Account.Params.Domain(n.Program) }

// Escrow is the address of the escrow that a buyer opens for an order, naming the slot. Its vouchers carry it. It can
// be computed before anything is sent.
func (n Net) Escrow(buyer sign.Key, order market.OrderID, opened uint64) sign.Key {
	return account.EscrowAddress(n.Program, n.address, buyer, sign.Hash(order), opened)
}

// EscrowOf is the address of the escrow behind a lease.
func (n Net) EscrowOf(core market.LeaseCore, f Funding) sign.Key {
	buyer, order := f.of(core)
	return n.Escrow(buyer, order, f.Opened)
}

// MintIndex is the number of the mint in the network's account.
func (n Net) MintIndex() uint8 { return n.index }

// Margin is how many slots after an escrow's deadline its providers may still claim.
func (n Net) Margin() uint64 { return uint64(n.Account.Params.MarginSlots) }

// The size of a claim's transaction in bytes: 741 with 11 accounts, plus 52 for its budget. A lookup table of 8
// accounts saves 212. Each voucher key adds claimKey, each step of the path claimSibling.
const (
	claimSize    = 741 + svm.BudgetSize
	claimTable   = 212
	claimKey     = 110
	claimSibling = 40
)

// ClaimFits reports whether a claim fits into one transaction, given the number of voucher keys and the length of its
// path in the tranche. Table means that a lookup table names its accounts.
func ClaimFits(keys uint8, path int, table bool) bool {
	size := claimSize + claimKey*int(keys) + claimSibling*path
	if table {
		size -= claimTable
	}
	return size <= chain.MaxRaw
}

func leavesFit(keys uint8, table bool) (leaves int) {
	for path := 0; path <= tranche.MaxDepth && ClaimFits(keys, path, table); path++ {
		leaves = 1 << path
	}
	return leaves
}

// LeavesFit is the maximum number of leaves of a tranche with which every claim fits into one transaction. Vouchers are
// signed by the set's threshold. Providers may need a lookup table.
func LeavesFit(keys market.KeySet) int { return leavesFit(keys.Threshold, true) }

// LeavesFitBare is how many leaves a tranche may have so that no claim on it needs a lookup table.
func LeavesFitBare(keys market.KeySet) int { return leavesFit(keys.Threshold, false) }
