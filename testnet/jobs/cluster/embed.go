// Package cluster has the Python programs for tests of clusters: for Ray, torchrun and MPI.
package cluster

import "embed"

// Programs are the programs, by file name.
//
//go:embed *.py
var Programs embed.FS
