package turns

import (
	"sync"
	"time"
)

// insideStuck is the time after which packets that did not leave count as dropped by WireGuard.
const insideStuck = 5 * time.Millisecond

// Passage counts the packets between a device's inbox and the TUN. Further ones wait in the inbox, where small ones
// overtake.
type Passage struct {
	mu      sync.Mutex
	inside  int
	pace    pace
	counted time.Time     // when inside was last set right
	less    chan struct{} // 1: some have come out
}

// NewPassage returns an empty passage.
func NewPassage() *Passage { return &Passage{less: make(chan struct{}, 1)} }

// Enter counts packets in.
func (p *Passage) Enter(n int) {
	p.mu.Lock()
	p.inside += n
	p.mu.Unlock()
}

// Leave notes packets that have come out at the TUN.
func (p *Passage) Leave(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := p.inside >= p.pace.most()
	p.inside = max(0, p.inside-n)
	p.pace.done(n, time.Now())
	if full {
		select {
		case p.less <- struct{}{}:
		default:
		}
	}
}

// full reports whether more must wait.
func (p *Passage) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside < p.pace.most() {
		return false
	}
	// packets that WireGuard dropped were counted by Enter, but not by Leave
	if now := time.Now(); now.Sub(p.counted) > time.Second {
		p.counted, p.inside = now, 0
		return false
	}
	return true
}

func (p *Passage) reset() {
	p.mu.Lock()
	p.inside = 0
	p.mu.Unlock()
}

// Admit waits until WireGuard has less to do.
func (p *Passage) Admit(closed <-chan struct{}) {
	if !p.full() {
		return
	}
	t := time.NewTimer(insideStuck)
	defer t.Stop()
	for p.full() {
		select {
		case <-p.less:
		case <-t.C:
			p.reset()
		case <-closed:
			return
		}
	}
}
