package p2p

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"

	"github.com/starling-network/starling/p2p/conns"
)

const (
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
		if theirs, known := h.membership.reported(p); known && !h.membership.accepts(theirs) {
			h.dismiss(p, theirs)
		}
	}

	// Dialling and probing are apart, because libp2p's emitters wait for a reader that does not empty its queue.
	var children sync.WaitGroup
	defer children.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	children.Go(func() { h.join.run(ctx) })
	guided := make(chan error, 1)
	if h.guided {
		children.Go(func() { guided <- guide(ctx, h, h.log) })
		children.Go(func() { h.punches.Run(ctx) })
	}
	saves := time.NewTicker(saveEvery)
	defer saves.Stop()
	for {
		select {
		case <-ctx.Done():
			children.Wait()
			h.save()
			return nil
		case err := <-guided:
			if err != nil {
				return err
			}
			guided = nil
		case <-saves.C:
			conns.CloseRelayed(h, h.log)
			h.save()
		case ev := <-events.Out():
			if id, ok := ev.(event.EvtPeerIdentificationCompleted); ok && len(h.Network().ConnsToPeer(id.Peer)) > 1 {
				children.Go(func() { conns.CloseStale(ctx, h, id.Conn, h.log) })
			}
			h.observe(ev)
		}
	}
}

// save writes the connected peers down.
func (h *Host) save() {
	if err := h.book.Save(h, time.Now()); err != nil {
		h.log.Warn("peers not remembered", "err", err)
	}
}

// observe disconnects peers of another network, and starts a new round after the last peer has disconnected.
func (h *Host) observe(ev any) {
	switch ev := ev.(type) {
	case event.EvtPeerIdentificationCompleted:
		if conns.Relayed(ev.Conn) {
			h.viaRelay.Set(ev.Peer, ev.Conn.Stat().Opened)
		}
		h.punches.Observed(ev.Conn, ev.ObservedAddr)
		if !h.membership.accepts(ev.ProtocolVersion) {
			h.dismiss(ev.Peer, ev.ProtocolVersion)
			return
		}
		h.membership.foreign.Delete(ev.Peer)
		h.join.refusals.Delete(ev.Peer)
	case event.EvtPeerConnectednessChanged:
		switch {
		case ev.Connectedness == network.Connected:
			h.Forgive(ev.Peer)
		case ev.Connectedness == network.NotConnected && !h.membership.foreigner(ev.Peer) && h.membership.joined() == 0:
			h.join.hurry()
		}
	}
}

// dismiss disconnects a peer of another network. For a bootstrap peer it logs a separate warning.
func (h *Host) dismiss(p peer.ID, theirs string) {
	configured := h.join.configured(p)
	h.membership.dismiss(p, theirs, configured)
	if configured {
		h.join.complain(p, errOtherNetwork)
	}
}

// Alone reports whether this peer has no connection to its network, although it has addresses to join by. It returns
// the first of these addresses. If this configuration can never connect to a bootstrap peer, it returns that peer's
// diagnosis.
func (h *Host) Alone() (tried []string, refusal *Diagnosis, alone bool) { return h.join.state() }
