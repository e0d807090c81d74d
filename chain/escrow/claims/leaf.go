package claims

import (
	"fmt"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// leaf is the constant part of a machine: the lease, and the place of its money on chain.
type leaf struct {
	net     escrow.Net
	core    market.LeaseCore
	keys    market.KeySet
	funding escrow.Funding
	escrow  sign.Key
}

func (l *leaf) check() error {
	if l.core.VoucherKeys != l.keys.Hash() || escrow.LeavesFit(l.keys) == 0 {
		return escrow.ErrKeys
	}
	if f := l.funding; int(f.Index) >= escrow.LeavesFit(l.keys) || len(f.Proof) > tranche.MaxDepth ||
		f.Tranche == 1<<16-1 || f.Buyer.IsZero() != f.Order.IsZero() {
		return fmt.Errorf("%w: funding", escrow.ErrEvent)
	}
	return nil
}

// in returns the leaf's state in a view, if claims on it are still paid.
func (l *leaf) in(v escrow.View) (s account.LeafState, opened market.Slot, err error) {
	if v.Escrow == nil {
		return s, 0, escrow.ErrNoEscrow
	}
	if v.Escrow.State != account.EscrowOpen {
		return s, 0, escrow.ErrRefunded
	}
	t, ok := v.Tranches[l.funding.Tranche]
	if !ok {
		return s, 0, escrow.ErrNoTranche
	}
	if err := l.funding.Proof.Verify(escrow.RootOf(t), l.committed()); err != nil {
		return s, 0, fmt.Errorf("%w: %w", escrow.ErrLeaf, err)
	}
	return t.Leaves[l.funding.Index], market.Slot(t.Opened), nil
}

// committed is the leaf under the tranche's root.
func (l *leaf) committed() tranche.Leaf { return tranche.LeafOf(l.core, l.funding.Index) }

func (l *leaf) tranche() sign.Key {
	return account.TrancheAddress(l.net.Program, l.escrow, l.funding.Tranche)
}

// accrued is the cost of the lease's slots up to now.
func (l *leaf) accrued(now market.Slot) market.Amount {
	passed := min(max(now, l.core.Start), l.core.End) - l.core.Start
	owed, err := l.core.Rate.Owed(uint64(passed))
	if err != nil {
		return l.core.Cap // the core was checked, so this cannot be
	}
	return min(owed, l.core.Cap)
}

// all is the cost of all of the lease's slots.
func (l *leaf) all() market.Amount { return l.accrued(l.core.End) }

// needsTable reports whether a claim fits into a transaction only by a table.
func (l *leaf) needsTable() bool {
	return !escrow.ClaimFits(l.keys.Threshold, len(l.funding.Proof), false)
}

// named are the accounts of the lease's claims that a table can name.
func (l *leaf) named(vault sign.Key) []sign.Key {
	return []sign.Key{l.escrow, l.tranche(), vault, svm.TokenAccount(l.core.Payout, l.net.Mint), l.net.Mint,
		l.net.Address(), svm.TokenProgram, svm.InstructionsSysvar}
}

// openToken opens the payout's account.
func (l *leaf) openToken() svm.Instruction {
	return svm.OpenTokenAccount(l.core.Provider, l.core.Payout, l.net.Mint)
}

// claim pays a voucher out. After is the number of instructions before it. The voucher carries only the threshold's
// signatures, to save space.
func (l *leaf) claim(vault sign.Key, v verify.SignedVoucher, after int) []svm.Instruction {
	v.Sigs = v.Sigs[:min(len(v.Sigs), int(l.keys.Threshold))]
	call := program.Claim{Escrow: l.escrow, Tranche: l.tranche(), Vault: vault,
		Destination: svm.TokenAccount(l.core.Payout, l.net.Mint), Mint: l.net.Mint, Network: l.net.Address(),
		Ed: uint8(after), Leaf: l.committed(), Proof: l.funding.Proof}
	return []svm.Instruction{program.VoucherSigned(l.net.Domain(), v).Instruction(),
		call.Instruction(l.net.Program)}
}
