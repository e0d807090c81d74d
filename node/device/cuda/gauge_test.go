package cuda

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/runtime/gauge"
	"github.com/starling-network/starling/verify/exclusive"
)

// A lease's GPUs, as a probe has them: helpers of this machine, each restricted to one UUID.
func TestGauge(t *testing.T) {
	t.Parallel()
	mode := func(mode string) func(context.Context, string) (device.Device, error) {
		return func(ctx context.Context, id string) (device.Device, error) {
			cfg := config(t, mode)
			cfg.UUID = id
			return Open(ctx, cfg)
		}
	}
	g, err := gauge.OpenGPUs(t.Context(), []string{uuid, uuid}, mode("good"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	var mu sync.Mutex
	got := map[int][]sign.Hash{}
	each := func(i int, tiles []sign.Hash) error {
		mu.Lock()
		defer mu.Unlock()
		got[i] = tiles
		return nil
	}
	seeds := []sign.Hash{{1}, {2}}
	if err := g.Multiply(t.Context(), seeds, shape, each); err != nil {
		t.Fatal(err)
	}
	c := cpu.New(cpu.Config{})
	for i, seed := range seeds {
		if want, err := c.Multiply(t.Context(), seed, shape); err != nil || !slices.Equal(want, got[i]) {
			t.Errorf("device %d answers something else, %v", i, err)
		}
	}
	// What a program has filled: a probe's product has no room, and the devices are as they were.
	if err := g.Multiply(t.Context(), seeds, exclusive.Fit(exclusive.GPU, 0), each); !errors.Is(err, device.ErrMemory) {
		t.Errorf("no room: %v", err)
	}
	if err := g.Multiply(t.Context(), seeds, shape, each); err != nil {
		t.Error(err)
	}
	if err := g.Multiply(t.Context(), seeds[:1], shape, each); !errors.Is(err, gauge.ErrAnswer) {
		t.Errorf("one product for two: %v", err)
	}

	// Another device than was leased is refused, wherever it is among the others.
	if _, err := gauge.OpenGPUs(t.Context(), []string{uuid, strings.Replace(uuid, "00010203", "ffffffff", 1)}, mode("good")); !errors.Is(err, ErrUUID) {
		t.Errorf("another device: %v", err)
	}
	if _, err := gauge.OpenGPUs(t.Context(), []string{uuid}, mode("no-library")); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("no driver: %v", err)
	}
	full := func(ctx context.Context, id string) (device.Device, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return Open(ctx, Config{UUID: id, Helper: self, Reserve: gauge.GPUReserve, env: []string{helperMode + "=good"}})
	}
	if _, err := gauge.OpenGPUs(t.Context(), []string{uuid}, full); !errors.Is(err, device.ErrMemory) {
		t.Errorf("less free than a program may want in the same moment: %v", err)
	}
}
