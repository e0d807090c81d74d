package entries

import "errors"

var (
	// ErrNoEntry: no entry peer can be reached, is of this network and relays.
	ErrNoEntry = errors.New("no entry peer can be used")
	// ErrOtherNetwork is returned for an entry peer on another network than the pinned one.
	ErrOtherNetwork = errors.New("the entry peer is on another network than this client")
	// ErrDisagree is returned while entry peers differ about the chain. Payments wait until they agree.
	ErrDisagree = errors.New("entry peers disagree about the chain's slot")
	// ErrEntriesFile is returned for a malformed file of remembered entries. A new file replaces it.
	ErrEntriesFile = errors.New("not a file of remembered entry peers")
)
