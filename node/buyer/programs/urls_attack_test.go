package programs

import (
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/blob"
)

// granting counts the files that peers may read.
type granting struct {
	Files
	granted int
}

func (g *granting) Grant(peer.ID, cid.Cid) { g.granted++ }

// A provider may not read a file here that only a URL has: the API key of its job may not read it here either.
func TestAttackGrantOfOthersFile(t *testing.T) {
	t.Parallel()
	for _, remote := range []bool{false, true} {
		files := &granting{}
		c := &Config{Files: files}
		c.grantInputs("provider", &nodepb.Workload{
			Inputs: []*nodepb.Input{{Blob: &nodepb.Blob{Cid: blob.Sum([]byte("theirs")).Bytes(), Remote: remote}}},
		})
		if files.granted > 0 == remote {
			t.Errorf("remote %v: %d files are granted", remote, files.granted)
		}
	}
}
