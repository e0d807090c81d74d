package cuda

import (
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/verify/challenge"
)

// idle is a GPU that does nothing in no time: what remains is what an answer costs on its way to the peer.
type idle struct{}

func (idle) Memory() (free, total uint64, err error) { return 1 << 40, 1 << 40, nil }
func (idle) Alloc(uint64) (uint64, error)            { return 1, nil }
func (idle) Free(uint64) error                       { return nil }
func (idle) Launch(ptx.Kernel, int, ...uint64) error { return nil }
func (idle) Wait() error                             { return nil }
func (idle) Read([]byte, uint64) error               { return nil }

// The longest answers that audits ask for, to the root: 137 products of 8192 × 8192, and 2²⁴ walkers. What a real GPU computes, and the
// copies from its memory, come on top; of the products all but the last is done while it computes.
func BenchmarkAnswer(b *testing.B) {
	d, err := Open(b.Context(), config(b, "idle"))
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	b.Run("tiles", func(b *testing.B) {
		s := challenge.Shape{Rows: 8192, Columns: 8192, Depth: 32768, Products: 137}
		b.SetBytes(int64(s.Tiles() * sign.HashSize))
		for b.Loop() {
			if _, err := d.Commit(b.Context(), sign.Hash{}, s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("walk", func(b *testing.B) {
		w := challenge.Walk{Cells: 1 << 30, Work: 64, Walkers: challenge.MaxWalkers, Steps: 256}
		of := device.Of(sign.Hash{}, w)
		if err := d.Fill(b.Context(), of); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(w.Groups() * sign.HashSize))
		for b.Loop() {
			groups, err := d.Walk(b.Context(), 1, of, w)
			if err != nil {
				b.Fatal(err)
			}
			a, err := challenge.NewArrivals(w, groups, device.Split)
			if err != nil {
				b.Fatal(err)
			}
			a.Root()
		}
	})
}
