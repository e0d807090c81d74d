package client

import (
	"github.com/starling-network/starling/node/client/entries"
	"github.com/starling-network/starling/node/client/home"
	"github.com/starling-network/starling/node/config"
)

// The errors of Open, and of what needs an entry peer.
var (
	// ErrConfig: the configuration cannot work; its text names the field.
	ErrConfig = config.ErrPeers
	// ErrInUse: another process runs on this home directory.
	ErrInUse = home.ErrInUse
	// ErrNoEntry: no entry peer can be reached, is of this network and relays.
	ErrNoEntry = entries.ErrNoEntry
	// ErrOtherNetwork: an entry peer is on another network than the one that is pinned.
	ErrOtherNetwork = entries.ErrOtherNetwork
	// ErrDisagree: entry peers differ about the chain, and nothing is paid until they agree.
	ErrDisagree = entries.ErrDisagree
)
