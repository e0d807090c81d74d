package entries

import "errors"

var (
	// ErrNoEntry: no entry peer can be reached, is of this network and relays.
	ErrNoEntry = errors.New("no entry peer can be used")
	// ErrOtherNetwork: an entry peer is on another network than the one that is pinned.
	ErrOtherNetwork = errors.New("the entry peer is on another network than this client")
	// ErrDisagree: entry peers differ about the chain, and nothing is paid until they agree.
	ErrDisagree = errors.New("entry peers disagree about the chain's slot")
	// ErrEntriesFile: the file of remembered entries does not decode; it is begun anew.
	ErrEntriesFile = errors.New("not a file of remembered entry peers")
)
