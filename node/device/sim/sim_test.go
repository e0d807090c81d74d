package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

var (
	seed  = sign.Sum([]byte("seed"))
	small = challenge.Shape{Rows: 64, Columns: 128, Depth: 64, Products: 2}
	short = challenge.Walk{Cells: 300, Work: 3, Walkers: 90, Steps: 5}
)

// The answers are those of the processor; the time is that of the class for what it claims.
func TestAnswersAreRealAndTimesTheClasses(t *testing.T) {
	t.Parallel()
	for _, c := range Classes {
		shape, walk, err := audit.Plan(c.Market, c.Resources)
		if err != nil {
			t.Fatal(err)
		}
		clock := &Clock{}
		d := New(Config{Class: c, Serial: "s", Clock: clock, Shape: shape, Walk: walk})
		reference := cpu.New(cpu.Config{Memory: 1 << 20})
		of := device.Of(seed, short)
		if !d.Info().Simulated || d.Info().Kind != device.Sim {
			t.Error("it does not say that it is simulated")
		}
		got, err := d.Multiply(t.Context(), seed, small)
		want, _ := reference.Multiply(t.Context(), seed, small)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s: other products: %v", c.Name, err)
		}
		if took := clock.Now(); took != c.Multiplies(shape) {
			t.Errorf("%s: %v", c.Name, took)
		}
		if _, err := d.Walk(t.Context(), 7, of, short); !errors.Is(err, device.ErrNoDataset) {
			t.Error(err)
		}
		if err := errors.Join(d.Fill(t.Context(), of), reference.Fill(t.Context(), of)); err != nil {
			t.Fatal(err)
		}
		before := clock.Now()
		ends, err := d.Walk(t.Context(), 7, of, short)
		wantEnds, _ := reference.Walk(t.Context(), 7, of, short)
		if err != nil || !slices.Equal(ends, wantEnds) {
			t.Fatalf("%s: other ends: %v", c.Name, err)
		}
		if took := clock.Now() - before; took != c.Walks(walk, Whole) {
			t.Errorf("%s: walked for %v", c.Name, took)
		}
		if err := errors.Join(d.Evict(t.Context()), d.Close()); err != nil {
			t.Error(err)
		}
	}
}

// Honest hardware is above the floors of its class by what they leave it, and half of it is below.
func TestClassesMeetTheirFloors(t *testing.T) {
	t.Parallel()
	for _, c := range append(slices.Clone(GPUs), CPU16) {
		floor, ok := audit.FloorOf(c.Market, c.Resources)
		if !ok {
			t.Fatalf("%s has no floor", c.Name)
		}
		if r := c.Operations / float64(floor.Operations); r < 1.4 || r >= 2.1 {
			t.Errorf("%s: %.2f times the floor in arithmetic", c.Name, r)
		}
		if r := c.Reads / float64(floor.Reads); r < 1.2 || r >= 2.5 {
			t.Errorf("%s: %.2f times the floor in reads", c.Name, r)
		}
	}
}

func TestDatasetMustFit(t *testing.T) {
	t.Parallel()
	_, walk, err := audit.Plan(H200.Market, H200.Resources)
	if err != nil {
		t.Fatal(err)
	}
	of := device.Of(seed, short)
	cfg := Config{Class: H100, Clock: &Clock{}, Walk: walk}
	if err := New(cfg).Fill(t.Context(), of); !errors.Is(err, device.ErrMemory) {
		t.Errorf("the dataset of an H200 on an H100: %v", err)
	}
	cfg.Have = Share{Resident: 0.5}
	if err := New(cfg).Fill(t.Context(), of); err != nil {
		t.Error(err)
	}
	if half, whole := H100.Walks(walk, cfg.Have), H100.Walks(walk, Whole); half < 10*whole {
		t.Errorf("half of the cells made again: %v instead of %v", half, whole)
	}
}

func TestNoise(t *testing.T) {
	t.Parallel()
	n := Noise{rand.New(rand.NewPCG(1, 2))}
	out := Outages{N: n}
	away, hours := 0, 200_000
	for h := range hours {
		at := time.Duration(h) * time.Hour
		if out.Away(at, at+3*time.Second) {
			away++
		}
		if s := n.Speed(); s < 0.5 || s > 1.1 {
			t.Fatalf("speed %v", s)
		}
		if d := n.Trip(); d < 5*time.Millisecond || d > 350*time.Millisecond {
			t.Fatalf("a round trip of %v", d)
		}
	}
	if share := float64(away) / float64(hours); share < 0.003 || share > 0.007 {
		t.Errorf("away for %.4f of the time", share)
	}
}
