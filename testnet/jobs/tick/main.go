// Command tick is a slow program with visible progress: it computes for about a tenth of a second and prints a line, as
// often as its argument specifies. Built with GOOS=wasip1 GOARCH=wasm.
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
)

// perTick is the number of hashes of a block in a tick.
const perTick = 1000

func main() {
	ticks, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if err != nil || ticks < 1 {
		fmt.Fprintln(os.Stderr, "usage: tick TIMES")
		os.Exit(2)
	}
	block := make([]byte, 4<<10)
	for i := range ticks {
		for range perTick {
			sum := sha256.Sum256(block)
			copy(block, sum[:])
		}
		fmt.Printf("tick %d %x\n", i+1, block[:4])
	}
}
