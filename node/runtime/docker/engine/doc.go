// Package engine connects to the container engine of this machine and checks that it meets the requirements of
// runtime/docker. It has the engine's known state, the names and labels of containers, and the few calls that every
// other room makes: create, look at, let go on, remove. The rest of the engine's interface is that of its client.
//
// Errors are explained here once: an engine that is away is runtime.ErrEngine with a remedy, all else its answer.
//
// It needs a socket of this machine. It knows nothing of images or specs.
package engine
