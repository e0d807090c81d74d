package device

import (
	"runtime"
	"sync"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

// Processors bounds how many processors hash, or open tiles, for one device: a host has others beside it.
const Processors = 8

// Split does n pieces of work in ranges, on at most Processors at once, and returns when all are done.
func Split(n int, do func(from, to int)) {
	const least = 256 // of a range: hashing as many takes longer than beginning on another processor
	parts := min(runtime.GOMAXPROCS(0), Processors, max(n/least, 1))
	var wg sync.WaitGroup
	for i := 1; i < parts; i++ {
		wg.Go(func() { do(n*i/parts, n*(i+1)/parts) })
	}
	do(0, n/parts)
	wg.Wait()
}

// Committed is the commitment to tiles that are all there.
func Committed(s challenge.Shape, tiles []sign.Hash) (*challenge.Commitment, error) {
	c, err := challenge.NewCommitter(s, Split)
	if err != nil {
		return nil, err
	}
	if err := c.Add(tiles); err != nil {
		return nil, err
	}
	return c.Commit()
}
