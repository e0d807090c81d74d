package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/gauges"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
)

// watcher is a GPU that computes nothing and looks at what a program does meanwhile.
type watcher struct {
	device.Device
	uuid string
	look func()
	fail error
}

func (w *watcher) Info() device.Info { return device.Info{Serial: w.uuid, Memory: 1} }
func (w *watcher) Close() error      { return nil }

func (w *watcher) Multiply(context.Context, sign.Hash, challenge.Shape) ([]sign.Hash, error) {
	w.look()
	time.Sleep(time.Millisecond) // what computing takes
	return []sign.Hash{sign.Sum([]byte(w.uuid))}, w.fail
}

// All GPUs of a container compute at once while its program stands still; it goes on afterwards, and when nobody asks, and when there is
// no memory.
func TestGPUsAreGauged(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var program string // its directory in /proc
	var fail error
	var open error
	opened, moving, looked := map[string]bool{}, 0, 0
	state := func() string {
		b, err := os.ReadFile(program + "/stat")
		if err != nil {
			return err.Error()
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		return rest[:1]
	}
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		if looked++; state() != "T" {
			moving++
		}
	}
	r := newRuntime(t, shared, func(c *Config) {
		c.GPU = func(_ context.Context, uuid string) (device.Device, error) {
			mu.Lock()
			defer mu.Unlock()
			opened[uuid] = true
			return &watcher{uuid: uuid, look: look, fail: fail}, open
		}
	})
	s := spec(t, pulled(t, r, "plain", nil), "polite")
	s.GPUs = []string{"GPU-aaaa", "GPU-bbbb"}
	h := start(t, r, s)
	guard := fmt.Sprint(guardOf(t, r, h))
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range all {
		if b, err := os.ReadFile(at); err == nil {
			if _, rest, _ := strings.Cut(string(b), ") "); len(strings.Fields(rest)) > 1 && strings.Fields(rest)[1] == guard {
				program = filepath.Dir(at)
			}
		}
	}
	if program == "" {
		t.Fatal("the guard runs nothing")
	}
	goesOn := func() {
		t.Helper()
		for ctx := t.Context(); state() == "T"; time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatal("it stands still")
			}
		}
	}
	g, err := r.Gauge(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if !g.GPU() || g.Devices() != 2 || len(opened) != 2 || state() != "T" {
		t.Errorf("%d devices, GPUs: %v, %v opened, the program is %s", g.Devices(), g.GPU(), opened, state())
	}
	var got sync.Map
	each := func(i int, tiles []sign.Hash) error {
		got.Store(i, tiles[0])
		return nil
	}
	shape := exclusive.Fit(exclusive.GPU, 0)
	if err := g.Multiply(t.Context(), make([]sign.Hash, 2), shape, each); err != nil {
		t.Fatal(err)
	}
	goesOn()
	for i, uuid := range s.GPUs {
		if tile, _ := got.Load(i); tile != sign.Sum([]byte(uuid)) {
			t.Errorf("%s did not answer for itself", uuid)
		}
	}
	if err := g.Multiply(t.Context(), make([]sign.Hash, 2), shape, each); !errors.Is(err, gauges.ErrLate) {
		t.Errorf("a second question: %v", err)
	}
	if err := g.Close(); err != nil || moving > 0 || looked < 4 {
		t.Errorf("%d of %d times it went on meanwhile, %v", moving, looked, err)
	}

	// Nobody asks.
	if g, err = r.Gauge(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	goesOn()

	mu.Lock()
	fail = device.ErrMemory
	mu.Unlock()
	if _, err := r.Gauge(t.Context(), h); !errors.Is(err, device.ErrMemory) || errors.Is(err, runtime.ErrDevice) {
		t.Errorf("no memory: %v", err)
	}
	goesOn()
	mu.Lock()
	fail, open = nil, cuda.ErrUUID
	mu.Unlock()
	if _, err := r.Gauge(t.Context(), h); !errors.Is(err, runtime.ErrDevice) {
		t.Errorf("another device: %v", err)
	}
	goesOn()
}
