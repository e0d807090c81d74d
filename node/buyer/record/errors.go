package record

import "errors"

var (
	// ErrRefused is returned for a job that cannot be taken; its text has the reason.
	ErrRefused = errors.New("job refused")
	// ErrImage is returned with ErrRefused for a job whose image has no known digest, or is not on this peer.
	ErrImage = errors.New("spec.image")
	// ErrFunds is returned for a job that is refused because its wallet cannot pay for it.
	ErrFunds = errors.New("not enough funds")
	// ErrNoJob is returned if a peer has no such job, or if the beginning of an id fits several.
	ErrNoJob = errors.New("no such job")
	// ErrNotRunning is returned if a job's rank has no program that runs now; its text has the rank's state.
	ErrNotRunning = errors.New("no program runs")
	// ErrNeeded is returned for a job that cannot be removed yet.
	ErrNeeded = errors.New("the job is still needed")
)
