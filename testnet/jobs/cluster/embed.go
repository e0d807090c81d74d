// Package cluster has the Python programs for tests of clusters: those of the built-in templates ray, torchrun, mpi and
// dask, and one for the loss of a Ray node.
package cluster

import (
	_ "embed"

	"github.com/starling-network/starling/node/job/template"
)

//go:embed lasting.py
var lasting string

// ofTemplates are the programs of built-in templates.
var ofTemplates = map[string]string{"ray": "spread.py", "torchrun": "ddp.py", "mpi": "ring.py", "dask": "graph.py"}

// Programs returns the programs, by file name.
func Programs() (map[string]string, error) {
	all := map[string]string{"lasting.py": lasting}
	for name, file := range ofTemplates {
		t, err := template.Builtin(name)
		if err != nil {
			return nil, err
		}
		all[file] = string(t.File(file))
	}
	return all, nil
}
