package node

import (
	"context"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/verify/audit"
)

// What members signed of units that did not pass goes to everybody who audits or buys, as records go into offers: who failed does not say so.
const (
	topicFailed = "failed"
	failedQueue = 1024
	// refusedPerPeer and refusedBurst are how many new refusals one peer may tell of, in a second and at once: those of a network's window
	// come together.
	refusedPerPeer, refusedBurst = 1, 256
	// judgeTime is how long the chain may take to tell a window's beacon and who is bonded.
	judgeTime = 2 * time.Second
)

// failed is this peer's part in the gossip of refusals.
type failed struct{ telling[audit.Refusal] }

func (n *Node) newFailed(g *gossip.Gossip) (*failed, error) {
	f := &failed{newTelling[audit.Refusal](n, refusedPerPeer, refusedBurst)}
	var err error
	f.topic, err = gossip.Join(g, topicFailed, f.decode, failedQueue)
	return f, err
}

// decode is the topic's validator. What is new here and holds is passed on. What nobody could have signed rightly is rejected; what this
// peer cannot tell, or tells otherwise than others may, is ignored.
func (f *failed) decode(from peer.ID, data []byte) (audit.Refusal, error) {
	x, err := audit.UnmarshalRefusal(data)
	if err != nil {
		return x, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	if from == f.n.p.Host.ID() {
		return x, nil
	}
	switch known, err := f.n.refused.Knows(x); {
	case err != nil:
		return x, fmt.Errorf("%w: %w", gossip.ErrIgnore, err)
	case known:
		return x, fmt.Errorf("%w: known, or of a window that does not count", gossip.ErrIgnore)
	case !f.told.Allow(from, time.Now()):
		return x, fmt.Errorf("%w: %s tells of too many", gossip.ErrIgnore, from)
	}
	if err := x.Check(f.n.p.Genesis.Domain(), f.n.p.Genesis.AuditSlots); err != nil {
		return x, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), judgeTime)
	defer cancel()
	if err := f.n.refused.Check(ctx, x); err != nil {
		return x, fmt.Errorf("%w: %w", gossip.ErrIgnore, err)
	}
	return x, nil
}

// refuse keeps what this peer signed of a unit, and has the network told of it.
func (n *Node) refuse(x audit.Refusal) {
	if err := n.refused.Keep(context.Background(), x, true); err != nil {
		n.p.Log.Error("that a unit did not pass is not kept", "refused", x.String(), "err", err)
		return
	}
	if n.failed != nil {
		n.failed.found()
	}
}

// run keeps what is heard, and tells of what this peer refused, until ctx ends.
func (f *failed) run(ctx context.Context) error {
	return f.telling.run(ctx, tellEvery, f.tell, f.listen)
}

func (f *failed) listen(ctx context.Context) {
	for {
		m, err := f.topic.Next(ctx)
		if err != nil {
			return
		}
		if err := f.n.refused.Keep(ctx, m.Data, false); err != nil && ctx.Err() == nil {
			f.n.p.Log.Error("that a unit did not pass is not kept", "refused", m.Data.String(), "err", err)
		}
	}
}

func (f *failed) tell(ctx context.Context) {
	for _, x := range f.n.refused.Own() {
		f.publish(ctx, x.Marshal(), "the network was not told that a unit did not pass; it will be again", "refused", x.String())
	}
}
