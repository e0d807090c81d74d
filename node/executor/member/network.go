package member

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
)

// Networks joins executions to the overlays of their clusters, or to a way out alone.
type Networks interface {
	// Join makes an execution a member of an overlay, at first without others. If Joining names no cluster, the
	// execution has the way out alone and gets no members. Join takes over the TUN, also when it fails.
	Join(j Joining) (Network, error)
}

// Joining is one execution that is to have a network.
type Joining struct {
	Cluster string             // empty: it is of no cluster
	Key     cluster.PrivateKey // of a member
	Address netip.Addr
	MTU     int
	Tun     *os.File
	// Names returns the addresses that a name has in its cluster, none when there is no such name.
	Names func(name string) []netip.Addr
	// Internet reports that the job requests internet access.
	Internet bool
	// Services are the peer's own services for the program at cluster.Service, by TCP port.
	Services map[uint16]func(context.Context, net.Conn)
	Log      *slog.Logger
}

// Network is one membership.
type Network interface {
	// SetMembers replaces the others. Once it returns, a removed member cannot reach the execution.
	SetMembers(others []Peer) error
	// Links returns the current paths to the others.
	Links() []Link
	// Close leaves, and returns when everything of the membership has ended.
	Close() error
}

// Peer is another member.
type Peer struct {
	Key     market.OverlayKey
	Peer    peer.ID
	Address netip.Addr
	Addrs   []ma.Multiaddr
}

// Link is the path to another member.
type Link struct {
	Address   netip.Addr
	Path      nodepb.LinkPath
	RTT       time.Duration // 0: not known
	MTU       int           // 0: not known
	Rx, Tx    uint64        // bytes
	Handshake time.Time     // zero: none yet
}

// Keys has this peer's keys in overlays.
type Keys interface {
	// Member returns the private key of a hold.
	Member(hold market.HoldID) cluster.PrivateKey
}
