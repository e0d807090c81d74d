package runtimetest

import (
	"context"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/verify/challenge"
)

// DefaultSpeed is the speed of a Fake without a Speed, operations a second.
const DefaultSpeed = 10e9

// Gauge computes the right answers, in the time that Speed gives.
func (f *Fake) Gauge(_ context.Context, h runtime.Handle) (runtime.Gauge, error) {
	_, err := f.running(h)
	if err != nil {
		return nil, err
	}
	return &fakeGauge{f: f, h: h, d: cpu.New(cpu.Config{Threads: 1})}, nil
}

type fakeGauge struct {
	f *Fake
	h runtime.Handle
	d *cpu.Device
}

// GPU implements runtime.Gauge: the processor computes.
func (*fakeGauge) GPU() bool { return false }

// Devices is 1.
func (g *fakeGauge) Devices() int { return 1 }

// Multiply computes at once and lets the time pass that it should have taken.
func (g *fakeGauge) Multiply(
	ctx context.Context, seeds []sign.Hash, s challenge.Shape, each func(int, []sign.Hash) error,
) error {
	return runtime.One(seeds, each, func(seed sign.Hash) ([]sign.Hash, error) { return g.multiply(ctx, seed, s) })
}

func (g *fakeGauge) multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) ([]sign.Hash, error) {
	if err := g.f.Pause(ctx, g.h); err != nil {
		return nil, err
	}
	defer func() { _ = g.f.Resume(ctx, g.h) }()
	tiles, err := g.d.Multiply(ctx, seed, s)
	speed := DefaultSpeed
	if g.f.Speed != nil {
		speed = g.f.Speed()
	}
	time.Sleep(time.Duration(float64(s.Operations()) / speed * float64(time.Second)))
	return tiles, err
}

// Close does nothing.
func (g *fakeGauge) Close() error { return g.d.Close() }
