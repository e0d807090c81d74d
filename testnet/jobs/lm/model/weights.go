package model

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"math"
)

// A weights file, little-endian:
//
//	offset  size  field
//	0       4     "STLM"
//	4       1     version, 1
//	5       1     bits: the table has 2^bits weights, MinBits to MaxBits
//	6       2     reserved, zero
//	8       4     rounds behind it
//	12      8     bytes trained on
//	20      8     sum of the weights file it was trained from
//	28      3·2^bits 24 bits for each weight: the weight in the high 12, two's complement, in units of 1/weightUnit;
//	              its gradient sum in the low 12, as a small float
//	end     8     sum of all before: CRC-64 (ECMA). It detects mistakes; the network's content ids detect forgery
//
// The gradient sum is a float of 5 bits of exponent and 7 of mantissa: the upper half of a float32 less lowestExponent.
// Zero is a weight that was never updated, which is zero too.
const (
	magic      = "STLM"
	version    = 1
	headerSize = 28
	sumSize    = 8
	packedSize = 3

	weightUnit = 128
	maxWeight  = 1<<11 - 1
	maxSum     = 1<<12 - 1
	// lowestExponent is 2^-8 as the upper half of a float32.
	lowestExponent = (127 - 8) << 7
)

var (
	// ErrMalformed means that bytes are not a weights file.
	ErrMalformed = errors.New("malformed weights")
	// ErrMismatch means that weights have different tables, rounds or bases.
	ErrMismatch = errors.New("weights do not belong together")
)

var ecma = crc64.MakeTable(crc64.ECMA)

// FileSize is the length of a weights file of 2^bits weights.
func FileSize(bits int) int { return headerSize + packedSize<<bits + sumSize }

// packer rounds weights. Rounding is dithered by a generator of fixed seed: a round's addition to a frequent weight is
// often less than a unit, and plain rounding would lose it every time.
type packer struct{ x uint64 }

// next gives 12 random bits and 16 more, by SplitMix64.
func (p *packer) next() (uint32, uint32) {
	p.x += 0x9e3779b97f4a7c15
	z := (p.x ^ p.x>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return uint32(z >> 52), uint32(z & 0xffff)
}

func (p *packer) pack(s slot) uint32 {
	if s.g == 0 {
		return 0
	}
	u, v := p.next()
	w := float32(s.w*weightUnit) + float32(u)/(1<<12) // exact, so that multiples stay
	q := int32(w)
	if float32(q) > w { // towards zero is not down
		q--
	}
	q = min(max(q, -maxWeight), maxWeight)
	g := int32((math.Float32bits(s.g)+v)>>16) - lowestExponent
	g = min(max(g, 1), maxSum)
	return uint32(q)<<12&0xfff000 | uint32(g)
}

func unpack(v uint32) slot {
	if v == 0 {
		return slot{}
	}
	return slot{w: float32(int32(v<<8)>>20) / weightUnit, g: math.Float32frombits((v&maxSum + lowestExponent) << 16)}
}

// Write encodes the model and returns the sum at the file's end, which is the Base of models trained from it. m keeps
// the rounded-off part; Read returns the rounded model.
func (m *Model) Write(w io.Writer) (uint64, error) {
	sum := crc64.New(ecma)
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16)
	head := make([]byte, headerSize)
	copy(head, magic)
	head[4], head[5] = version, byte(m.bits)
	binary.LittleEndian.PutUint32(head[8:], m.Round)
	binary.LittleEndian.PutUint64(head[12:], m.Bytes)
	binary.LittleEndian.PutUint64(head[20:], m.Base)
	_, _ = out.Write(head) // the first error stays with out
	p := packer{uint64(m.Round)}
	var b [4]byte
	for _, s := range m.slots {
		binary.LittleEndian.PutUint32(b[:], p.pack(s))
		_, _ = out.Write(b[:packedSize])
	}
	if err := out.Flush(); err != nil {
		return 0, fmt.Errorf("writing weights: %w", err)
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, sum.Sum64())); err != nil {
		return 0, fmt.Errorf("writing weights: %w", err)
	}
	return sum.Sum64(), nil
}

// Read decodes a weights file and returns the sum at its end. It allocates at most the size in the header, and
// FileSize(MaxBits) of file. All errors but those of r are ErrMalformed.
func Read(r io.Reader) (*Model, uint64, error) {
	sum := crc64.New(ecma)
	in := bufio.NewReaderSize(r, 1<<16)
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, 0, fmt.Errorf("%w: header: %w", ErrMalformed, err)
	}
	bits := int(head[5])
	switch {
	case string(head[:4]) != magic:
		return nil, 0, fmt.Errorf("%w: begins with %q", ErrMalformed, head[:4])
	case head[4] != version:
		return nil, 0, fmt.Errorf("%w: version %d", ErrMalformed, head[4])
	case bits < MinBits || bits > MaxBits:
		return nil, 0, fmt.Errorf("%w: table of 2^%d weights", ErrMalformed, bits)
	case head[6] != 0 || head[7] != 0:
		return nil, 0, fmt.Errorf("%w: reserved bytes are set", ErrMalformed)
	}
	_, _ = sum.Write(head)
	m := New(bits)
	m.Round, m.Bytes = binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint64(head[12:])
	m.Base = binary.LittleEndian.Uint64(head[20:])
	if err := m.readTable(io.TeeReader(in, sum)); err != nil {
		return nil, 0, err
	}
	tail := make([]byte, sumSize+1)
	if n, err := io.ReadFull(in, tail); n != sumSize || !errors.Is(err, io.ErrUnexpectedEOF) ||
		binary.LittleEndian.Uint64(tail) != sum.Sum64() {
		return nil, 0, fmt.Errorf("%w: sum does not match", ErrMalformed)
	}
	return m, sum.Sum64(), nil
}

func (m *Model) readTable(r io.Reader) error {
	buf := make([]byte, packedSize<<MinBits) // divides the table whatever its size
	for i := 0; i < len(m.slots); i += 1 << MinBits {
		if _, err := io.ReadFull(r, buf); err != nil {
			return fmt.Errorf("%w: table: %w", ErrMalformed, err)
		}
		for j := range 1 << MinBits {
			b := buf[packedSize*j:]
			v := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
			if v&maxSum == 0 && v != 0 || v>>12 == 1<<11 {
				return fmt.Errorf("%w: weight %d is %#06x", ErrMalformed, i+j, v)
			}
			m.slots[i+j] = unpack(v)
		}
	}
	return nil
}

// Sum is the sum that Write returns.
func (m *Model) Sum() uint64 {
	sum, _ := m.Write(io.Discard) // never fails
	return sum
}

// Rounded is the model with the weights of its file.
func (m *Model) Rounded() *Model {
	r := New(m.bits)
	p := packer{uint64(m.Round)}
	for i, s := range m.slots {
		r.slots[i] = unpack(p.pack(s))
	}
	r.Round, r.Bytes, r.Base = m.Round, m.Bytes, m.Base
	return r
}

// Finite reports whether every weight is a number, for tests.
func (m *Model) Finite() bool {
	for _, s := range m.slots {
		if math.IsNaN(float64(s.w)) || math.IsInf(float64(s.w), 0) || !(s.g >= 0) {
			return false
		}
	}
	return true
}
