// Package images finds images on a container engine and pulls missing ones. It downloads them from their registries, or
// reads the parts of pushed ones (package fetch), gives them to the engine as archives, and checks the engine's image
// against the requested digest.
//
//	reference ──▶ Canonical ──▶ on the shelf, or the engine's own by digest ──▶ Config, checked
//	                       └──▶ Pull, Load: fetch ──▶ room on the shelf ──▶ archive ──▶ engine
//
// It needs the engine, a client for registries and a shelf (package shelf). It has no state.
package images
