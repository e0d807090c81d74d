// Package server serves a peer's local API: the routes of node/api, each bound to a part of the peer. What a part has
// to offer is a small interface here; its function Bind… returns the bound routes, and Listen takes them all.
package server
