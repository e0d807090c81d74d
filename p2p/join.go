package p2p

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/conns"
	"github.com/starling-network/starling/p2p/peerbook"
	"github.com/starling-network/starling/p2p/peermap"
)

// Rhythm of the joiner.
const (
	// wantPeers is below how many connected peers more are dialled: a gossip mesh and some to lose.
	wantPeers = 8
	// dialBatch is the number of peers that one round dials in parallel.
	dialBatch = 8
	// firstRetry is the pause after a first round that left us alone; it doubles with each.
	firstRetry = 500 * time.Millisecond
	// maxRetry is the longest pause while we are alone.
	maxRetry = 15 * time.Second
	// maxTried bounds the peers to join by that one warning names.
	maxTried = 4
	// maxAlone is the time after which the operator is warned that no peer answers: after the round of dials that it
	// ends in.
	maxAlone = 3 * time.Second
	// fewRetry is the pause while we have peers, but fewer than wantPeers: the network may just be small.
	fewRetry = time.Minute
	// healEvery is the pause while we have enough: one bootstrap peer is then dialled, so that two halves
	// of a split network find each other again.
	healEvery = 5 * time.Minute
)

// errOtherNetwork is why a peer of another network is disconnected.
var errOtherNetwork = errors.New("peer of another network")

// joiner keeps a host connected to its network: while there are few connections, it dials peers to join by, the
// configured and the remembered ones.
type joiner struct {
	h         *Host
	bootstrap []peer.AddrInfo
	book      *peerbook.Book
	refusals  peermap.Map[*Diagnosis] // of peers to join by that answer and cannot be used
	alone     atomic.Bool             // no known peer has answered; the operator was warned
	lonely    chan struct{}           // 1: the last peer of the network has disconnected
}

func newJoiner(h *Host, bootstrap []peer.AddrInfo, book *peerbook.Book) *joiner {
	return &joiner{h: h, bootstrap: bootstrap, book: book, lonely: make(chan struct{}, 1)}
}

// run dials until ctx ends.
func (j *joiner) run(ctx context.Context) {
	dials := time.NewTimer(0)
	defer dials.Stop()
	retry, since := firstRetry, time.Now() // alone since
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.lonely:
			retry, since = firstRetry, time.Now()
			dials.Reset(jitter(retry))
			continue
		case <-dials.C:
		}
		j.dial(ctx, j.candidates())
		select {
		case <-j.lonely: // the number of peers has it
		default:
		}
		switch n := j.h.membership.joined(); {
		case n == 0:
			if time.Since(since) > maxAlone && !j.alone.Swap(true) {
				j.warn()
			}
			dials.Reset(jitter(retry))
			retry = min(2*retry, maxRetry)
			continue
		case n < wantPeers:
			dials.Reset(jitter(fewRetry))
		default:
			dials.Reset(jitter(healEvery))
		}
		if j.alone.Swap(false) {
			j.h.log.Info("joined the network", "peers", j.h.membership.joined())
		}
	}
}

// hurry starts a new round soon, after the last peer has disconnected.
func (j *joiner) hurry() {
	select {
	case j.lonely <- struct{}{}:
	default:
	}
}

// candidates are the peers to dial now, in random order: anything known while we have few peers, and one
// bootstrap peer when we have enough.
func (j *joiner) candidates() []peer.AddrInfo {
	var out []peer.AddrInfo
	add := func(p peer.AddrInfo, missing bool) {
		if p.ID != j.h.ID() && len(p.Addrs) > 0 && missing {
			out = append(out, p)
		}
	}
	for _, i := range rand.Perm(len(j.bootstrap)) {
		// A bootstrap peer that is connected through a relay may be a relay itself. It is usable as one only after a
		// direct dial.
		add(j.bootstrap[i], !conns.Direct(j.h, j.bootstrap[i].ID))
	}
	if len(j.h.Network().Peers()) >= wantPeers {
		return out[:min(len(out), 1)]
	}
	// Half of a round goes to remembered peers, so that dead bootstrap peers cannot fill it.
	out = out[:min(len(out), dialBatch/2)]
	for _, e := range j.book.Entries() {
		if len(out) == dialBatch {
			break
		}
		add(peer.AddrInfo{ID: e.ID, Addrs: e.Addrs}, j.h.Network().Connectedness(e.ID) != network.Connected)
	}
	return out
}

// dial connects to all of them in parallel, and waits.
func (j *joiner) dial(ctx context.Context, to []peer.AddrInfo) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range to {
		all.Go(func() {
			j.h.Forgive(p.ID) // this loop has its own pauses
			ctx := ctx
			if j.h.Network().Connectedness(p.ID) == network.Connected {
				ctx = network.WithForceDirectDial(ctx, "bootstrap")
			}
			if err := j.h.Connect(ctx, p); err != nil {
				j.h.log.Debug("dial failed", "peer", p.ID, "err", err)
				j.complain(p.ID, err)
			}
		})
	}
	all.Wait()
}

// configured reports whether p is a bootstrap peer.
func (j *joiner) configured(p peer.ID) bool {
	return slices.ContainsFunc(j.bootstrap, func(i peer.AddrInfo) bool { return i.ID == p })
}

// complain notifies the operator, once, of a reachable bootstrap peer with which this configuration never connects.
func (j *joiner) complain(p peer.ID, err error) {
	d := j.h.Diagnose(p, err)
	if d == nil || !slices.Contains([]Reason{ReasonOtherNetwork, ReasonOtherKey, ReasonOtherPeer, ReasonBlocked},
		d.Reason) {
		return
	}
	if before, ok := j.refusals.Get(p); !ok || before.Reason != d.Reason {
		j.h.log.Warn("cannot join by a peer", "peer", p, "why", d.Text, "advice", d.Advice)
	}
	j.refusals.Set(p, d)
}

// state is the result of [Host.Alone].
func (j *joiner) state() (tried []string, refusal *Diagnosis, alone bool) {
	tried, known := j.known()
	for _, p := range j.bootstrap {
		if d, ok := j.refusals.Get(p.ID); ok {
			refusal = d
		}
	}
	return tried, refusal, known > 0 && j.alone.Load() && j.h.membership.joined() == 0
}

// refused reports whether every bootstrap peer answers, and none can be joined by.
func (j *joiner) refused() bool {
	return len(j.bootstrap) > 0 && !slices.ContainsFunc(j.bootstrap, func(p peer.AddrInfo) bool {
		_, ok := j.refusals.Get(p.ID)
		return !ok
	})
}

// known returns addresses of other peers to join by, and the number of such peers.
func (j *joiner) known() (addrs []string, peers int) {
	for _, i := range j.bootstrap {
		if i.ID == j.h.ID() {
			continue
		}
		if peers++; peers > maxTried {
			continue
		}
		for _, addr := range i.Addrs {
			addrs = append(addrs, fmt.Sprintf("%s/p2p/%s", addr, i.ID))
		}
	}
	return addrs, peers + j.book.Len()
}

// warn logs that no bootstrap peer answers, or that none is known.
func (j *joiner) warn() {
	tried, known := j.known()
	if known == 0 {
		j.h.log.Warn("connected to no peer, and no bootstrap peer is known", "advice",
			"name one under bootstrap in config.yaml, unless others join by this one")
		return
	}
	if j.refused() && j.book.Len() == 0 { // complain has logged the reason of each
		return
	}
	j.h.log.Warn("connected to no peer: no bootstrap peer answers", "tried", tried, "known", known,
		"advice", "check bootstrap in config.yaml and this machine's network; the peer keeps trying")
}

// jitter spreads d by a fifth, so that peers started together do not dial together.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5)
}
