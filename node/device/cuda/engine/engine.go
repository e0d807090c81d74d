// Package engine computes challenges on a GPU with the kernels of ../ptx: it plans memory and launches, and manages the
// resident dataset. The GPU is an interface, implemented by the driver, and by ../ptxsim in tests.
//
//	Multiply  B of a product whole, A and C in bands of rows ──▶ hashes of tiles ──▶ copied as products are done
//	Fill      pieces of cells
//	Walk      stretches of the dataset, in pieces of steps ──▶ hashes of ends ──▶ copied once
//
// Launches are queued. The engine waits at first after each launch, and then as rarely as still ends a cancelled call
// within a fraction of a second.
package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/verify/challenge"
)

// GPU is the memory and kernels of one GPU. After an error other than ErrMemory, it must not be used.
type GPU interface {
	// Memory returns the free and all bytes of the device's memory.
	Memory() (free, total uint64, err error)
	// Alloc allocates size bytes and returns their address. It returns device.ErrMemory if they are not free.
	Alloc(size uint64) (uint64, error)
	Free(at uint64) error
	// Launch queues a kernel with this number of blocks.
	Launch(k ptx.Kernel, blocks int, args ...uint64) error
	// Wait returns when all that was queued is done.
	Wait() error
	// Read copies finished results from the GPU.
	Read(dst []byte, at uint64) error
}

// Engine computes on one GPU. Its methods must not be called concurrently.
type Engine struct {
	gpu      GPU
	data     uint64 // of the dataset; 0 if there is none
	resident device.Dataset
	results  []byte // of the call before; long ones would be costly to get anew while the prover's clock runs
}

// New is an engine on a GPU that has nothing resident.
func New(gpu GPU) *Engine { return &Engine{gpu: gpu} }

// Bounds of one launch, so that it ends within a fraction of a second on any GPU.
const (
	maxOperations = 1 << 41 // of a product
	maxBlocks     = 1 << 28 // of the dataset's generator
	maxCells      = 1 << 22
	maxReads      = 1 << 26
)

// space is memory of one call.
type space struct {
	gpu GPU
	at  []uint64
}

func (s *space) alloc(size uint64) (uint64, error) {
	at, err := s.gpu.Alloc(size)
	if err == nil {
		s.at = append(s.at, at)
	}
	return at, err
}

// free waits for the users of the memory and frees it.
func (s *space) free(err error) error {
	if len(s.at) > 0 {
		err = errors.Join(err, s.gpu.Wait())
	}
	for _, at := range s.at {
		err = errors.Join(err, s.gpu.Free(at))
	}
	return err
}

// pace waits for queued launches about ten times a second.
type pace struct {
	gpu     GPU
	queued  int
	between int // launches from one wait to the next
	since   time.Time
}

func newPace(gpu GPU) *pace { return &pace{gpu: gpu, between: 1, since: time.Now()} }

// launch queues one more kernel. It returns the context's error if the context has ended.
func (p *pace) launch(ctx context.Context, k ptx.Kernel, blocks int, args ...uint64) error {
	const often, seldom, most = 50 * time.Millisecond, 200 * time.Millisecond, 1024
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.gpu.Launch(k, blocks, args...); err != nil {
		return fmt.Errorf("launching %s: %w", k.Name, err)
	}
	if p.queued++; p.queued < p.between {
		return nil
	}
	if err := p.gpu.Wait(); err != nil {
		return fmt.Errorf("waiting for %s: %w", k.Name, err)
	}
	switch took := time.Since(p.since); {
	case took < often:
		p.between = min(2*p.between, most)
	case took > seldom:
		p.between = max(p.between/2, 1)
	}
	p.queued, p.since = 0, time.Now()
	return ctx.Err()
}

// words are a key as the kernels take it.
func words(key sign.Hash) []uint64 {
	out := make([]uint64, 0, 8)
	for i := 0; i < len(key); i += 4 {
		out = append(out, uint64(binary.LittleEndian.Uint32(key[i:])))
	}
	return out
}

func pieces(n, each uint64) int { return int((n + each - 1) / each) }

// read waits for the queued work and copies.
func (e *Engine) read(at, size uint64) ([]byte, error) {
	if err := e.gpu.Wait(); err != nil {
		return nil, err
	}
	if uint64(cap(e.results)) < size {
		e.results = make([]byte, size)
	}
	e.results = e.results[:size]
	return e.results, e.gpu.Read(e.results, at)
}

// Fill makes a dataset resident, in the place of the one before, and leaves reserve bytes free.
func (e *Engine) Fill(ctx context.Context, d device.Dataset, reserve uint64) (err error) {
	if e.data != 0 && e.resident == d {
		return nil
	}
	if err := e.Evict(); err != nil {
		return err
	}
	free, total, err := e.gpu.Memory()
	if err != nil {
		return err
	}
	size := d.Cells * challenge.CellSize
	if d.Cells > challenge.MaxCells || reserve > free || size > free-reserve {
		return fmt.Errorf("%w: dataset of %d MiB; of %d MiB %d are free and %d are reserved, "+
			"other programs have the rest (nvidia-smi lists them)",
			device.ErrMemory, size>>20, total>>20, free>>20, reserve>>20)
	}
	at, err := e.gpu.Alloc(size)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.gpu.Wait(), e.gpu.Free(at))
		}
	}()
	each := max(min(maxCells, maxBlocks/uint64(d.Work)), 1)
	key := words(challenge.DatasetKey(d.Seed))
	pace := newPace(e.gpu)
	for first := uint64(0); first < d.Cells; first += each {
		n := min(each, d.Cells-first)
		args := append(append([]uint64{at}, key...), first, n, uint64(d.Work))
		if err := pace.launch(ctx, ptx.Fill, pieces(n, uint64(ptx.Fill.Threads)), args...); err != nil {
			return err
		}
	}
	if err := e.gpu.Wait(); err != nil {
		return err
	}
	e.data, e.resident = at, d
	return nil
}

// Evict gives the dataset's memory back.
func (e *Engine) Evict() error {
	if e.data == 0 {
		return nil
	}
	at := e.data
	e.data = 0
	return e.gpu.Free(at)
}

// Walk walks all walkers of a walk key over the resident dataset and gives the hashes of their ends, group by group.
// They are valid until the next call. device.ErrNoDataset.
func (e *Engine) Walk(ctx context.Context, key uint64, d device.Dataset, w challenge.Walk) (groups []byte, err error) {
	return e.walk(ctx, key, d, w, 0, w.Walkers, func(ends uint64) (hashes []byte, err error) {
		mem := &space{gpu: e.gpu}
		whole := uint64(w.Walkers / challenge.Group)
		out, err := mem.alloc(max(whole, 1) * sign.HashSize)
		if err != nil {
			return nil, err
		}
		defer func() { err = mem.free(err) }()
		if whole > 0 {
			groups := pieces(whole, uint64(ptx.Groups.Threads))
			if err := e.gpu.Launch(ptx.Groups, groups, ends, out, whole); err != nil {
				return nil, fmt.Errorf("launching %s: %w", ptx.Groups.Name, err)
			}
			if hashes, err = e.read(out, whole*sign.HashSize); err != nil {
				return nil, fmt.Errorf("reading hashes: %w", err)
			}
		}
		rest := make([]byte, 8*(w.Walkers%challenge.Group)) // a last group of fewer
		if len(rest) > 0 {
			if err := errors.Join(e.gpu.Wait(), e.gpu.Read(rest, ends+8*whole*challenge.Group)); err != nil {
				return nil, fmt.Errorf("reading ends: %w", err)
			}
			last := challenge.GroupHash(states(rest))
			hashes = append(hashes, last[:]...)
		}
		return hashes, err
	})
}

// Ends walks the walkers of one group and gives their ends, little-endian. They are valid until the next call.
// device.ErrNoDataset.
func (e *Engine) Ends(
	ctx context.Context, key uint64, d device.Dataset, w challenge.Walk, group uint32,
) ([]byte, error) {
	first, n := w.Members(group)
	return e.walk(ctx, key, d, w, first, n, func(ends uint64) ([]byte, error) { return e.read(ends, 8*uint64(n)) })
}

func states(raw []byte) []uint64 {
	out := make([]uint64, len(raw)/8)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(raw[8*i:])
	}
	return out
}

// walk walks n walkers from first on and passes the address of their ends to done.
func (e *Engine) walk(
	ctx context.Context, key uint64, d device.Dataset, w challenge.Walk, first, n uint32,
	done func(ends uint64) ([]byte, error),
) (out []byte, err error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	var resident *device.Dataset
	if e.data != 0 {
		resident = &e.resident
	}
	if err := device.Holds(resident, d, w); err != nil {
		return nil, err
	}
	mem := &space{gpu: e.gpu}
	defer func() { err = mem.free(err) }()
	at, err := mem.alloc(8 * uint64(n))
	if err != nil {
		return nil, err
	}
	each := max(uint32(maxReads)/n, 1)
	pace := newPace(e.gpu)
	begin := uint64(1)
	for j := range w.Stretches() {
		cell, cells, from, to := w.Stretch(j)
		for ; from < to; from += each {
			err := pace.launch(ctx, ptx.Walk, pieces(uint64(n), uint64(ptx.Walk.Threads)),
				e.data+cell*challenge.CellSize, at, key, cells,
				uint64(first), uint64(n), uint64(min(each, to-from)), begin)
			if err != nil {
				return nil, err
			}
			begin = 0
		}
	}
	return done(at)
}

// Memory returns the bytes that a dataset could take: the free ones, and those of the resident dataset.
func (e *Engine) Memory() (free, total uint64, err error) {
	free, total, err = e.gpu.Memory()
	if err == nil && e.data != 0 {
		free += e.resident.Cells * challenge.CellSize
	}
	return free, total, err
}
