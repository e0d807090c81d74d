// Package swarm receives the chunks of one blob from its source and from fellows, which receive the same blob. The
// source is asked for chunks that no fellow has, by each receiver for others, so that it sends little more than one
// copy. Every chunk is checked against the list. A fellow that sends a false one is not asked again, and a late chunk
// is asked of a second peer.
package swarm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob/chunks"
)

const (
	// fromSource and fromFellow are how many chunks are asked of one peer at a time. The peer sends to others too.
	fromSource, fromFellow = 4, 2
	// inFlight bounds the bytes of chunks that are asked for, and not yet in the file.
	inFlight = 64 << 20
	// pollLeast and pollMost are how long a fellow without news is not asked which chunks it has. The time doubles.
	pollLeast, pollMost = 200 * time.Millisecond, 3 * time.Second
	// slowLeast is the least time after which a chunk is asked of a second peer. slowTimes is the same as a multiple of
	// the usual time of a chunk.
	slowLeast, slowTimes = 2 * time.Second, 4
	// spareTime is how long a spared source is asked only for chunks that are late, or that no fellow has. Then it is
	// asked for one chunk at a time: slow fellows delay a blob by no more than this.
	spareTime = 10 * time.Second
	// maxFaults is how often a fellow may fail or be overtaken by another peer. It is not asked again then.
	maxFaults = 3
)

var (
	// ErrChunk: a peer sent bytes that are not the chunk that they should be, or no valid answer.
	ErrChunk = errors.New("bytes do not match the chunk's digest")
	// ErrBusy: a peer sends to enough others now.
	ErrBusy = errors.New("peer is busy")
	// ErrNothing: a peer has nothing of the blob, or not what was asked for.
	ErrNothing = errors.New("peer does not have it")
)

// Supplier is a peer that sends chunks.
type Supplier interface {
	// Part reads len(into) bytes of a blob of a known size from offset on. It returns the chunks that the peer has, or
	// nil if it has all. It may be called for no bytes, to learn that. It returns ErrChunk, ErrBusy or ErrNothing, or
	// another error if the peer could not be asked.
	Part(ctx context.Context, c cid.Cid, size, offset int64, into []byte) (has []byte, err error)
}

// Order is a blob to receive.
type Order struct {
	CID  cid.Cid
	List chunks.List
	File io.WriterAt // gets the chunks
	Have chunks.Set  // chunks that it has already

	Source  Supplier
	Fellows []Supplier
	Turn    int  // this receiver's place among itself and its fellows, from 0; each has another
	Spare   bool // the source is asked for what fellows have only while they are slow

	// Came is called from the goroutine of Receive for each new chunk in the file. Its error ends Receive.
	Came func(i int) error
}

// gathering is an order on its way. Its fields belong to the goroutine of Receive.
type gathering struct {
	Order
	sources []*supplier // the first is the blob's source
	begun   time.Time
	have    chunks.Set
	missing []int // chunks that nobody was asked for, in the order of turns
	asked   map[int][]*request
	results chan *request
	tasks   sync.WaitGroup
	free    [][]byte // buffers

	usual   time.Duration // a chunk takes
	failure error         // of the source
}

// supplier is a Supplier with what is known of it.
type supplier struct {
	Supplier
	width  int        // requests at a time
	has    chunks.Set // nil: not known
	out    int        // running requests
	gone   bool       // it is not asked again
	faults int
	poll   time.Time     // it is not asked for its chunks before
	pause  time.Duration // between these
	after  time.Time     // it is asked for nothing before
}

// request is one request of a supplier, for a chunk or, if chunk is -1, for the chunks that it has.
type request struct {
	of     *supplier
	chunk  int
	begun  time.Time
	cancel context.CancelFunc
	buf    []byte

	has   chunks.Set
	err   error
	wrote error // of the file
}

// Receive returns when all chunks are in the file, when none can be had any more, or when ctx ends. It returns ErrChunk
// if the source contradicts the list, the source's error if it fails and no fellow has the rest, and Came's.
func Receive(ctx context.Context, o Order) error {
	n := len(o.List.Sums)
	g := &gathering{Order: o, have: o.Have.Clone(), asked: map[int][]*request{}, results: make(chan *request),
		begun: time.Now()}
	source := &supplier{Supplier: o.Source, width: fromSource, pause: pollLeast, has: chunks.All(n)}
	g.sources = append(g.sources, source)
	for _, p := range o.Fellows {
		g.sources = append(g.sources, &supplier{Supplier: p, width: fromFellow, pause: pollLeast})
	}
	for _, i := range inTurn(n, o.Turn, len(o.Fellows)+1) {
		if !g.have.Has(i) {
			g.missing = append(g.missing, i)
		}
	}
	return g.run(ctx)
}

func (g *gathering) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer g.drain()
	defer cancel()
	for len(g.missing)+len(g.asked) > 0 {
		wait := g.ask(ctx, time.Now())
		if g.failure != nil && g.stuck() {
			return g.failure
		}
		again := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		case <-again.C:
		case r := <-g.results:
			again.Stop()
			if err := g.took(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// drain waits for the running requests, which are cancelled.
func (g *gathering) drain() {
	go func() {
		g.tasks.Wait()
		close(g.results)
	}()
	for range g.results {
	}
}

func (g *gathering) send(ctx context.Context, p *supplier, i int, now time.Time) {
	r := &request{of: p, chunk: i, begun: now}
	ctx, r.cancel = context.WithCancel(ctx)
	p.out++
	var offset int64
	if i >= 0 {
		g.asked[i] = append(g.asked[i], r)
		var length int64
		offset, length = g.List.Span(i)
		r.buf = g.buffer()[:length]
	}
	g.tasks.Go(func() {
		defer r.cancel()
		r.has, r.err = p.Part(ctx, g.CID, g.List.Blob, offset, r.buf)
		if i >= 0 && r.err == nil {
			if g.List.Matches(i, r.buf) {
				_, r.wrote = g.File.WriteAt(r.buf, offset)
			} else {
				r.err = fmt.Errorf("%w: chunk %d", ErrChunk, i)
			}
		}
		g.results <- r
	})
}

func (g *gathering) buffer() []byte {
	if n := len(g.free); n > 0 {
		b := g.free[n-1]
		g.free = g.free[:n-1]
		return b
	}
	return make([]byte, chunks.Size(g.List.Blob))
}

// took processes the result of a request.
func (g *gathering) took(r *request) error {
	r.of.out--
	if r.buf != nil {
		g.free = append(g.free, r.buf[:cap(r.buf)])
	}
	if r.wrote != nil {
		return r.wrote
	}
	if r.err == nil {
		r.of.learn(r, len(g.List.Sums))
	}
	var rivals []*request
	if r.chunk >= 0 {
		rivals = slices.DeleteFunc(g.asked[r.chunk], func(o *request) bool { return o == r })
	}
	if r.err != nil {
		if r.chunk >= 0 {
			g.again(r.chunk, rivals)
		}
		return g.failed(r)
	}
	if r.chunk < 0 || g.have.Has(r.chunk) {
		return nil
	}
	for _, o := range rivals { // their results are no news
		o.cancel()
		g.fault(o.of)
	}
	delete(g.asked, r.chunk)
	took := time.Since(r.begun)
	if g.usual == 0 {
		g.usual = took
	}
	g.usual += (took - g.usual) / 8
	g.have.Add(r.chunk)
	return g.Came(r.chunk)
}

// again makes a chunk a missing one, unless it came or is asked for elsewhere.
func (g *gathering) again(i int, rivals []*request) {
	if g.have.Has(i) {
		return
	}
	if len(rivals) > 0 {
		g.asked[i] = rivals
		return
	}
	delete(g.asked, i)
	g.missing = append(g.missing, i)
}

// failed processes an error of a supplier. It returns the error that ends the whole.
func (g *gathering) failed(r *request) error {
	p := r.of
	if errors.Is(r.err, context.Canceled) { // it was overtaken, or the whole ends
		return nil
	}
	if p == g.sources[0] {
		switch {
		case errors.Is(r.err, ErrChunk):
			return fmt.Errorf("%w, and the source's own list", r.err)
		case errors.Is(r.err, ErrBusy):
			p.rest()
		default:
			p.gone, g.failure = true, r.err
		}
		return nil
	}
	switch {
	case errors.Is(r.err, ErrChunk):
		p.gone = true // it lies
	case errors.Is(r.err, ErrBusy):
		p.rest()
	case errors.Is(r.err, ErrNothing) && r.chunk < 0: // not yet
		p.has = nil
		p.rest()
	default:
		g.fault(p)
	}
	return nil
}

// fault counts a failure of a fellow. The source is never given up for being slow.
func (g *gathering) fault(p *supplier) {
	if p == g.sources[0] {
		return
	}
	p.faults++
	p.gone = p.gone || p.faults >= maxFaults
	p.rest()
}

// rest has a supplier asked for nothing for a while, and longer the next time.
func (p *supplier) rest() {
	p.after = time.Now().Add(p.pause/2 + rand.N(p.pause))
	p.pause = min(2*p.pause, pollMost)
}

// learn notes which chunks a supplier has, by its answer to r. A fellow without news is asked more rarely.
func (p *supplier) learn(r *request, n int) {
	has := r.has
	if len(has) == 0 {
		has = chunks.All(n)
	}
	switch {
	case !p.has.Equal(has) || p.width == fromSource:
		p.pause = pollLeast
	case r.chunk < 0:
		p.pause = min(2*p.pause, pollMost)
	}
	p.has, p.poll = has, time.Now().Add(p.pause)
}
