package testnet

import (
	"encoding/binary"
	"slices"
	"time"
)

// sleeps is a WASI program that waits for 100 ms. It calls
// poll_oneoff(in = 0, out = 64, subscriptions = 1, nevents = 128) on a relative monotonic clock.
var sleeps = []byte{
	0x00, 'a', 's', 'm', 1, 0, 0, 0,
	1, 12, 2, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f, 0x60, 0, 0, // types: (i32, i32, i32, i32) → i32; none
	2, 38, 1, // imports: one
	22, 'w', 'a', 's', 'i', '_', 's', 'n', 'a', 'p', 's', 'h', 'o', 't', '_', 'p', 'r', 'e', 'v', 'i', 'e', 'w', '1',
	11, 'p', 'o', 'l', 'l', '_', 'o', 'n', 'e', 'o', 'f', 'f', 0, 0,
	3, 2, 1, 1, // functions: one, of type 1
	5, 3, 1, 0, 1, // memories
	7, 19, 2, 6, 'm', 'e', 'm', 'o', 'r', 'y', 2, 0, 6, '_', 's', 't', 'a', 'r', 't', 0, 1, // exports
	10, 17, 1, 15, 0, 0x41, 0, 0x41, 0xc0, 0, 0x41, 1, 0x41, 0x80, 1, 0x10, 0, 0x1a, 0x0b, // code: call, drop
	11, 21, 1, 0, 0x41, 16, 0x0b, 15, // data at 16: clock 1 (monotonic), padding, 100,000,000 ns
	1, 0, 0, 0, 0, 0, 0, 0, 0x00, 0xe1, 0xf5, 0x05, 0, 0, 0,
}

// Sleep returns a WASI program that waits for d and ends.
func Sleep(d time.Duration) []byte {
	program := slices.Clone(sleeps)
	var le [8]byte
	binary.LittleEndian.PutUint64(le[:], uint64(d))
	copy(program[len(program)-7:], le[:]) // the last byte is that of the memory, which is 0
	return program
}
