package jobs_test

import (
	"fmt"
	"testing"

	"github.com/starling-network/starling/node/buyer/jobs"
)

// BenchmarkStep is a report of one execution, and the encoding of the state after it.
func BenchmarkStep(b *testing.B) {
	for _, n := range []uint32{1, 256} {
		s := running(b, plain(n))
		x := jobs.Exec{Rank: n - 1, Lease: s.Ranks[n-1].Lease, Seq: 1}
		b.Run(fmt.Sprintf("step/%d-ranks", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := s.Step(jobs.Now{Time: epoch, Slot: 1001}, jobs.ProviderHeard{Exec: x}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("encode/%d-ranks", n), func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				size = len(encode(b, s))
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
