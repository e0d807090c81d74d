package evidence

import "errors"

var (
	// ErrUntimely: a notice is about an hour long past, or one to come.
	ErrUntimely = errors.New("a notice of an hour that is over for long, or to come")
	// ErrMany: no more units can be watched.
	ErrMany = errors.New("too many units are watched")
	// ErrNoProgram: the network is free.
	ErrNoProgram = errors.New("the network has no program: nothing is staked on it that could be taken")
	// ErrNoAudits: the network's program takes no stake for lies of audits.
	ErrNoAudits = errors.New("the network's program takes no stake for lies of audits: it was made without windows of audits")
	// ErrNotStaked: the provider has nothing at stake.
	ErrNotStaked = errors.New("the provider has nothing at stake")
	// ErrNotYet: a receipt, or an audit's window, ends in the future.
	ErrNotYet = errors.New("what the evidence is about is not over yet")
	// ErrLight: a light client takes no part in the network.
	ErrLight = errors.New("a light client watches no units")
	// ErrNoStake: no stake is taken for proofs of this kind.
	ErrNoStake = errors.New("no stake is taken for such a proof")
	// ErrTooOld: a receipt or a window is older than the network lets evidence be.
	ErrTooOld = errors.New("the evidence is too old to count")
)
