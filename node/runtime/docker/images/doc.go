// Package images finds images on a container engine and brings those that it lacks: it reads them from their registries
// (package fetch), gives them to the engine as archives, and holds the engine's image to the digest that was asked for.
//
//	reference ──▶ Canonical ──▶ on the shelf, or the engine's own by digest ──▶ Config, checked
//	                       └──▶ Pull: fetch ──▶ room on the shelf ──▶ archive ──▶ engine
//
// It needs the engine, a client for registries and a shelf (package shelf). It has no state of its own.
package images
