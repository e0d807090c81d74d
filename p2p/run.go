package p2p

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/sync/errgroup"
)

// Rhythm of the loop that keeps the peer connected.
const (
	// wantPeers is below how many connected peers more are dialled: a gossip mesh and some to lose.
	wantPeers = 8
	// dialBatch is how many peers one round dials, all at once.
	dialBatch = 8
	// firstRetry is the pause after a first round that left us alone; it doubles with each.
	firstRetry = 500 * time.Millisecond
	// maxRetry is the longest pause while we are alone.
	maxRetry = 15 * time.Second
	// maxTried bounds the peers to join by that one warning names.
	maxTried = 4
	// maxAlone is the pause after which the operator is warned that there is nobody to join by.
	maxAlone = 4 * firstRetry
	// fewRetry is the pause while we have peers, but fewer than wantPeers: the network may just be small.
	fewRetry = time.Minute
	// healEvery is the pause while we have enough: one bootstrap peer is then dialled, so that two halves
	// of a split network find each other again.
	healEvery = 5 * time.Minute
	// saveEvery is how often the connected peers are written down.
	saveEvery = time.Minute
	// eventQueue holds connection events; libp2p waits for us when it is full.
	eventQueue = 256
)

// Run keeps the peer connected and remembers its peers until ctx ends. It returns nil then, after
// everything it started has ended; the host stays open.
func (h *Host) Run(ctx context.Context) error {
	events, err := h.EventBus().Subscribe([]any{
		new(event.EvtPeerConnectednessChanged), new(event.EvtPeerIdentificationCompleted),
	}, eventbus.BufSize(eventQueue), eventbus.Name("starling/p2p"))
	if err != nil {
		return fmt.Errorf("subscribing to connection events: %w", err)
	}
	defer events.Close()
	for _, p := range h.Network().Peers() { // peers connected before
		if v, err := h.Peerstore().Get(p, "ProtocolVersion"); err == nil {
			if theirs, _ := v.(string); !h.known(theirs) {
				h.dismiss(p, theirs)
			}
		}
	}

	dials := time.NewTimer(0)
	saves := time.NewTicker(saveEvery)
	defer dials.Stop()
	defer saves.Stop()
	// Dialling is apart, because libp2p's emitters wait for a reader that does not empty its queue.
	var dialling chan struct{} // closed when the round is over; nil when none runs
	retry := firstRetry
	var probes sync.WaitGroup
	defer probes.Wait()
	guided := make(chan error, 1)
	if h.guided {
		probes.Go(func() { guided <- h.guide(ctx) })
		probes.Go(func() { h.punches.run(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			if dialling != nil {
				<-dialling
			}
			if err := h.remember(time.Now()); err != nil {
				h.log.Warn("peers not remembered", "err", err)
			}
			return nil
		case err := <-guided:
			if err != nil {
				return err
			}
			guided = nil
		case <-saves.C:
			h.retire()
			if err := h.remember(time.Now()); err != nil {
				h.log.Warn("peers not remembered", "err", err)
			}
		case ev := <-events.Out():
			if id, ok := ev.(event.EvtPeerIdentificationCompleted); ok && len(h.Network().ConnsToPeer(id.Peer)) > 1 {
				probes.Go(func() { h.probe(ctx, id.Conn) })
			}
			if h.observe(ev) && dialling == nil {
				retry = firstRetry
				dials.Reset(jitter(retry))
			}
		case <-dials.C:
			dialling = make(chan struct{})
			go h.dial(ctx, h.candidates(), dialling)
		case <-dialling:
			dialling = nil
			switch n := joined(h); {
			case n == 0:
				if retry > maxAlone && !h.alone.Swap(true) {
					warnAlone(h)
				}
				dials.Reset(jitter(retry))
				retry = min(2*retry, maxRetry)
				continue
			case n < wantPeers:
				dials.Reset(jitter(fewRetry))
			default:
				dials.Reset(jitter(healEvery))
			}
			if h.alone.Swap(false) {
				h.log.Info("joined the network", "peers", joined(h))
			}
		}
	}
}

// observe disconnects peers of another network and reports whether we have just become lonely.
func (h *Host) observe(ev any) bool {
	switch ev := ev.(type) {
	case event.EvtPeerIdentificationCompleted:
		if has(ev.Conn.RemoteMultiaddr(), ma.P_CIRCUIT) {
			h.viaRelay.add(ev.Peer, ev.Conn.Stat().Opened)
		}
		h.punches.observed(ev.Conn, ev.ObservedAddr)
		if !h.known(ev.ProtocolVersion) {
			h.dismiss(ev.Peer, ev.ProtocolVersion)
		} else {
			h.foreign.remove(ev.Peer)
			h.refusals.remove(ev.Peer)
		}
	case event.EvtPeerConnectednessChanged:
		if ev.Connectedness == network.Connected {
			h.Forgive(ev.Peer)
			return false
		}
		return ev.Connectedness == network.NotConnected && !h.foreigner(ev.Peer) && joined(h) == 0
	}
	return false
}

// joined returns the number of connected peers that have said that they are of this network.
func joined(h *Host) (n int) {
	for _, p := range h.Network().Peers() {
		v, _ := h.Peerstore().Get(p, "ProtocolVersion")
		if theirs, _ := v.(string); h.known(theirs) {
			n++
		}
	}
	return n
}

// dismiss disconnects a peer of another network and sends it the reason.
func (h *Host) dismiss(p peer.ID, theirs string) {
	theirs = theirs[:min(len(theirs), maxHandshake)]
	level := slog.LevelInfo
	if before, noted := h.foreign.get(p); noted && before == theirs {
		level = slog.LevelDebug // it comes back, and is logged once
	}
	h.foreign.add(p, theirs)
	if slices.ContainsFunc(h.cfg.Bootstrap, func(i peer.AddrInfo) bool { return i.ID == p }) {
		h.complain(p, errOtherNetwork)
		level = slog.LevelDebug
	}
	h.log.Log(context.Background(), level, "peer of another network disconnected", "peer", p, "theirs", theirs, "ours",
		h.handshake)
	for _, c := range h.Network().ConnsToPeer(p) {
		_ = c.CloseWithError(connOtherNetwork)
	}
	h.Peerstore().ClearAddrs(p)
}

// candidates are the peers to dial now, in random order: anything known while we have few peers, and one
// bootstrap peer when we have enough.
func (h *Host) candidates() []peer.AddrInfo {
	var out []peer.AddrInfo
	add := func(p peer.AddrInfo, missing bool) {
		if p.ID != h.ID() && len(p.Addrs) > 0 && missing {
			out = append(out, p)
		}
	}
	for _, i := range rand.Perm(len(h.cfg.Bootstrap)) {
		// One that reached us through a relay may be a relay itself, and is none to us before we have dialled it.
		add(h.cfg.Bootstrap[i], !h.direct(h.cfg.Bootstrap[i].ID))
	}
	if len(h.Network().Peers()) >= wantPeers {
		return out[:min(len(out), 1)]
	}
	// Half of a round goes to remembered peers, so that dead bootstrap peers cannot fill it.
	out = out[:min(len(out), dialBatch/2)]
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.remembered { // in Go's random order
		if len(out) == dialBatch {
			break
		}
		add(peer.AddrInfo{ID: e.ID, Addrs: e.Addrs}, h.Network().Connectedness(e.ID) != network.Connected)
	}
	return out
}

// dial connects to all of them at once, waits and closes done.
func (h *Host) dial(ctx context.Context, to []peer.AddrInfo, done chan<- struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	var g errgroup.Group
	for _, p := range to {
		g.Go(func() error {
			h.Forgive(p.ID) // this loop has its own pauses
			ctx := ctx
			if h.Network().Connectedness(p.ID) == network.Connected {
				ctx = network.WithForceDirectDial(ctx, "bootstrap")
			}
			if err := h.Connect(ctx, p); err != nil {
				h.log.Debug("dial failed", "peer", p.ID, "err", err)
				h.complain(p.ID, err)
			}
			return nil
		})
	}
	_ = g.Wait()
}

// complain notifies the operator, once, of a reachable bootstrap peer with which this configuration never connects.
func (h *Host) complain(p peer.ID, err error) {
	d := h.Diagnose(p, err)
	if d == nil || !slices.Contains([]Reason{ReasonOtherNetwork, ReasonOtherKey, ReasonOtherPeer, ReasonBlocked},
		d.Reason) {
		return
	}
	if before, ok := h.refusals.get(p); !ok || before.Reason != d.Reason {
		h.log.Warn("cannot join by a peer", "peer", p, "why", d.Text, "advice", d.Advice)
	}
	h.refusals.add(p, d)
}

// errOtherNetwork is why a peer of another network is disconnected.
var errOtherNetwork = errors.New("peer of another network")

// Alone reports whether this peer is connected to no other of its network although it knows some to join by. It returns
// the first of their addresses, and the diagnosis of a bootstrap peer, if any, with which this configuration never
// connects.
func (h *Host) Alone() (tried []string, refusal *Diagnosis, alone bool) {
	tried, known := ways(h)
	for _, p := range h.cfg.Bootstrap {
		if d, ok := h.refusals.get(p.ID); ok {
			refusal = d
		}
	}
	return tried, refusal, known > 0 && h.alone.Load() && joined(h) == 0
}

// ways returns addresses of other peers to join by, and how many such peers are known.
func ways(h *Host) (addrs []string, known int) {
	for _, i := range h.cfg.Bootstrap {
		if i.ID == h.ID() {
			continue
		}
		if known++; known > maxTried {
			continue
		}
		for _, addr := range i.Addrs {
			addrs = append(addrs, fmt.Sprintf("%s/p2p/%s", addr, i.ID))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return addrs, known + len(h.remembered)
}

// warnAlone logs that no peer to join by answers, or that none is known.
func warnAlone(h *Host) {
	tried, known := ways(h)
	if known == 0 {
		h.log.Warn("connected to no peer, and none to join by is known", "advice",
			"name one under bootstrap in config.yaml, unless others join by this one")
		return
	}
	h.log.Warn("connected to no peer: none to join by answers", "tried", tried, "known", known,
		"advice", "check bootstrap in config.yaml and this machine's network; the peer goes on trying")
}

// jitter spreads d by a fifth, so that peers started together do not dial together.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5)
}
