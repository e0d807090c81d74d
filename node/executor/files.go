package executor

import (
	"errors"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
)

// FilesOf returns the inputs, the outputs and the packs of an execution.
func FilesOf(e *Execution) []cid.Cid {
	return append(inputs(e.Work), LeftOf(e)...)
}

func inputs(w *nodepb.Workload) []cid.Cid {
	var in []*nodepb.Blob
	for _, i := range w.Inputs {
		in = append(in, i.GetBlob())
	}
	return workload.CIDs(in...)
}

// ownerOf returns the peer that a volume names as its owner.
func ownerOf(w *nodepb.Workload) (peer.ID, error) {
	var key sign.Key
	if copy(key[:], w.VolumeOwner) != len(key) {
		return "", errors.New("volume: no owner")
	}
	return p2p.PeerIDFromKey(key)
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
