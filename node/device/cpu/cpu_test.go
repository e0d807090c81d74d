package cpu

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/verify/challenge"
)

func seed(n byte) sign.Hash { return sha256.Sum256([]byte{n}) }

// The tiles are those that the definition gives, for shapes of one band and of several.
func TestMultiply(t *testing.T) {
	t.Parallel()
	d := New(Config{Threads: 3})
	for _, s := range []challenge.Shape{
		{Rows: 64, Columns: 64, Depth: 64, Products: 1},
		{Rows: 64 * (band + 1), Columns: 128, Depth: 64, Products: 2},
		{Rows: 128, Columns: 192, Depth: 1024, Products: 2},
	} {
		got, err := d.Multiply(t.Context(), seed(1), s)
		if err != nil {
			t.Fatal(err)
		}
		g := challenge.ProductGenerator(seed(1))
		for i, h := range got {
			if want := challenge.NewTile(&g, s, s.Place(i)).Hash(); h != want {
				t.Fatalf("%s: tile %d is %s, want %s", s, i, h.Short(), want.Short())
			}
		}
	}
	if _, err := d.Multiply(t.Context(), seed(1), challenge.Shape{}); !errors.Is(err, challenge.ErrShape) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Multiply(ended, seed(1), challenge.Shape{Rows: 64, Columns: 64, Depth: 64, Products: 1}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A walk over the resident dataset ends where one over cells made anew ends; without the dataset there is none.
func TestWalk(t *testing.T) {
	t.Parallel()
	d := New(Config{Threads: 2, Memory: 5000 * challenge.CellSize})
	w := challenge.Walk{Cells: 5000, Work: 2, Walkers: 101, Steps: 30}
	of := device.Of(seed(1), w)
	if _, err := d.Walk(t.Context(), 7, of, w); !errors.Is(err, device.ErrNoDataset) {
		t.Fatal(err)
	}
	if err := d.Fill(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	got, err := d.Walk(t.Context(), 7, of, w)
	if err != nil {
		t.Fatal(err)
	}
	set := challenge.NewDataset(of.Seed, of.Work)
	var want []uint64
	for i := range w.Walkers {
		want = append(want, challenge.Go(w, 7, i, set.Cell))
	}
	if !slices.Equal(got, challenge.GroupHashes(want)) {
		t.Fatal("walkers arrive elsewhere")
	}
	if ends, err := d.Ends(t.Context(), 7, of, w, 1); err != nil || !slices.Equal(ends, want[64:]) {
		t.Errorf("a group that is walked again: %v, %v", ends, err)
	}
	other := of
	other.Seed = seed(2)
	less := w
	less.Cells--
	if _, err := d.Walk(t.Context(), 7, other, w); !errors.Is(err, device.ErrNoDataset) {
		t.Errorf("another dataset: %v", err)
	}
	if _, err := d.Walk(t.Context(), 7, of, less); !errors.Is(err, device.ErrNoDataset) {
		t.Errorf("another size: %v", err)
	}
	if err := d.Evict(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Walk(t.Context(), 7, of, w); !errors.Is(err, device.ErrNoDataset) {
		t.Errorf("evicted: %v", err)
	}
	large := of
	large.Cells++
	if err := d.Fill(t.Context(), large); !errors.Is(err, device.ErrMemory) {
		t.Error(err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	d := New(Config{Memory: 1 << 20})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Fill(t.Context(), device.Dataset{Cells: 1, Work: 1}); !errors.Is(err, device.ErrClosed) {
		t.Error(err)
	}
}

func BenchmarkMultiply(b *testing.B) {
	s := challenge.Shape{Rows: 1024, Columns: 512, Depth: 4096, Products: 1}
	d := New(Config{})
	b.SetBytes(int64(s.Operations())) // MB/s are millions of operations a second
	for b.Loop() {
		if _, err := d.Multiply(b.Context(), seed(1), s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFill(b *testing.B) {
	d := New(Config{Memory: 1 << 30})
	n := byte(0)
	b.SetBytes(1 << 20)
	for b.Loop() {
		n++
		if err := d.Fill(b.Context(), device.Dataset{Seed: seed(n), Cells: 1 << 20 / challenge.CellSize, Work: 64}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	w := challenge.Walk{Cells: 1 << 23, Work: 1, Walkers: 1 << 14, Steps: 64}
	d := New(Config{Memory: 1 << 30})
	of := device.Of(seed(1), w)
	if err := d.Fill(b.Context(), of); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := d.Walk(b.Context(), 1, of, w); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(w.Reads())*float64(b.N)/b.Elapsed().Seconds(), "reads/s")
}
