package p2p

import "errors"

var (
	// ErrConfig: the host's configuration cannot work.
	ErrConfig = errors.New("bad host configuration")
	// ErrWeakKey: the public key is of small order or not canonically encoded, so that signatures under it prove nothing.
	ErrWeakKey = errors.New("public key is not a sound Ed25519 key")
	// ErrKeyFile: the identity file is not a Solana CLI keypair.
	ErrKeyFile = errors.New("not a keypair file")
	// ErrKeyReadable: the identity file may be read by others than its owner.
	ErrKeyReadable = errors.New("keypair file is readable by others")
	// ErrPeersFile: the file of remembered addresses does not decode; it is set aside and a new one begun.
	ErrPeersFile = errors.New("not a file of remembered peers")
)
