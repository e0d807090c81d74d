// Package cpu answers challenges with the processor. CPU units are audited with it, and it is the reference for other
// devices.
//
// Products are computed in blocks: 64 columns of B are generated and packed once for a band of many rows of A, so the
// generator is a small part of the work. The datasets of a machine's CPU units lie in its main memory.
package cpu

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/verify/challenge"
)

// Config is the configuration of a CPU device.
type Config struct {
	Model   string
	Serial  string // machine id
	Memory  uint64 // bytes its dataset may take
	Threads int    // at once; 0 means all that Go uses
}

// New is a CPU device.
func New(cfg Config) *Device {
	if cfg.Threads < 1 {
		cfg.Threads = runtime.GOMAXPROCS(0)
	}
	return &Device{cfg: cfg, turn: make(chan struct{}, 1)}
}

// Device is the processor. See device.Device.
type Device struct {
	cfg  Config
	turn chan struct{} // held by the call that works

	// Owned by the holder of the turn.
	closed   bool
	resident *device.Dataset
	cells    []challenge.Cell
}

var _ device.Device = (*Device)(nil)

// Info describes the device.
func (d *Device) Info() device.Info {
	return device.Info{Kind: device.CPU, Model: d.cfg.Model, Serial: d.cfg.Serial, Memory: d.cfg.Memory}
}

// take waits for the turn.
func (d *Device) take(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if d.closed {
		<-d.turn
		return device.ErrClosed
	}
	return nil
}

func (d *Device) give() { <-d.turn }

// Close frees the dataset.
func (d *Device) Close() error {
	d.turn <- struct{}{}
	defer d.give()
	d.closed, d.resident, d.cells = true, nil, nil
	return nil
}

// Fill makes a dataset resident.
func (d *Device) Fill(ctx context.Context, of device.Dataset) error {
	if err := d.take(ctx); err != nil {
		return err
	}
	defer d.give()
	if d.resident != nil && *d.resident == of {
		return nil
	}
	if of.Cells < 1 || of.Cells > d.cfg.Memory/challenge.CellSize {
		return fmt.Errorf("%w: a dataset of %d MiB, %d MiB are allowed",
			device.ErrMemory, of.Cells*challenge.CellSize>>20, d.cfg.Memory>>20)
	}
	d.resident = nil
	if uint64(cap(d.cells)) < of.Cells {
		d.cells = nil // before the new one is there, not beside it
		d.cells = make([]challenge.Cell, of.Cells)
	}
	d.cells = d.cells[:of.Cells]
	const piece = 4096
	set := challenge.NewDataset(of.Seed, of.Work)
	err := d.parallel(ctx, int((of.Cells+piece-1)/piece), func() func(int) {
		own := set
		return func(i int) {
			for j := uint64(i) * piece; j < min(uint64(i+1)*piece, of.Cells); j++ {
				d.cells[j] = own.Cell(j)
			}
		}
	})
	if err == nil {
		d.resident = &of
	}
	return err
}

// Evict gives the memory of the dataset back.
func (d *Device) Evict(ctx context.Context) error {
	if err := d.take(ctx); err != nil {
		return err
	}
	defer d.give()
	d.resident, d.cells = nil, nil
	return nil
}

// Walk walks all walkers.
func (d *Device) Walk(ctx context.Context, key uint64, of device.Dataset, w challenge.Walk) ([]sign.Hash, error) {
	if err := d.over(ctx, of, w); err != nil {
		return nil, err
	}
	defer d.give()
	groups := make([]sign.Hash, w.Groups())
	const together = 16 // number of walkers that wait for a read of memory at the same time
	err := d.parallel(ctx, len(groups), func() func(int) {
		return func(i int) {
			first, n := w.Members(uint32(i))
			ends := make([]uint64, n)
			for at := uint32(0); at < n; at += together {
				d.walk(ends[at:min(at+together, n)], key, first+at, w)
			}
			groups[i] = challenge.GroupHash(ends)
		}
	})
	return groups, err
}

// Ends walks one group.
func (d *Device) Ends(
	ctx context.Context, key uint64, of device.Dataset, w challenge.Walk, group uint32,
) ([]uint64, error) {
	if err := d.over(ctx, of, w); err != nil {
		return nil, err
	}
	defer d.give()
	first, n := w.Members(group)
	ends := make([]uint64, n)
	d.walk(ends, key, first, w)
	return ends, nil
}

// over takes the turn for a walk over the resident dataset.
func (d *Device) over(ctx context.Context, of device.Dataset, w challenge.Walk) error {
	if err := w.Check(); err != nil {
		return err
	}
	if err := d.take(ctx); err != nil {
		return err
	}
	err := device.Holds(d.resident, of, w)
	if err != nil {
		d.give()
	}
	return err
}

// walk walks the walkers from first on, step by step together: each step of one waits for memory, and they wait at
// once.
func (d *Device) walk(ends []uint64, key uint64, first uint32, w challenge.Walk) {
	for k := range ends {
		ends[k] = challenge.Start(key, first+uint32(k))
	}
	for j := range w.Stretches() {
		at, n, from, to := w.Stretch(j)
		cells := d.cells[at : at+n]
		for range to - from {
			for k, s := range ends {
				ends[k] = challenge.Mix(s, cells[challenge.Index(s, n)])
			}
		}
	}
}

// parallel does n pieces on all threads, each with its own worker; it ends early with the context's error.
func (d *Device) parallel(ctx context.Context, n int, worker func() func(int)) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(d.cfg.Threads, n) {
		wg.Go(func() {
			work := worker()
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// band is how many rows of tiles of A share one packing of B. 16 of them, of the greatest depth, are 32 MiB for a
// thread.
const band = 16

// Commit computes the products and commits to them.
func (d *Device) Commit(ctx context.Context, seed sign.Hash, s challenge.Shape) (*challenge.Commitment, error) {
	tiles, err := d.Multiply(ctx, seed, s)
	if err != nil {
		return nil, err
	}
	return device.Committed(s, tiles)
}

// Multiply computes the products.
func (d *Device) Multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) ([]sign.Hash, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if err := d.take(ctx); err != nil {
		return nil, err
	}
	defer d.give()
	down, across := int(s.Rows/challenge.TileSide), int(s.Columns/challenge.TileSide)
	bands := (down + band - 1) / band
	tiles := make([]sign.Hash, s.Tiles())
	g := challenge.ProductGenerator(seed)
	for product := range s.Products {
		for b := range bands {
			first, last := b*band, min((b+1)*band, down)
			rows := make([]challenge.Lines, last-first)
			err := d.parallel(ctx, len(rows), func() func(int) {
				own := g
				return func(i int) {
					at := uint32(first+i) * challenge.TileSide
					rows[i] = challenge.NewLines(&own, s, challenge.A, product, at, challenge.TileSide)
				}
			})
			if err != nil {
				return nil, err
			}
			err = d.parallel(ctx, across, func() func(int) {
				own, tile := g, challenge.Tile{}
				return func(j int) {
					at := uint32(j) * challenge.TileSide
					lines := challenge.NewLines(&own, s, challenge.B, product, at, challenge.TileSide)
					columns := challenge.Pack(lines)
					for i := range rows {
						tile.Compute(rows[i], columns)
						tiles[(int(product)*down+first+i)*across+j] = tile.Hash()
					}
				}
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return tiles, nil
}
