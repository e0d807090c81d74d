package protocol

import (
	"strings"
	"testing"
)

// TestIDs: every stream carries the network in its id, and no two are the same.
func TestIDs(t *testing.T) {
	t.Parallel()
	const network = "test-12345678"
	seen := map[string]bool{}
	for _, id := range []string{
		string(Ask.ID(network)), string(Quote.ID(network)), string(Lease.ID(network)), string(Exec.ID(network)), string(Watch.ID(network)), string(Meter.ID(network)), string(Live.ID(network)), string(Rsh.ID(network)),
		string(Guard.ID(network)), string(Audit.ID(network)), string(Proof.ID(network)), string(Rewards.ID(network)), string(Anchored.ID(network)), string(Measure.ID(network)), string(Link.ID(network)), string(Coord.ID(network)),
	} {
		if seen[id] || !strings.HasPrefix(id, "/starling/") || !strings.HasSuffix(id, "/"+network) {
			t.Errorf("stream id %s", id)
		}
		seen[id] = true
	}
}
