// Package cluster has the programs that clusters are tested with, in Python: for Ray, torchrun and MPI.
package cluster

import "embed"

// Programs are they, by file name.
//
//go:embed *.py
var Programs embed.FS
