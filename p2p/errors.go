package p2p

import "errors"

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
	// ErrPeersFile: the file of remembered addresses does not decode; it is set aside and a new one begun.
	ErrPeersFile = errors.New("not a file of remembered peers")
	// ErrNoEntry: a light host is connected to no entry peer at the moment.
	ErrNoEntry = errors.New("no entry peer is connected")
	// ErrNoRelay: an entry does not carry circuits, so that other peers cannot be reached through it.
	ErrNoRelay = errors.New("the entry peer relays for nobody, or has no place left")
	// ErrSmallRelay: the circuit is limited to little data, and files are not sent over it.
	ErrSmallRelay = errors.New("the entry peer's relay carries messages only, no files; use another entry peer")
)
