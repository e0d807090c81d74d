package slash

import "errors"

var (
	// ErrNoProgram: the network is free.
	ErrNoProgram = errors.New("network has no program, and so no stake")
	// ErrNoAudits: the network's program takes no stake for frauds in audits.
	ErrNoAudits = errors.New("network has no audit windows: no stake is taken for frauds in audits")
	// ErrNotStaked: the provider has nothing at stake.
	ErrNotStaked = errors.New("provider has no stake")
	// ErrNotYet: a receipt, or an audit's window, ends in the future.
	ErrNotYet = errors.New("the lease or window of the evidence is not over yet")
	// ErrNoStake: no stake is taken for proofs of this kind.
	ErrNoStake = errors.New("no stake is taken for such a proof")
	// ErrTooOld is returned for a receipt or a window older than the network's limit for evidence.
	ErrTooOld = errors.New("the evidence is too old to count")
)
