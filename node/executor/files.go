package executor

import (
	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/workload"
)

// FilesOf returns the inputs, the outputs and the packs of an execution.
func FilesOf(e *Execution) (out []cid.Cid) {
	for _, in := range e.Work.Inputs {
		out = appendCID(out, in.GetBlob())
	}
	return append(out, LeftOf(e)...)
}

// LeftOf returns the outputs and the packs of an execution.
func LeftOf(e *Execution) (out []cid.Cid) {
	s, _, _ := e.Snapshot()
	for _, o := range s.Outputs {
		out = appendCID(out, o.GetBlob())
	}
	for _, p := range s.Packs {
		out = appendCID(out, p.GetBlob())
	}
	return out
}

func appendCID(to []cid.Cid, b *nodepb.Blob) []cid.Cid {
	if c, err := workload.CID(b); err == nil {
		return append(to, c)
	}
	return to
}
