// Package engine connects to the container engine of this machine and checks that it meets the requirements of
// runtime/docker. It has the engine's known state, the names and labels of containers, and the calls that all rooms
// make: create, inspect, resume, remove. Other calls use the engine's client.
//
// An unavailable engine is runtime.ErrEngine with a remedy; all other errors are the engine's.
//
// It needs a socket of this machine. It does not depend on images or specs.
package engine
