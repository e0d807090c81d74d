package slash

import "errors"

var (
	// ErrNoProgram: the network is free.
	ErrNoProgram = errors.New("the network has no program: nothing is staked on it that could be taken")
	// ErrNoAudits: the network's program takes no stake for frauds in audits.
	ErrNoAudits = errors.New("the network's program takes no stake for frauds in audits: it has no audit windows")
	// ErrNotStaked: the provider has nothing at stake.
	ErrNotStaked = errors.New("the provider has nothing at stake")
	// ErrNotYet: a receipt, or an audit's window, ends in the future.
	ErrNotYet = errors.New("the lease or window of the evidence is not over yet")
	// ErrNoStake: no stake is taken for proofs of this kind.
	ErrNoStake = errors.New("no stake is taken for such a proof")
	// ErrTooOld: a receipt or a window is older than the network lets evidence be.
	ErrTooOld = errors.New("the evidence is too old to count")
)
