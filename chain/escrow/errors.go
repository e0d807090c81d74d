package escrow

import "errors"

// Errors of CheckFunding and CheckWindows about the money behind a lease.
var (
	// ErrNoEscrow: there is no account at the escrow's address (yet).
	ErrNoEscrow = errors.New("escrow: not on chain")
	// ErrOtherEscrow: the escrow's network, buyer, order or opening slot differs from the lease and its funding.
	ErrOtherEscrow = errors.New("escrow: not the one of this lease")
	// ErrWindows: the network leaves a provider too little time to claim.
	ErrWindows = errors.New("escrow: response window is too short")
	// ErrMint: its deposit is in another token than leases are paid in, or the network takes no such token.
	ErrMint = errors.New("escrow: another token")
	// ErrKeys: the voucher keys differ from the lease's, or are too many for a claim to fit into a transaction.
	ErrKeys = errors.New("escrow: other voucher keys")
	// ErrDeadline: the escrow may be refunded too soon after the lease's end.
	ErrDeadline = errors.New("escrow: deadline is too early")
	// ErrRefunded: its money went back, and it makes no further payments.
	ErrRefunded = errors.New("escrow: refunded")
	// ErrVault: it holds less than it owes.
	ErrVault = errors.New("escrow: holds less than it owes")
	// ErrNoTranche: the escrow exists; the tranche that the funding names does not yet, or no longer.
	ErrNoTranche = errors.New("escrow: no such tranche")
	// ErrLeaf: the lease is not under the tranche's root.
	ErrLeaf = errors.New("escrow: lease is not in the tranche")
	// ErrRetired: the lease's leaf is being retired, or was.
	ErrRetired = errors.New("escrow: lease was retired")
	// ErrLate: the tranche was opened after the lease's activate-before slot, so the lease is void.
	ErrLate = errors.New("escrow: funded too late")
)

// Errors of the machines about their events.
var (
	// ErrEvent: an event that this machine does not take, or a part of it that is malformed.
	ErrEvent = errors.New("escrow: bad event")
	// ErrLease: the lease has another order, buyer or key set, exists already, or does not exist.
	ErrLease = errors.New("escrow: bad lease")
	// ErrStandby: the escrow has no such standby, or its buyer does not allow this much for it, this rate, or these
	// slots.
	ErrStandby = errors.New("escrow: not allowed for a standby")
	// ErrFree: more than is free in the escrow now.
	ErrFree = errors.New("escrow: not enough is free")
	// ErrConsent: a transaction that could use a voucher key's signature for another purpose.
	ErrConsent = errors.New("escrow: not for a voucher key to sign")
	// ErrTooMany: more leases than one transaction can set money aside for, or than an escrow is kept for here.
	ErrTooMany = errors.New("escrow: too many leases")
	// ErrEnding: it is being closed, and funds no further lease.
	ErrEnding = errors.New("escrow: being wound up")
	// ErrReceipt: not a final receipt of this lease, signed by its provider.
	ErrReceipt = errors.New("escrow: not the lease's final receipt")
	// ErrVoucher: not a voucher for this lease and escrow.
	ErrVoucher = errors.New("escrow: not the lease's voucher")
)
