// Package sidecar makes the containers that hold the networks of executions with an overlay, and requests their
// devices. The package comment of runtime/docker has a diagram.
//
//	Maker: Start, or Adopt after a restart of the peer ──▶ Sidecar: Ask, End; Watch until it is gone
//	     └ Join: the configuration of the container that shares its network; CanOverlay: a trial, once
//
// It needs the engine, connections to guards (package link) and the directory of an execution (package rundir). The
// image of sidecars is made here from an empty archive.
package sidecar
