package engine_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/device/cuda/cudatest"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/node/device/cuda/wire"
	"github.com/starling-network/starling/verify/challenge"
)

func seed(n byte) sign.Hash { return sha256.Sum256([]byte{n}) }

// multiply gives all hashes, and in how many portions they came.
func multiply(ctx context.Context, e *engine.Engine, key sign.Hash, s challenge.Shape) (tiles []sign.Hash, portions int, err error) {
	err = e.Multiply(ctx, key, s, func(hashes []byte) error {
		tiles = append(tiles, wire.Hashes(hashes)...)
		portions++
		return nil
	})
	return tiles, portions, err
}

func gpu(t *testing.T, capability uint32, memory uint64) *cudatest.GPU {
	t.Helper()
	g, err := cudatest.New(capability, memory)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// whole checks that a call gave its memory back.
func whole(t *testing.T, g *cudatest.GPU) {
	t.Helper()
	if free, total, err := g.Memory(); err != nil || free != total {
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
}

// Products are those of the processor, with sides that are multiples of 64 and not of 128, in one band and in several.
func TestMultiply(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		capability uint32
		shape      challenge.Shape
		memory     uint64
	}{
		{61, challenge.Shape{Rows: 64, Columns: 64, Depth: 64, Products: 1}, 1 << 30},
		{80, challenge.Shape{Rows: 64, Columns: 64, Depth: 64, Products: 2}, 1 << 30},
		{61, challenge.Shape{Rows: 192, Columns: 128, Depth: 128, Products: 2}, 1 << 30},
		{80, challenge.Shape{Rows: 128, Columns: 192, Depth: 320, Products: 2}, 1 << 30},
		{90, challenge.Shape{Rows: 320, Columns: 64, Depth: 192, Products: 1}, 128*192 + 128*(192+4*128) + 160}, // three bands, the last of half a block
		{75, challenge.Shape{Rows: 320, Columns: 64, Depth: 64, Products: 2}, 128*64 + 256*(64+4*128) + 1000},   // bands of 128: three do not fit, and half of three is one
	} {
		t.Run(c.shape.String(), func(t *testing.T) {
			t.Parallel()
			g := gpu(t, c.capability, c.memory)
			got, _, err := multiply(t.Context(), engine.New(g), seed(byte(i)), c.shape)
			if err != nil {
				t.Fatal(err)
			}
			want, err := cpu.New(cpu.Config{}).Multiply(t.Context(), seed(byte(i)), c.shape)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Error("tiles differ from the processor's")
			}
			whole(t, g)
		})
	}
}

func TestMultiplyRefuses(t *testing.T) {
	t.Parallel()
	g := gpu(t, 80, 100_000)
	e := engine.New(g)
	s := challenge.Shape{Rows: 128, Columns: 128, Depth: 1024, Products: 1}
	if _, _, err := multiply(t.Context(), e, seed(1), s); !errors.Is(err, device.ErrMemory) {
		t.Error(err)
	}
	whole(t, g)
	if _, _, err := multiply(t.Context(), e, seed(1), challenge.Shape{}); !errors.Is(err, challenge.ErrShape) {
		t.Error(err)
	}
	s.Depth = 64
	ctx, cancel := context.WithCancel(t.Context())
	g.Launched = func(k ptx.Kernel) error {
		if k.Name == ptx.Gemm.Name {
			cancel()
		}
		return nil
	}
	if _, _, err := multiply(ctx, e, seed(1), s); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	whole(t, g)
	broken := errors.New("an illegal address")
	g.Launched = func(ptx.Kernel) error { return broken }
	if _, _, err := multiply(t.Context(), e, seed(1), s); !errors.Is(err, broken) {
		t.Error(err)
	}
	whole(t, g)
}

// An error of the caller's function ends the call with that error, and the memory is free again.
func TestMultiplyEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	g := gpu(t, 80, 1<<30)
	full := errors.New("no more hashes are wanted")
	calls := 0
	err := engine.New(g).Multiply(t.Context(), seed(1), challenge.Shape{Rows: 64, Columns: 64, Depth: 64, Products: 2},
		func([]byte) error { calls++; return full })
	if !errors.Is(err, full) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	whole(t, g)
}

// A walk goes over what was filled, and only over that.
func TestWalk(t *testing.T) {
	t.Parallel()
	w := challenge.Walk{Cells: 1000, Work: 3, Walkers: 200, Steps: 20}
	of := device.Of(seed(1), w)
	g := gpu(t, 61, 32*1000+500+1600+96)
	e := engine.New(g)
	if _, err := e.Walk(t.Context(), 7, of, w); !errors.Is(err, device.ErrNoDataset) {
		t.Error(err)
	}
	if err := e.Fill(t.Context(), of, 2197); !errors.Is(err, device.ErrMemory) {
		t.Errorf("the reserve is taken: %v", err)
	}
	if err := e.Fill(t.Context(), of, 2196); err != nil {
		t.Fatal(err)
	}
	if free, _, err := e.Memory(); err != nil || free != 34196 {
		t.Error(free, err)
	}
	got, err := e.Walk(t.Context(), 7, of, w)
	if err != nil {
		t.Fatal(err)
	}
	set := challenge.NewDataset(of.Seed, of.Work)
	ends := make([]uint64, w.Walkers)
	for i := range ends {
		ends[i] = challenge.Go(w, 7, uint32(i), set.Cell)
	}
	if !slices.Equal(wire.Hashes(got), challenge.GroupHashes(ends)) {
		t.Fatal("walkers end elsewhere")
	}
	for group := range uint32(w.Groups()) {
		first, n := w.Members(group)
		if again, err := e.Ends(t.Context(), 7, of, w, group); err != nil || !slices.Equal(wire.States(again), ends[first:first+n]) {
			t.Errorf("group %d: %v", group, err)
		}
	}
	many := w
	many.Walkers = 300
	if _, err := e.Walk(t.Context(), 7, of, many); !errors.Is(err, device.ErrMemory) {
		t.Error(err)
	}
	launches := 0
	g.Launched = func(ptx.Kernel) error { launches++; return nil }
	if err := e.Fill(t.Context(), of, 1<<40); err != nil || launches != 0 {
		t.Errorf("what is resident was filled again in %d launches: %v", launches, err)
	}
	other := of
	other.Seed = seed(2)
	if _, err := e.Walk(t.Context(), 7, other, w); !errors.Is(err, device.ErrNoDataset) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Fill(ended, other, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	whole(t, g)
	if _, err := e.Walk(t.Context(), 7, other, w); !errors.Is(err, device.ErrNoDataset) {
		t.Errorf("half a dataset is resident: %v", err)
	}
	if err := e.Fill(t.Context(), other, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Evict(); err != nil {
			t.Fatal(err)
		}
	}
	whole(t, g)
}
