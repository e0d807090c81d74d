package p2p

import (
	"context"
	"log/slog"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/peermap"
)

const (
	// maxHandshake bounds the remembered network name of a peer of another network.
	maxHandshake = 128
	// connOtherNetwork is the code with which a connection to a peer of another network is closed.
	connOtherNetwork network.ConnErrorCode = 0x53740001
)

// membership identifies the peers of this host's network by the protocol version that identify reports.
type membership struct {
	h   host.Host
	log *slog.Logger
	// handshake is identify's protocol version. A peer of another network has a different one. "" disables the check.
	handshake string
	foreign   peermap.Map[string] // peers of other networks, with the networks that they named
}

func handshake(network string) string { return "starling/" + network }

// accepts reports whether a peer with a handshake is of this network, or has no network yet.
func (m *membership) accepts(theirs string) bool {
	return m.handshake == "" || theirs == m.handshake || theirs == handshake(AnyNetwork)
}

// reported returns the handshake of a peer and reports whether it has sent one.
func (m *membership) reported(p peer.ID) (theirs string, known bool) {
	v, err := m.h.Peerstore().Get(p, "ProtocolVersion")
	theirs, _ = v.(string)
	return theirs, err == nil
}

// foreigner reports whether p has identified as a peer of another network.
func (m *membership) foreigner(p peer.ID) bool {
	if _, noted := m.foreign.Get(p); noted {
		return true
	}
	theirs, known := m.reported(p)
	return known && !m.accepts(theirs)
}

// joined returns the number of connected peers that have identified as peers of this network.
func (m *membership) joined() (n int) {
	for _, p := range m.h.Network().Peers() {
		if theirs, _ := m.reported(p); m.accepts(theirs) {
			n++
		}
	}
	return n
}

// dismiss disconnects a peer of another network and sends it the reason. It logs it once, quietly if quiet is set.
func (m *membership) dismiss(p peer.ID, theirs string, quiet bool) {
	theirs = theirs[:min(len(theirs), maxHandshake)]
	level := slog.LevelInfo
	if before, noted := m.foreign.Get(p); quiet || noted && before == theirs {
		level = slog.LevelDebug // it comes back, and is logged once
	}
	m.foreign.Set(p, theirs)
	m.log.Log(context.Background(), level, "peer of another network disconnected", "peer", p, "theirs", theirs, "ours",
		m.handshake)
	for _, c := range m.h.Network().ConnsToPeer(p) {
		_ = c.CloseWithError(connOtherNetwork)
	}
	m.h.Peerstore().ClearAddrs(p)
}
