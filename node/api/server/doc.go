// Package server serves a peer's local API: the routes of node/api, each bound to a part of the peer. Each part is a
// small interface here. Its function Bind… returns the bound routes, and Listen serves all of them.
package server
