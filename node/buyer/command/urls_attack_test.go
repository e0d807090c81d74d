package command

import (
	"testing"

	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// A file that only a URL has is not given to guardians: the API key of its job may not read it here.
func TestAttackGuardiansOfOthersFile(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{false, true} {
		bl := job.Blob{CID: blob.Sum([]byte("theirs")).String(), URLs: []string{"https://evil.example.org/w.bin"}, Local: local}
		if kept, err := filesOf(map[string]job.Blob{"w": bl}); err != nil || len(kept) > 0 != local {
			t.Errorf("local %v: guardians get %v, %v", local, kept, err)
		}
	}
}
