package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/evidence"
	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/verify/audit"
)

// Proofs of lies go to everybody who audits. A proof convicts whoever it is by, so it does not matter who tells; but keys are free,
// and whoever has one can prove to have lied.
const (
	topicLies = "lies"
	lieQueue  = 256
	// toldPerPeer and toldBurst are how many new proofs one peer may tell of, in a second and at once.
	toldPerPeer, toldBurst = 0.1, 8
	maxTellers             = 4096
	// tellEvery is how often this peer tells again of what it found, for tellFor: peers come and go, and whoever reads it thinks less
	// of the liar, also when its stake is gone.
	tellEvery = 10 * time.Minute
	tellFor   = 24 * time.Hour
	// stakesFresh is for how long the list of registrations is taken for what is on chain; who staked since is heard of again.
	stakesFresh = time.Minute
)

// lies is this peer's part in the gossip of proofs that somebody lied in an audit.
type lies struct {
	telling[audit.Lie]

	mu     sync.Mutex
	staked map[sign.Key]bool // keys that a registration with something at stake answers for; nil: everybody counts
}

// newLies takes part; nil where nothing is audited.
func (n *Node) newLies(g *gossip.Gossip) (*lies, error) {
	if n.p.Genesis.AuditSlots == 0 {
		return nil, nil
	}
	l := &lies{telling: newTelling[audit.Lie](n, toldPerPeer, toldBurst)}
	if n.registered != nil {
		l.staked = map[sign.Key]bool{} // nobody, until they were read
	}
	var err error
	l.topic, err = gossip.Join(g, topicLies, l.decode, lieQueue)
	return l, err
}

// decode is the topic's validator. What is new here, is about somebody who can lose something, and holds, is passed on. What cannot
// hold for anybody is rejected; what does not matter here, or not yet, is only ignored: who passes it on may see it differently.
func (l *lies) decode(from peer.ID, data []byte) (audit.Lie, error) {
	lie, err := audit.UnmarshalLie(data)
	if err != nil {
		return lie, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	self := from == l.n.p.Host.ID()
	if !self {
		if err := l.n.evidence.Timely(lie); err != nil {
			return lie, fmt.Errorf("%w: %w", gossip.ErrIgnore, err)
		}
		switch {
		case l.n.evidence.KnowsLie(lie):
			return lie, fmt.Errorf("%w: known", gossip.ErrIgnore)
		case !l.matters(lie):
			return lie, fmt.Errorf("%w: %s has nothing at stake", gossip.ErrIgnore, lie.Liar().Short())
		case !l.told.Allow(from, time.Now()):
			return lie, fmt.Errorf("%w: %s tells of too many lies", gossip.ErrIgnore, from)
		}
	}
	if err := lie.Check(l.n.p.Genesis.Domain()); err != nil {
		return lie, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	return lie, nil
}

// matters reports whether a liar has something to lose. Where nothing is staked it is its name; but false openings
// under a name that nobody knows are what canaries show, and anybody may.
func (l *lies) matters(lie audit.Lie) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.staked == nil {
		return lie.Kind != audit.FalseOpening
	}
	return l.staked[lie.Liar()]
}

// run keeps what is heard, and tells of what this peer found, until ctx ends: again once those to whom the liar had nothing at stake have
// read the list.
func (l *lies) run(ctx context.Context) error {
	return l.telling.run(ctx, 2*stakesFresh, l.tell, l.listen, func(ctx context.Context) { l.watch(ctx, l.setStakes) })
}

// listen keeps what is heard.
func (l *lies) listen(ctx context.Context) {
	for {
		m, err := l.topic.Next(ctx)
		if err != nil {
			return
		}
		if _, err := l.n.evidence.KeepLie(ctx, m.Data, false); err != nil && ctx.Err() == nil {
			l.n.p.Log.Error("the proof of a lie that others found is not kept", "err", err)
		}
	}
}

// tell publishes what this peer found.
func (l *lies) tell(ctx context.Context) {
	kept, err := l.n.evidence.Lies(ctx)
	if err != nil {
		return
	}
	for _, k := range kept {
		lie, err := audit.UnmarshalLie(k.Proof)
		if err != nil || !k.Own || k.State == evidence.LieExpired || time.Since(k.Found) > tellFor || !l.matters(lie) {
			continue
		}
		l.publish(ctx, k.Proof, "the network was not told of a lie; it will be again", "id", k.ID)
	}
}

// setStakes reports whether somebody has something at stake now who had not.
func (l *lies) setStakes(all []program.Provider) (more bool) {
	staked := stakedOf(all)
	l.mu.Lock()
	defer l.mu.Unlock()
	more = anyNew(l.staked, staked)
	l.staked = staked
	return more
}
