package gauge

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
)

// busy is a GPU that has a program's work to do until some moment and does both at half of the speed until then. Its clock is its own.
type busy struct {
	device.Device
	at, until time.Duration
	each      time.Duration // of a product, alone
	fails     error
}

func (b *busy) Info() device.Info { return device.Info{Serial: "GPU-busy", Memory: 1} }
func (b *busy) Close() error      { return nil }

func (b *busy) Multiply(_ context.Context, _ sign.Hash, s challenge.Shape) ([]sign.Hash, error) {
	took := b.each * time.Duration(s.Products)
	if b.at < b.until {
		took *= 2
	}
	b.at += took
	return nil, b.fails
}

// A program's queue is done before its buyer asks; who shares the GPU for ever is not waited for.
func TestSettle(t *testing.T) {
	t.Parallel()
	for _, each := range []time.Duration{300 * time.Microsecond, 4 * time.Millisecond, 30 * time.Millisecond} {
		known := &Fastest{}
		slack := 4 * max(each, warmTime)
		for _, c := range []struct {
			what        string
			until       time.Duration
			least, most time.Duration
		}{
			{"nothing is known", 0, patience, patience},
			{"idle", 0, 0, 0},
			{"a short queue", 40 * time.Millisecond, 40 * time.Millisecond, 40 * time.Millisecond},
			{"a long queue", 800 * time.Millisecond, 800 * time.Millisecond, 800 * time.Millisecond},
			{"shared for ever", time.Hour, patience, patience},
			{"idle again", 0, 0, 0},
		} {
			b := &busy{each: each, until: c.until}
			g := GPUs{devices: []device.Device{b}, uuids: []string{"GPU-busy"}, warm: exclusive.Fit(exclusive.GPU, 0), now: func() time.Time { return time.Unix(0, int64(b.at)) }}
			if err := g.Settle(t.Context(), known); err != nil {
				t.Fatal(err)
			}
			if b.at < c.least || b.at > c.most+slack {
				t.Errorf("%s, products of %v: settled after %v", c.what, each, b.at)
			}
		}
	}
	fails := &busy{each: time.Millisecond, fails: device.ErrMemory}
	g := GPUs{devices: []device.Device{fails}, uuids: []string{""}, warm: exclusive.Fit(exclusive.GPU, 0), now: time.Now}
	if err := g.Settle(t.Context(), &Fastest{}); !errors.Is(err, device.ErrMemory) {
		t.Error(err)
	}
}

// A device that is not the one asked for, or that has nothing free, is not gauged.
func TestOpenGPUsRefuses(t *testing.T) {
	t.Parallel()
	open := func(context.Context, string) (device.Device, error) { return &busy{}, nil }
	if _, err := OpenGPUs(t.Context(), []string{"GPU-busy", "GPU-other"}, open); !errors.Is(err, ErrAnswer) {
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, err := OpenGPUs(t.Context(), []string{"GPU-busy"}, func(context.Context, string) (device.Device, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}
