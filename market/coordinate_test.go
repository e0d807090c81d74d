package market_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"pgregory.net/rapid"
)

func testCoordinate() market.Coordinate {
	return market.Coordinate{Vec: [market.CoordinateDims]int32{12_000, -3_000, 0, 1, -1, 250, 40_000, -9}, Height: 350, Error: 120_000}
}

var badCoordinates = []struct {
	name   string
	change func(*market.Coordinate)
}{
	{"part too large", func(c *market.Coordinate) { c.Vec[3] = market.MaxCoordinate + 1 }},
	{"part too small", func(c *market.Coordinate) { c.Vec[7] = -market.MaxCoordinate - 1 }},
	{"least integer", func(c *market.Coordinate) { c.Vec[0] = -1 << 31 }},
	{"no height", func(c *market.Coordinate) { c.Height = 0 }},
	{"too high", func(c *market.Coordinate) { c.Height = market.MaxCoordinate + 1 }},
	{"error", func(c *market.Coordinate) { c.Error = market.MaxCoordinateError + 1 }},
	{"all bits", func(c *market.Coordinate) { c.Height, c.Error = ^uint32(0), ^uint32(0) }},
}

func TestCoordinate(t *testing.T) {
	t.Parallel()
	for _, bad := range badCoordinates {
		c := testCoordinate()
		bad.change(&c)
		if _, err := market.UnmarshalCoordinate(c.Marshal()); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", bad.name, err)
		}
	}
	for _, n := range []int{0, market.CoordinateSize - 1, market.CoordinateSize + 1} {
		if _, err := market.UnmarshalCoordinate(make([]byte, n)); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	// 3, 4, 5 in microseconds, and both heights.
	a, b := market.Coordinate{Vec: [8]int32{3000}, Height: 100}, market.Coordinate{Vec: [8]int32{0, 4000}, Height: 250}
	if d := a.Distance(b); d != 5350*time.Microsecond {
		t.Error(d)
	}
	for _, c := range []market.Coordinate{{}, testCoordinate()} {
		text, err := json.Marshal(c)
		var back market.Coordinate
		if err != nil || json.Unmarshal(text, &back) != nil || back != c {
			t.Errorf("%s, %v", text, err)
		}
	}
}

func drawCoordinate(t *rapid.T) market.Coordinate {
	c := market.Coordinate{Height: rapid.Uint32Range(1, market.MaxCoordinate).Draw(t, "height"), Error: rapid.Uint32Range(0, market.MaxCoordinateError).Draw(t, "error")}
	for i := range c.Vec {
		c.Vec[i] = rapid.Int32Range(-market.MaxCoordinate, market.MaxCoordinate).Draw(t, "part")
	}
	return c
}

// Distances are symmetric, never negative, and those of a metric but for rounding: no detour is shorter.
func TestCoordinateProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawCoordinate(t), drawCoordinate(t), drawCoordinate(t)
		ab := a.Distance(b)
		if ab != b.Distance(a) || ab <= 0 || ab > a.Distance(c)+c.Distance(b)+2*time.Microsecond {
			t.Fatal(ab, b.Distance(a), a.Distance(c), c.Distance(b))
		}
	})
}

func FuzzCoordinate(f *testing.F) {
	f.Add(testCoordinate().Marshal())
	for _, bad := range badCoordinates {
		c := testCoordinate()
		bad.change(&c)
		f.Add(c.Marshal())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := market.UnmarshalCoordinate(b)
		if err != nil {
			return
		}
		if !bytes.Equal(c.Marshal(), b) || c.IsZero() || c.Distance(testCoordinate()) < 0 {
			t.Fatal("decode, encode differ")
		}
	})
}
