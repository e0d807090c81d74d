package wasm

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	mathrand "math/rand/v2"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"
)

// seededEpoch is the time at which seeded programs start: 2022-01-01 UTC, in nanoseconds since 1970.
const seededEpoch = 1_640_995_200_000_000_000

// clocked gives the module its clocks and its randomness. Without a seed they are the real ones. With one, time moves
// only when it is read (a microsecond) or slept on, and randomness is the ChaCha8 stream of the seed. The program's
// results are then a function of its module, arguments, environment and files.
func clocked(c wazero.ModuleConfig, seed uint64) wazero.ModuleConfig {
	const resolution = sys.ClockResolution(1000)
	if seed == 0 {
		start := time.Now()
		return c.WithWalltime(func() (int64, int32) {
			now := time.Now()
			return now.Unix(), int32(now.Nanosecond())
		}, resolution).
			WithNanotime(func() int64 { return int64(time.Since(start)) }, resolution).
			WithNanosleep(func(ns int64) { time.Sleep(time.Duration(ns)) }).
			WithRandSource(rand.Reader)
	}
	var now int64 // the guest has one thread
	read := func() int64 { now += 1000; return now }
	return c.WithWalltime(func() (int64, int32) {
		t := seededEpoch + read()
		return t / 1e9, int32(t % 1e9)
	}, resolution).
		WithNanotime(func() int64 { return read() }, resolution).
		WithNanosleep(func(ns int64) { now += max(ns, 0) }).
		WithRandSource(seeded(seed))
}

func seeded(seed uint64) io.Reader {
	var key [32]byte
	copy(key[:], "starling/wasm/random/v1")
	binary.LittleEndian.PutUint64(key[24:], seed)
	return mathrand.NewChaCha8(key)
}
