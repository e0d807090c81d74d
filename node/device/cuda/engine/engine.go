// Package engine computes challenges on a GPU with the kernels of ../ptx: it plans memory and launches, and knows the
// resident dataset. The GPU stands behind an interface that the driver implements, and in tests ../ptxsim.
//
//	Multiply  B of a product whole, A and C in bands of rows ──▶ hashes of tiles ──▶ copied as products are done
//	Fill      pieces of cells
//	Walk      stretches of the dataset, in pieces of steps ──▶ hashes of ends ──▶ copied once
//
// Launches are queued, and now and then waited for, at first after each and then as seldom as still ends a cancelled
// call within a fraction of a second.
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

// GPU is memory and kernels of one GPU. An error that is not ErrMemory means that nothing more can be asked of it.
type GPU interface {
	// Memory says how many bytes are free and how many there are.
	Memory() (free, total uint64, err error)
	// Alloc gives the address of so many bytes; device.ErrMemory where there are not as many.
	Alloc(size uint64) (uint64, error)
	Free(at uint64) error
	// Launch queues a kernel in so many of its blocks.
	Launch(k ptx.Kernel, blocks int, args ...uint64) error
	// Wait returns when all that was queued is done.
	Wait() error
	// Read copies finished results from the GPU.
	Read(dst []byte, at uint64) error
}

// Engine computes on one GPU. Its methods must not be called at the same time.
type Engine struct {
	gpu      GPU
	data     uint64 // of the dataset; 0 when there is none
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

// launch queues one more. The error is that of the context when it has ended.
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

// product is how one challenge lies in memory.
type product struct {
	shape   challenge.Shape
	key     []uint64
	rows    uint64 // of A and C in a band, a multiple of 128
	columns uint64 // of B and C: the shape's, rounded up to a multiple of 128
	a, b, c uint64
	tiles   uint64
	kept    uint64 // how many hashes lie at tiles
}

// eager is how many hashes of tiles are copied at once at least, but for the last. A copy costs the GPU a pause of
// about its own time.
const eager = 1 << 14

// Multiply computes the products of a seed and passes the hash of every tile to take, in order, 32 bytes each, as they
// are done. The argument of take is valid until it returns; its error ends the call.
func (e *Engine) Multiply(ctx context.Context, seed sign.Hash, s challenge.Shape, take func(hashes []byte) error) (err error) {
	if err := s.Check(); err != nil {
		return err
	}
	mem := &space{gpu: e.gpu}
	defer func() { err = mem.free(err) }()
	p := product{shape: s, key: words(challenge.ProductKey(seed)), columns: up(uint64(s.Columns))}
	if err := p.alloc(mem); err != nil {
		return err
	}
	pace := newPace(e.gpu)
	for t := range s.Products {
		if err := p.lines(ctx, pace, p.b, challenge.B, t, 0, p.columns); err != nil {
			return err
		}
		for first := uint64(0); first < uint64(s.Rows); first += p.rows {
			if err := p.band(ctx, pace, t, first); err != nil {
				return err
			}
		}
		if p.kept < eager && t+1 < s.Products {
			continue
		}
		hashes, err := e.read(p.tiles, p.kept*sign.HashSize)
		if err != nil {
			return fmt.Errorf("reading hashes: %w", err)
		}
		p.kept = 0
		if err := take(hashes); err != nil {
			return err
		}
	}
	return nil
}

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

// up rounds to a multiple of a block's side.
func up(n uint64) uint64 { return (n + ptx.BlockSide - 1) / ptx.BlockSide * ptx.BlockSide }

// alloc takes memory: for the widest band that a launch may have and that fits.
func (p *product) alloc(mem *space) error {
	s := p.shape
	var err error
	one := uint64(s.Tiles()) / uint64(s.Products)
	if p.tiles, err = mem.alloc(min(eager+one, uint64(s.Tiles())) * sign.HashSize); err != nil {
		return err
	}
	if p.b, err = mem.alloc(p.columns * uint64(s.Depth)); err != nil {
		return err
	}
	row := 2 * p.columns * uint64(s.Depth)
	p.rows = min(up(uint64(s.Rows)), max(maxOperations/row/ptx.BlockSide, 1)*ptx.BlockSide)
	for {
		// One allocation, so that a try which fails leaves nothing behind.
		of := p.rows * uint64(s.Depth)
		p.a, err = mem.alloc(of + 4*p.rows*p.columns)
		if err == nil {
			p.c = p.a + of
			return nil
		}
		if !errors.Is(err, device.ErrMemory) || p.rows == ptx.BlockSide {
			return err
		}
		p.rows = max(p.rows/2/ptx.BlockSide, 1) * ptx.BlockSide
	}
}

// lines makes lines of a matrix.
func (p *product) lines(ctx context.Context, pace *pace, at uint64, m challenge.Matrix, t uint32, first, n uint64) error {
	blocks := uint64(p.shape.Depth / challenge.BlockSize)
	args := append(append([]uint64{at}, p.key...), uint64(2*t+uint32(m)), first, blocks, n*blocks)
	return pace.launch(ctx, ptx.Rows, pieces(n*blocks, uint64(ptx.Rows.Threads)), args...)
}

// band computes and hashes a band of rows of a product.
func (p *product) band(ctx context.Context, pace *pace, t uint32, first uint64) error {
	s := p.shape
	n := min(p.rows, uint64(s.Rows)-first)
	if err := p.lines(ctx, pace, p.a, challenge.A, t, first, up(n)); err != nil {
		return err
	}
	down, right := up(n)/ptx.BlockSide, p.columns/ptx.BlockSide
	if err := pace.launch(ctx, ptx.Gemm, int(down*right), p.a, p.b, p.c, uint64(s.Depth), down, right); err != nil {
		return err
	}
	across := uint64(s.Columns / challenge.TileSide)
	count := n / challenge.TileSide * across
	at := p.tiles + p.kept*sign.HashSize
	p.kept += count
	return pace.launch(ctx, ptx.Tiles, pieces(count, ptx.BlockTiles), p.c, at, p.columns, across, count)
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
		return fmt.Errorf("%w: a dataset of %d MiB; of %d MiB %d are free and %d stay so, other programs have the rest (nvidia-smi lists them)",
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
			if err := e.gpu.Launch(ptx.Groups, pieces(whole, uint64(ptx.Groups.Threads)), ends, out, whole); err != nil {
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
func (e *Engine) Ends(ctx context.Context, key uint64, d device.Dataset, w challenge.Walk, group uint32) ([]byte, error) {
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
func (e *Engine) walk(ctx context.Context, key uint64, d device.Dataset, w challenge.Walk, first, n uint32, done func(ends uint64) ([]byte, error)) (out []byte, err error) {
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
				e.data+cell*challenge.CellSize, at, key, cells, uint64(first), uint64(n), uint64(min(each, to-from)), begin)
			if err != nil {
				return nil, err
			}
			begin = 0
		}
	}
	return done(at)
}

// Memory says how many bytes a dataset could take: those that are free, and those of the one that is resident.
func (e *Engine) Memory() (free, total uint64, err error) {
	free, total, err = e.gpu.Memory()
	if err == nil && e.data != 0 {
		free += e.resident.Cells * challenge.CellSize
	}
	return free, total, err
}
