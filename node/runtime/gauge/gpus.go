package gauge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
)

const (
	// GPUReserve is the memory that a GPU must have free beside a probe's, bytes: the buyer's program may want more in
	// the same moment.
	GPUReserve = 512 << 20
	// patience bounds the wait for a GPU to finish the work of a stopped program. On a shared card it would never end.
	patience = time.Second
	// warmTime is about the time of one batch of products by which Settle measures.
	warmTime = 5 * time.Millisecond
)

// GPUs compute probes on the devices of an execution from outside its sandbox, since an image need not have the
// driver's library. Each device is opened by its UUID. GPUs must be used by one goroutine.
type GPUs struct {
	devices []device.Device
	uuids   []string
	warm    challenge.Shape
	now     func() time.Time
}

// OpenGPUs opens all devices concurrently, by UUID. It returns device.ErrMemory if a device has almost no free memory.
func OpenGPUs(
	ctx context.Context, uuids []string, open func(ctx context.Context, uuid string) (device.Device, error),
) (*GPUs, error) {
	g := &GPUs{
		devices: make([]device.Device, len(uuids)),
		uuids:   uuids,
		warm:    exclusive.Fit(exclusive.GPU, 0),
		now:     time.Now,
	}
	err := g.all(func(i int) error {
		d, err := open(ctx, uuids[i])
		if err != nil {
			return fmt.Errorf("%s: %w", uuids[i], err)
		}
		g.devices[i] = d
		if about := d.Info(); about.Serial != uuids[i] {
			return fmt.Errorf("%s: %w: serial: got %s", uuids[i], ErrAnswer, about.Serial)
		} else if about.Memory == 0 {
			return fmt.Errorf("%s: %w: filled by the program", uuids[i], device.ErrMemory)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// all does something with each device at once and waits for all. Memory that is missing is the reason that counts.
func (g *GPUs) all(do func(i int) error) error {
	errs := make([]error, len(g.devices))
	var wg sync.WaitGroup
	for i := range g.devices {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Fastest remembers the highest speed of each idle GPU. The zero Fastest is empty.
type Fastest struct {
	mu   sync.Mutex
	each map[string]time.Duration // one product, by UUID
}

// of is the fastest product before; 0 where none is known.
func (f *Fastest) of(uuid string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.each[uuid]
}

func (f *Fastest) see(uuid string, each time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.each == nil {
		f.each = map[string]time.Duration{}
	}
	if was, ok := f.each[uuid]; !ok || each < was {
		f.each[uuid] = each
	}
}

// Settle waits until the devices have finished a stopped program's queued work, which stopping a process does not stop.
// It computes products until they take their usual time, or its patience ends, as it does for the first.
func (g *GPUs) Settle(ctx context.Context, known *Fastest) error {
	return g.all(func(i int) error {
		s := g.warm
		before := known.of(g.uuids[i])
		for begun := g.now(); ; {
			at := g.now()
			if _, err := g.devices[i].Multiply(ctx, sign.Hash{}, s); err != nil {
				return err
			}
			each := max(g.now().Sub(at)/time.Duration(s.Products), 1)
			known.see(g.uuids[i], each)
			if each <= before+before/4 || g.now().Sub(begun) >= patience {
				return nil
			}
			s.Products = uint32(min(max(warmTime/each, 1), exclusive.MaxProducts/4))
		}
	})
}

// GPU implements runtime.Gauge: GPUs compute.
func (*GPUs) GPU() bool { return true }

// Devices is how many there are.
func (g *GPUs) Devices() int { return len(g.devices) }

// Multiply computes on all devices at once. If one fails, the others are cancelled.
func (g *GPUs) Multiply(
	ctx context.Context, seeds []sign.Hash, s challenge.Shape, each func(i int, tiles []sign.Hash) error,
) error {
	if len(seeds) != len(g.devices) {
		return fmt.Errorf("%w: %d products for %d GPUs", ErrAnswer, len(seeds), len(g.devices))
	}
	of, ctx := errgroup.WithContext(ctx)
	for i, d := range g.devices {
		of.Go(func() error {
			tiles, err := d.Multiply(ctx, seeds[i], s)
			if err != nil {
				return err
			}
			return each(i, tiles)
		})
	}
	return of.Wait()
}

// Close closes the devices.
func (g *GPUs) Close() error {
	return g.all(func(i int) error {
		if g.devices[i] == nil {
			return nil
		}
		return g.devices[i].Close()
	})
}
