package workload

import (
	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p"
)

// MaxFellows bounds the fellows of a workload: a provider connects to no more peers for a buyer's word.
const MaxFellows = 8

// Fellows are the providers of the job's other ranks that a checked workload names.
func Fellows(w *nodepb.Workload) (all []peer.ID) {
	for _, key := range w.GetFellows() {
		if id, err := fellow(key); err == nil {
			all = append(all, id)
		}
	}
	return all
}

func fellow(key []byte) (peer.ID, error) {
	if len(key) != 32 {
		return "", Bad("fellows: key: got %d bytes, want 32", len(key))
	}
	id, err := p2p.PeerIDFromKey([32]byte(key))
	if err != nil {
		return "", Bad("fellows: %v", err)
	}
	return id, nil
}

func checkFellows(w *nodepb.Workload) error {
	if len(w.Fellows) > MaxFellows {
		return Bad("fellows: got %d, want at most %d", len(w.Fellows), MaxFellows)
	}
	seen := map[peer.ID]bool{}
	for _, key := range w.Fellows {
		id, err := fellow(key)
		if err != nil {
			return err
		}
		if seen[id] {
			return Bad("fellows: %s is there twice", id)
		}
		seen[id] = true
	}
	if len(w.Fellows) > 0 && w.Seed != 0 {
		return Bad("fellows: replicas of a program must not know each other's providers")
	}
	return nil
}

// Common are the files of a workload that its fellows may read: those that all ranks have.
func Common(w *nodepb.Workload) []cid.Cid {
	all := append([]*nodepb.Blob{w.Module}, w.ImageParts...)
	for _, in := range w.Inputs {
		if !in.Own {
			all = append(all, in.Blob)
		}
	}
	return CIDs(all...)
}
