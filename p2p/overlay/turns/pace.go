package turns

import (
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

const (
	// BatchSize is how many packets WireGuard handles at once.
	BatchSize = conn.IdealBatchSize
	// paceTime bounds the transit time of packets under way, at the rate of the last paceEvery. Others wait where
	// heartbeats can overtake.
	paceTime  = 3 * time.Millisecond
	paceEvery = 10 * time.Millisecond
	// paceLeast and paceMost bound how many packets may be under way: two batches keep the encryption of one processor
	// busy, each further one another.
	paceLeast = 2 * BatchSize
	paceMost  = 16 * BatchSize
)

// pace bounds the packets that are under way between two points.
type pace struct {
	limit, count int
	since        time.Time
}

// most is how many may be.
func (p *pace) most() int { return max(p.limit, paceLeast) }

// done notes the arrival of n packets.
func (p *pace) done(n int, now time.Time) {
	p.count += n
	if took := now.Sub(p.since); took >= paceEvery {
		p.limit = int(min(int64(p.count)*int64(paceTime)/int64(took), paceMost))
		p.count, p.since = 0, now
	}
}
