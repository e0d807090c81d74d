package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/rates"
	"github.com/starling-network/starling/p2p/discovery"
	"github.com/starling-network/starling/p2p/gossip"
)

// telling is a peer's part in a topic among those who audit, on which it tells again and again of what it found.
type telling[T any] struct {
	n     *Node
	told  *rates.Limiter[peer.ID] // by who publishes
	topic *gossip.Topic[T]
	poke  chan struct{} // holds one token when this peer found one
}

// newTelling is a part without its topic, where a peer may tell of so many a second and at once.
func newTelling[T any](n *Node, perPeer float64, burst int) telling[T] {
	return telling[T]{n: n, told: rates.New[peer.ID](perPeer, burst, maxTellers), poke: make(chan struct{}, 1)}
}

// found has the network told soon.
func (t *telling[T]) found() {
	select {
	case t.poke <- struct{}{}:
	default:
	}
}

// run meets those who audit and has tell publish what this peer found, every tellEvery and when it found one, after which it does so again
// in again, until ctx ends. What is beside it ends with ctx too.
func (t *telling[T]) run(ctx context.Context, again time.Duration, tell func(context.Context), beside ...func(context.Context)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	meeting := t.topic.Meet(func(ctx context.Context, most int) ([]peer.AddrInfo, error) {
		return t.n.discovery.Hints(ctx, discovery.Topic{Class: verifiers}, most)
	})
	wg.Go(func() { _ = meeting.Run(ctx) }) // has no error
	for _, do := range beside {
		wg.Go(func() { do(ctx) })
	}
	for wait := tellEvery; ; {
		tell(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return t.topic.Close()
		case <-timer.C:
			wait = tellEvery
		case <-t.poke:
			wait = again
		}
		timer.Stop()
	}
}

// publish tells of one, and warns with what where it could not.
func (t *telling[T]) publish(ctx context.Context, data []byte, what string, args ...any) {
	if err := t.topic.Publish(ctx, data); err != nil && ctx.Err() == nil && !errors.Is(err, gossip.ErrClosed) {
		t.n.p.Log.Warn(what, append(args, "err", err)...)
	}
}

// watch gives every list of registrations to set, which reports whether somebody counts now who did not: then the
// network is told of what nobody wanted to hear before. While the chain is away, the last list counts.
func (t *telling[T]) watch(ctx context.Context, set func([]program.Provider) bool) {
	if t.n.registered == nil {
		return
	}
	for ctx.Err() == nil {
		all, err := t.n.registered.Providers(ctx)
		if err == nil && set(all) {
			t.found()
		}
		select {
		case <-ctx.Done():
		case <-time.After(stakesFresh):
		}
	}
}

// stakedOf are the keys of registrations with something at stake.
func stakedOf(all []program.Provider) map[sign.Key]bool {
	staked := map[sign.Key]bool{}
	for _, p := range all {
		if p.Stake+p.Unbonding > 0 {
			staked[p.Peer] = true
		}
	}
	return staked
}

// anyNew reports whether now has a key that before had not.
func anyNew(before, now map[sign.Key]bool) bool {
	for k := range now {
		if !before[k] {
			return true
		}
	}
	return false
}
