package book

import (
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
)

// Remember adds addresses of a peer to the host's address book, without those that cannot be read, and returns the
// peer's id. It returns an error for a key that is no peer's.
func Remember(h host.Host, p sign.Key, addrs []string) (peer.ID, error) {
	id, err := p2p.PeerIDFromKey(p)
	if err != nil {
		return "", err
	}
	var out []ma.Multiaddr
	for _, s := range addrs {
		if a, err := ma.NewMultiaddr(s); err == nil {
			out = append(out, a)
		}
	}
	h.Peerstore().AddAddrs(id, out, peerstore.TempAddrTTL)
	return id, nil
}
