package localnet

import "errors"

var (
	// ErrPlatform: the Solana runtime has no build for this machine.
	ErrPlatform = errors.New("no local Solana runtime for this platform; " +
		"run a validator yourself and name it with --solana-rpc URL")
	// ErrTools: Node.js (18 or later) or npm is missing.
	ErrTools = errors.New("the local Solana runtime needs Node.js 18 or later with npm; " +
		"install them, or name a validator of your own with --solana-rpc URL")
	// ErrNotInstalled: the runtime is not installed, and the caller may not install it.
	ErrNotInstalled = errors.New("local Solana runtime is not installed")
	// ErrStopped: the runtime ended unexpectedly.
	ErrStopped = errors.New("local Solana runtime stopped")
)
