//go:build unix

package challenge_test

import (
	"syscall"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

// processor has a benchmark report the processor's time as well, which other work on the machine does not lengthen.
func processor(b *testing.B) {
	used := func() int64 {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return r.Utime.Nano() + r.Stime.Nano()
	}
	before := used()
	b.Cleanup(func() { b.ReportMetric(float64(used()-before)/1e6/float64(b.N), "cpu-ms/op") })
}

// What a host hashes on one processor for the largest challenges: BENCHMARKS and testnet/sim have the figures.
func BenchmarkHost(b *testing.B) {
	hashes := func(n int) []sign.Hash {
		out := make([]sign.Hash, n)
		for i := range out {
			out[i][0], out[i][1], out[i][2] = byte(i), byte(i>>8), byte(i>>16)
		}
		return out
	}
	s := challenge.Shape{Rows: 8192, Columns: 8192, Depth: 32768, Products: 137}
	tiles := hashes(s.Tiles())
	one := len(tiles) / int(s.Products)
	// The whole tree, and what of it is left when the last product's tiles come.
	b.Run("products", func(b *testing.B) {
		b.ReportAllocs()
		processor(b)
		for b.Loop() {
			if _, err := challenge.Commit(s, tiles); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("last", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			c, err := challenge.NewCommitter(s, nil)
			if err == nil {
				err = c.Add(tiles[one:])
			}
			b.StartTimer()
			if err == nil {
				err = c.Add(tiles[:one])
			}
			if err == nil {
				_, err = c.Commit()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	w := challenge.Walk{Cells: 1 << 32, Work: 64, Walkers: challenge.MaxWalkers, Steps: 256}
	groups := hashes(w.Groups())
	b.Run("walk", func(b *testing.B) {
		b.ReportAllocs()
		processor(b)
		for b.Loop() {
			a, err := challenge.NewArrivals(w, groups, nil)
			if err != nil {
				b.Fatal(err)
			}
			a.Root()
		}
	})
}
