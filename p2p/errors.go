package p2p

import (
	"errors"

	"github.com/starling-network/starling/p2p/entries"
)

var (
	// ErrConfig: the host's configuration cannot work.
	ErrConfig = errors.New("bad host configuration")
	// ErrWeakKey: the public key is of small order or not canonically encoded, so that signatures under it prove
	// nothing.
	ErrWeakKey = errors.New("public key is not a sound Ed25519 key")
	// ErrKeyFile: the identity file is not a Solana CLI keypair.
	ErrKeyFile = errors.New("not a keypair file")
	// ErrKeyReadable: the identity file may be read by others than its owner.
	ErrKeyReadable = errors.New("keypair file is readable by others")
	// ErrPSKFile: the file of a private network's key is not libp2p's swarm.key.
	ErrPSKFile = errors.New("not a file with a pre-shared key")
	// ErrNoEntry: a light host is connected to no entry peer at the moment.
	ErrNoEntry = entries.ErrNoEntry
	// ErrNoRelay: an entry does not carry circuits, so that other peers cannot be reached through it.
	ErrNoRelay = entries.ErrNoRelay
)
