package chain

import (
	"errors"
	"fmt"
)

// Errors of ledgers. Test with errors.Is.
var (
	// ErrDown: no endpoint answered. Nothing is known; try again later.
	ErrDown = errors.New("chain cannot be reached")
	// ErrDisagree: endpoints give answers that cannot both be true. Nothing is believed.
	ErrDisagree = errors.New("chain endpoints disagree")
	// ErrAllowance: the payer's balance, or what its owner delegated to it, is less than the payment.
	ErrAllowance = errors.New("not enough tokens to pay")
	// ErrFees: too few lamports for the fee and for opening the receivers' token accounts.
	ErrFees = errors.New("not enough lamports for fees")
	// ErrMint: the token on the chain is not the one of this network.
	ErrMint = errors.New("mint is not this network's")
	// ErrPayment: the payment is malformed (empty, zero amount, memo not UTF-8 or too long).
	ErrPayment = errors.New("malformed payment")
	// ErrRejected: the chain's own check says that the transaction would fail.
	ErrRejected = errors.New("chain refused the transaction")
	// ErrHistory: the endpoint forgot the time at which the transaction could have landed.
	ErrHistory = errors.New("endpoint's history does not reach back far enough")
	// ErrNotFound: there is no such transaction, or nothing of the kind in it.
	ErrNotFound = errors.New("not found on chain")
)

// Errors of the settlement machine and the decoders.
var (
	// ErrMalformed: bytes that are not what they should be.
	ErrMalformed = errors.New("malformed")
	// ErrPayout: a lease was first owed to one wallet and then to another, or to none.
	ErrPayout = errors.New("payout wallet may not change")
	// ErrTooMany: more leases than one settlement holds.
	ErrTooMany = errors.New("too many leases in one settlement")
	// ErrOverflow: the sum owed does not fit 64 bits.
	ErrOverflow = errors.New("sum owed overflows")
)

// InvalidTransition is an event that the batch it names cannot take, or a jump between states that must not be.
type InvalidTransition struct {
	Batch    uint32
	From, To BatchState
	Event    string
}

func (e *InvalidTransition) Error() string {
	return fmt.Sprintf("batch %d: %s may not go from %s to %s", e.Batch, e.Event, e.From, e.To)
}
