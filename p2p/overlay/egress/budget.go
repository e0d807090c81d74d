package egress

import (
	"sync"

	"golang.org/x/time/rate"
)

// Sizes of a flow: the most memory that it can use in this process and the kernel. A container's first connections are
// wide: their buffers are as large as a fast long-distance connection needs, if the budget has room. All others are
// narrow.
const (
	// narrowBuffer is of the stack's and of the socket's buffers of a narrow flow, each way.
	narrowBuffer = 64 << 10
	// wideBuffer is of the stack's buffers of a wide flow, each way; for those of its socket see wideSocket.
	wideBuffer = 1 << 20
	// maxWide bounds the wide flows of a container.
	maxWide = 16
	// copyBytes is the memory of copying a flow: chunks, or datagrams, and goroutines.
	copyBytes = 2*(64<<10) + 16<<10
	// flowBytes is of a narrow flow. The kernel makes a socket's buffers twice as large as asked for.
	flowBytes = 2*narrowBuffer + 2*2*narrowBuffer + copyBytes
)

const (
	// DefaultBudget bounds the memory of the flows of all containers of a peer, bytes.
	DefaultBudget = 1 << 30
	// allNewFlows is how many flows all containers may begin a second. It is divided among them, but each may begin
	// leastNewFlows.
	allNewFlows   = 1000
	leastNewFlows = 10
)

// Budget bounds the memory of the flows of all stacks of a peer. A stack takes memory while some is free. After that, a
// stack that holds less takes it from the stack that holds most, by cutting its longest idle flow. So no stack can keep
// another below its share, which is the budget divided by the number of stacks. New flows a second are divided in the
// same way.
type Budget struct {
	max, wide int64
	mu        sync.Mutex
	used      int64
	stacks    map[*Stack]*share
}

// share is a stack's use of a budget.
type share struct {
	used int64
	wide int // flows
}

// NewBudget returns a budget of the given bytes.
func NewBudget(bytes int64) *Budget {
	return &Budget{max: bytes, wide: 2*wideBuffer + wideRead().counts + wideWrite().counts + copyBytes,
		stacks: map[*Stack]*share{}}
}

// Max is the budget, bytes.
func (b *Budget) Max() int64 { return b.max }

// Used is how many bytes are counted for the flows that there are.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// join adds a stack.
func (b *Budget) join(s *Stack) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stacks[s] = &share{}
	b.pace()
}

// leave removes a stack, with its remaining use: another stack may be cutting one of its flows.
func (b *Budget) leave(s *Stack) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= b.stacks[s].used
	delete(b.stacks, s)
	b.pace()
}

// pace divides the new flows a second among the stacks. b.mu is held.
func (b *Budget) pace() {
	for s := range b.stacks {
		n := min(s.cfg.Limits.NewFlows, max(leastNewFlows, allNewFlows/float64(len(b.stacks))))
		s.newFlows.SetLimit(rate.Limit(n))
		s.newFlows.SetBurst(max(1, int(n*burstSeconds)))
	}
}

// take counts a flow for a stack, a wide one if possible. It returns the bytes, 0 if there are none.
func (b *Budget) take(s *Stack, tcp bool) int64 {
	for {
		n, from := b.try(s, tcp)
		if from == nil {
			return n
		}
		if !from.shed() {
			return 0
		}
	}
}

// try counts a flow, or returns the stack that holds more than its share and has to give one up first.
func (b *Budget) try(s *Stack, tcp bool) (n int64, from *Stack) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, half := b.stacks[s], b.max/2
	if tcp && own.wide < maxWide && b.used+b.wide <= half && own.used+b.wide <= half/int64(len(b.stacks)) {
		own.wide++
		b.add(own, b.wide)
		return b.wide, nil
	}
	if b.used+flowBytes <= b.max {
		b.add(own, flowBytes)
		return flowBytes, nil
	}
	most := own.used + flowBytes
	for other, h := range b.stacks {
		if other != s && h.used > most {
			most, from = h.used, other
		}
	}
	return 0, from
}

func (b *Budget) add(own *share, n int64) {
	own.used += n
	b.used += n
}

// give returns memory that take has counted.
func (b *Budget) give(s *Stack, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.stacks[s]; own != nil && n > 0 {
		b.add(own, -n)
		if n == b.wide {
			own.wide--
		}
	}
}

// shed cuts the flow that has been idle for the longest and frees its bytes. It reports whether there was one.
func (s *Stack) shed() bool {
	s.mu.Lock()
	var oldest *flow
	for _, f := range s.flows {
		if f.bytes > 0 && (oldest == nil || f.last.Load() < oldest.last.Load()) {
			oldest = f
		}
	}
	n := int64(0)
	if oldest != nil {
		n, oldest.bytes = oldest.bytes, 0
	}
	s.mu.Unlock()
	if oldest == nil {
		return false
	}
	s.refused.add(ReasonShare, oldest.key.to, "")
	oldest.cut() // its goroutine returns immediately
	s.cfg.Budget.give(s, n)
	return true
}
