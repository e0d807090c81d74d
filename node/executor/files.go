package executor

import (
	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/workload"
)

// FilesOf returns the inputs, the outputs and the packs of an execution.
func FilesOf(e *Execution) []cid.Cid {
	var in []*nodepb.Blob
	for _, i := range e.Work.Inputs {
		in = append(in, i.GetBlob())
	}
	return append(workload.CIDs(in...), LeftOf(e)...)
}

// LeftOf returns the outputs and the packs of an execution.
func LeftOf(e *Execution) []cid.Cid {
	s, _, _ := e.Snapshot()
	return left(s)
}

func left(s *nodepb.Execution) []cid.Cid {
	var all []*nodepb.Blob
	for _, o := range s.Outputs {
		all = append(all, o.GetBlob())
	}
	for _, p := range s.Packs {
		all = append(all, p.GetBlob())
	}
	return workload.CIDs(all...)
}
