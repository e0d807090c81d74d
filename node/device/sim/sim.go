// Package sim is simulated hardware. It returns the real answer to a small challenge, after the time that hardware of
// its class would take for a claimed challenge, on a clock of the caller. Whole networks of GPUs can thus be audited on
// a machine without GPUs, with the real auditing code.
//
// It proves nothing and is always sold as simulated.
package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/verify/challenge"
)

// Clock is virtual time, which its users advance.
type Clock struct {
	mu  sync.Mutex
	now time.Duration
}

// Now is how long ago the clock began.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance advances the clock by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += max(d, 0)
}

// Config is the configuration of a simulated device.
type Config struct {
	Class  Class
	Serial string
	Clock  *Clock
	// Shape and Walk are the question that it pretends to get. Zero: the real one.
	Shape challenge.Shape
	Walk  challenge.Walk
	// Speed is how fast it is beside its class, 1 where it is 0; Have is where its dataset is, resident where it is
	// zero.
	Speed float64
	Have  Share
}

// New is a simulated device.
func New(cfg Config) *Device {
	if cfg.Speed <= 0 {
		cfg.Speed = 1
	}
	if cfg.Have == (Share{}) {
		cfg.Have = Whole
	}
	return &Device{cfg: cfg, real: cpu.New(cpu.Config{
		Model: cfg.Class.Name, Serial: cfg.Serial, Memory: cfg.Class.Memory(), Threads: 1,
	})}
}

// Device is hardware that is not there. See device.Device.
type Device struct {
	cfg  Config
	real *cpu.Device
}

var _ device.Device = (*Device)(nil)

// Info describes the device.
func (d *Device) Info() device.Info {
	return device.Info{
		Kind: device.Sim, Model: d.cfg.Class.Name, Serial: d.cfg.Serial, Memory: d.cfg.Class.Memory(),
		Capability: d.cfg.Class.Capability, Simulated: true,
	}
}

func (d *Device) takes(t time.Duration) { d.cfg.Clock.Advance(seconds(t.Seconds() / d.cfg.Speed)) }

// claimed returns the walk whose time is simulated for w.
func (d *Device) claimed(w challenge.Walk) challenge.Walk {
	if d.cfg.Walk != (challenge.Walk{}) {
		return d.cfg.Walk
	}
	return w
}

// Multiply computes the products in the time that the class takes for the claimed ones.
func (d *Device) Multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) ([]sign.Hash, error) {
	tiles, err := d.real.Multiply(ctx, seed, s)
	if err != nil {
		return nil, err
	}
	if d.cfg.Shape != (challenge.Shape{}) {
		s = d.cfg.Shape
	}
	d.takes(d.cfg.Class.Multiplies(s))
	return tiles, nil
}

// Commit is Multiply and the commitment, which takes no time of the device's.
func (d *Device) Commit(ctx context.Context, seed sign.Hash, s challenge.Shape) (*challenge.Commitment, error) {
	tiles, err := d.Multiply(ctx, seed, s)
	if err != nil {
		return nil, err
	}
	return device.Committed(s, tiles)
}

// Fill makes a dataset resident. It returns ErrMemory if the device's resident part does not fit its class.
func (d *Device) Fill(ctx context.Context, of device.Dataset) error {
	w := d.claimed(challenge.Walk{Cells: of.Cells, Work: of.Work})
	if held := d.cfg.Have.Resident * float64(w.Bytes()); held > float64(d.cfg.Class.Memory()) {
		return fmt.Errorf("%w: %.0f MiB on a %s", device.ErrMemory, held/(1<<20), d.cfg.Class.Name)
	}
	if err := d.real.Fill(ctx, of); err != nil {
		return err
	}
	d.takes(d.cfg.Class.Fills(w.Cells, w.Work))
	return nil
}

// Evict gives the dataset's memory back.
func (d *Device) Evict(ctx context.Context) error { return d.real.Evict(ctx) }

// Walk walks in the time that the class takes for the claimed walk, with its dataset where it is.
func (d *Device) Walk(ctx context.Context, key uint64, of device.Dataset, w challenge.Walk) ([]sign.Hash, error) {
	groups, err := d.real.Walk(ctx, key, of, w)
	if err != nil {
		return nil, err
	}
	d.takes(d.cfg.Class.Walks(d.claimed(w), d.cfg.Have))
	return groups, nil
}

// Ends walks one group, which takes next to no time.
func (d *Device) Ends(
	ctx context.Context, key uint64, of device.Dataset, w challenge.Walk, group uint32,
) ([]uint64, error) {
	return d.real.Ends(ctx, key, of, w, group)
}

// Close frees the dataset.
func (d *Device) Close() error { return d.real.Close() }
