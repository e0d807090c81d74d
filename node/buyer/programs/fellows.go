package programs

import (
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	work "github.com/starling-network/starling/node/workload"
)

// fellows returns the keys of the providers that may share files with a rank's: those of the ranks around it. Two
// providers name each other so. A provider of several ranks, or of a rank without a lease, is left out. Providers whose
// results are compared are not told of each other.
func fellows(j record.Job, rank int) (keys [][]byte) {
	n := len(j.Ranks)
	if j.Spec.Verify == job.VerifyReplicate || j.Spec.Runtime == job.RuntimeVolume || rank >= n {
		return nil
	}
	seen := map[sign.Key]bool{{}: true, j.Ranks[rank].Provider: true}
	for d := 1; d <= min(work.MaxFellows/2, n/2); d++ {
		for _, i := range []int{(rank + d) % n, (rank - d + n) % n} {
			r := j.Ranks[i]
			if seen[r.Provider] || r.State == record.RankWaiting {
				continue
			}
			seen[r.Provider] = true
			keys = append(keys, r.Provider[:])
		}
	}
	return keys
}
