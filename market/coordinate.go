package market

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"time"
)

const (
	// CoordinateDims is how many dimensions network coordinates have.
	CoordinateDims = 8
	// CoordinateSize is the size of the layout, bytes.
	CoordinateSize = 4*CoordinateDims + 8
	// MaxCoordinate bounds each part of a coordinate, microseconds. The largest distance on Earth is below two of them.
	MaxCoordinate = 2_000_000
	// MaxCoordinateError is the error of a peer without measurements, in millionths.
	MaxCoordinateError = 1_500_000
)

// Coordinate is a peer's position in the network (Vivaldi, Dabek et al. 2004, with the height of its section 5.4): the
// distance of two predicts the round trip between them. A peer publishes its own coordinate. It is a hint: round trips
// that matter are measured. The zero value is an unknown coordinate. Layout, little-endian:
//
//	offset  size  field
//	     0    32  vector: 8 × i32, microseconds
//	    32     4  height u32, microseconds: the way to the core of the network, at least 1
//	    36     4  error u32, millionths: how much of a prediction may be wrong
type Coordinate struct {
	Vec    [CoordinateDims]int32
	Height uint32
	Error  uint32
}

// IsZero reports whether the coordinate is unknown.
func (c Coordinate) IsZero() bool { return c == Coordinate{} }

// Check reports the first part out of range. ErrMalformed.
func (c Coordinate) Check() error {
	for i, v := range c.Vec {
		if v < -MaxCoordinate || v > MaxCoordinate {
			return malformed("coordinate", "part %d is %d µs, at most %d", i, v, MaxCoordinate)
		}
	}
	if c.Height < 1 || c.Height > MaxCoordinate {
		return malformed("coordinate", "height %d µs, want 1 to %d", c.Height, MaxCoordinate)
	}
	if c.Error > MaxCoordinateError {
		return malformed("coordinate", "error %d millionths, at most %d", c.Error, MaxCoordinateError)
	}
	return nil
}

// Distance predicts the round trip between two peers: the same on every machine, and from a to b as from b to a.
func (c Coordinate) Distance(to Coordinate) time.Duration {
	var sum int64
	for i := range c.Vec {
		d := int64(c.Vec[i]) - int64(to.Vec[i])
		sum += d * d // at most 8 · (4·10⁶)², which a float64 holds exactly
	}
	return time.Duration(int64(math.Sqrt(float64(sum)))+int64(c.Height)+int64(to.Height)) * time.Microsecond
}

// Marshal returns the layout.
func (c Coordinate) Marshal() []byte {
	b := make([]byte, 0, CoordinateSize)
	for _, v := range c.Vec {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	b = binary.LittleEndian.AppendUint32(b, c.Height)
	return binary.LittleEndian.AppendUint32(b, c.Error)
}

// UnmarshalCoordinate decodes the layout without trailing bytes, and checks it.
func UnmarshalCoordinate(b []byte) (Coordinate, error) {
	if len(b) != CoordinateSize {
		return Coordinate{}, malformed("coordinate", "%d bytes, want %d", len(b), CoordinateSize)
	}
	var c Coordinate
	for i := range c.Vec {
		c.Vec[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	c.Height = binary.LittleEndian.Uint32(b[4*CoordinateDims:])
	c.Error = binary.LittleEndian.Uint32(b[4*CoordinateDims+4:])
	return c, c.Check()
}

// MarshalText returns the layout in hexadecimal; empty if the coordinate is unknown.
func (c Coordinate) MarshalText() ([]byte, error) {
	if c.IsZero() {
		return nil, nil
	}
	return hex.AppendEncode(nil, c.Marshal()), nil
}

// UnmarshalText parses the output of MarshalText.
func (c *Coordinate) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*c = Coordinate{}
		return nil
	}
	b := make([]byte, hex.DecodedLen(len(text)))
	if _, err := hex.Decode(b, text); err != nil {
		return malformed("coordinate", "want %d hexadecimal digits", 2*CoordinateSize)
	}
	parsed, err := UnmarshalCoordinate(b)
	if err == nil {
		*c = parsed
	}
	return err
}
