package buyer

import (
	"context"
	"math"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
)

// A provider keeps what an execution has left for a time after its end (provide.retain). A buyer that was away, also for
// longer than its lease, looks for that before it takes the rank for lost and has the work done again.

// status asks the provider how the execution stands, for as long as a silent provider is waited for.
func (e *execution) status(ctx context.Context) (*nodepb.Execution, error) {
	b, l := e.b, e.l
	ctx, cancel := context.WithTimeout(ctx, b.cfg.LostAfter)
	defer cancel()
	for {
		b.cfg.Host.Forgive(l.peer)
		reply, err := protocol.Exec.Call(ctx, b.cfg.Host, b.tag, l.peer, &nodepb.ExecRequest{Lease: l.first[:], Seq: e.seq,
			Op: &nodepb.ExecRequest_Status_{Status: &nodepb.ExecRequest_Status{}}})
		if err == nil || final(err) != nil {
			return reply.GetExecution(), err
		}
		if pause(ctx, redial) != nil {
			return nil, err
		}
	}
}

// backSlack is how long a peer that comes back has to find its providers before what it paid for is over.
const backSlack = 3 * time.Second

// outage is how long this peer was away before its present process, and how far the lease was paid for then, both counted from its last
// receipt; unpaid says that this was not far enough, so that its provider did right to stop. All is zero for a lease of this process.
func (l *bought) outage() (away, ahead time.Duration, unpaid bool) {
	if l.seenAt == 0 {
		return 0, 0, false
	}
	b := l.b
	now, err := b.cfg.Slots.Now(time.Now())
	b.mu.Lock()
	since := time.Since(b.began)
	b.mu.Unlock()
	g := b.cfg.Genesis
	back := now - min(now, market.Slot(g.SlotsIn(since)))
	if err != nil || back <= l.seenAt {
		return 0, 0, false
	}
	length := func(slots market.Slot) time.Duration {
		return (time.Duration(min(uint64(slots), math.MaxInt32)*g.SlotMillis) * time.Millisecond).Round(time.Second)
	}
	return length(back - l.seenAt), length(l.paidAt - min(l.paidAt, l.seenAt)), back+market.Slot(g.SlotsIn(backSlack)) >= l.paidAt
}
