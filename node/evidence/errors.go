package evidence

import "errors"

var (
	// ErrUntimely: a notice is about an hour long past, or one to come.
	ErrUntimely = errors.New("a notice of an hour that is over for long, or to come")
	// ErrFile: the bytes are no evidence file.
	ErrFile = errors.New("not an evidence file")
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
	// ErrTooOld: a receipt or a window is older than the network lets evidence be.
	ErrTooOld = errors.New("the evidence is too old to count")
)
