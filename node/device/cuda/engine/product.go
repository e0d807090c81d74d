package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/verify/challenge"
)

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
func (e *Engine) Multiply(
	ctx context.Context, seed sign.Hash, s challenge.Shape, take func(hashes []byte) error,
) (err error) {
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
func (p *product) lines(
	ctx context.Context, pace *pace, at uint64, m challenge.Matrix, t uint32, first, n uint64,
) error {
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
