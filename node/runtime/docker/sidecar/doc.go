// Package sidecar makes the containers that hold the networks of executions with an overlay, and asks them for their
// devices. The package comment of runtime/docker draws one and its ways to the peer.
//
//	Maker: Start, or Adopt after a restart of the peer ──▶ Sidecar: Ask, End; Watch until it is gone
//	     └ Join: the configuration of the container that shares its network; CanOverlay: a trial, once
//
// It needs the engine, connections to guards (package link) and the directory of an execution (package rundir). The
// image of sidecars is made here, of an archive of nothing.
package sidecar
