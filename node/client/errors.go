package client

import (
	"github.com/starling-network/starling/node/client/entries"
	"github.com/starling-network/starling/node/client/home"
	"github.com/starling-network/starling/node/config"
)

// The errors of Open, and of calls that need an entry peer.
var (
	// ErrConfig: the configuration cannot work; its text names the field.
	ErrConfig = config.ErrPeers
	// ErrInUse: another process runs on this home directory.
	ErrInUse = home.ErrInUse
	// ErrNoEntry: no entry peer can be reached, is of this network and relays.
	ErrNoEntry = entries.ErrNoEntry
	// ErrOtherNetwork is returned for an entry peer on another network than the pinned one.
	ErrOtherNetwork = entries.ErrOtherNetwork
	// ErrDisagree is returned while entry peers differ about the chain. Payments wait until they agree.
	ErrDisagree = entries.ErrDisagree
)
