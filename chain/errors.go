package chain

import "errors"

// Errors of ledgers. Test with errors.Is.
var (
	// ErrDown: no endpoint answered, so the state is unknown; try again later.
	ErrDown = errors.New("chain cannot be reached")
	// ErrDisagree: the endpoints' answers contradict each other, so none counts.
	ErrDisagree = errors.New("chain endpoints disagree")
	// ErrAllowance: the payer's balance, or the rest of its delegation from the owner, is too low.
	ErrAllowance = errors.New("not enough tokens to pay")
	// ErrFees: too few lamports for the fee and for opening the receivers' token accounts.
	ErrFees = errors.New("not enough lamports for fees")
	// ErrMint: the token on the chain is not the one of this network.
	ErrMint = errors.New("mint is not this network's")
	// ErrMemo: the memo is empty, too long, or not UTF-8.
	ErrMemo = errors.New("malformed memo")
	// ErrPayment: the transaction does not fit.
	ErrPayment = errors.New("malformed transaction")
	// ErrRejected: by the chain's own check the transaction would fail.
	ErrRejected = errors.New("chain refused the transaction")
	// ErrHistory: the endpoint forgot the time at which the transaction could have landed.
	ErrHistory = errors.New("endpoint's history does not reach back far enough")
	// ErrNotFound: there is no such transaction, or it lacks the requested content.
	ErrNotFound = errors.New("not found on chain")
)

// ErrMalformed: bytes do not have the expected form.
var ErrMalformed = errors.New("malformed")
