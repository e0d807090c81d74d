package main

import (
	"context"
	"net"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2pprotocol "github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/starling-network/starling/node/protocol"
)

// patience bounds one attempt of any attack.
const patience = 5 * time.Second

// connected returns a connection of a key to a target, and opens one if there is none.
func connected(ctx context.Context, h host.Host, to peer.AddrInfo) (network.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if h.Network().Connectedness(to.ID) != network.Connected {
		if err := h.Connect(ctx, to); err != nil {
			return nil, err
		}
	}
	return h.Network().DialPeer(ctx, to.ID)
}

// silentHandshakes opens TCP connections without a handshake, a hundred at a time.
func (a *attacker) silentHandshakes(ctx context.Context, c *count, _ []int, to peer.AddrInfo) {
	const atOnce = 100
	var at net.Addr
	for _, addr := range to.Addrs {
		if n, err := manet.ToNetAddr(addr); err == nil && n.Network() == "tcp" {
			at = n
		}
	}
	if at == nil {
		return
	}
	open := make([]net.Conn, atOnce)
	pace(ctx, 25, func(i int) {
		if old := open[i%atOnce]; old != nil {
			_ = old.Close()
		}
		conn, err := net.DialTimeout("tcp", at.String(), patience)
		c.note(err)
		open[i%atOnce] = conn
	})
	for _, conn := range open {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// muteStreams opens streams without a protocol, as many as a connection allows.
func (a *attacker) muteStreams(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	pace(ctx, 25, func(i int) {
		conn, err := connected(ctx, a.hosts[keys[i%len(keys)]], to)
		if err == nil {
			var s network.Stream
			if s, err = conn.NewStream(ctx); err == nil {
				_, err = s.Write([]byte("\x13/multistream/1.0.0\n"))
			}
		}
		c.note(err)
	})
}

// muteCallers opens a stream of each protocol and sends the first byte of a request.
func (a *attacker) muteCallers(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	tag := a.genesis.Tag()
	ids := []libp2pprotocol.ID{
		protocol.Ask.ID(tag), protocol.Quote.ID(tag), protocol.Lease.ID(tag), protocol.Exec.ID(tag),
		protocol.Meter.ID(tag), protocol.Guard.ID(tag), protocol.Proof.ID(tag), protocol.Anchored.ID(tag),
		protocol.Coord.ID(tag), protocol.Watch.ID(tag),
	}
	pace(ctx, 25, func(i int) {
		c.note(a.send(ctx, keys[i%len(keys)], to, ids[i%len(ids)], []byte{0}))
	})
}

// send opens a stream of a protocol, sends bytes, and leaves it open.
func (a *attacker) send(ctx context.Context, key int, to peer.AddrInfo, id libp2pprotocol.ID, bytes []byte) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := connected(ctx, a.hosts[key], to); err != nil {
		return err
	}
	s, err := a.hosts[key].NewStream(ctx, to.ID, id)
	if err != nil {
		return err
	}
	_, err = s.Write(bytes)
	return err
}

// connections keeps a connection of each key over each transport, and reopens closed connections.
func (a *attacker) connections(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	pace(ctx, 5, func(i int) {
		h := a.hosts[keys[i%len(keys)]]
		one := peer.AddrInfo{ID: to.ID, Addrs: []ma.Multiaddr{to.Addrs[i/len(keys)%len(to.Addrs)]}}
		ctx, cancel := context.WithTimeout(network.WithForceDirectDial(ctx, "another"), patience)
		defer cancel()
		c.note(h.Connect(ctx, one))
	})
}
