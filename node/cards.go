package node

import (
	"context"
	"time"

	"github.com/libp2p/go-libp2p/core/peerstore"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/discovery"
)

// newClaims makes the part that knows which units claim one card; nil where nothing is audited.
func (n *Node) newClaims() *audit.Claims {
	if n.sight == nil {
		return nil
	}
	c := audit.ClaimsConfig{
		Domain: n.p.Genesis.Domain(), WindowSlots: n.p.Genesis.AuditSlots, Sight: n.sight, Ask: audit.Asker{Host: n.p.Host, Tag: n.tag}.Ask,
		Now: time.Now, Log: n.p.Log.With("role", "audit"),
	}
	if n.p.Light == nil { // a light client asks those of whom it knows by their records
		c.Find = n.claimants
	}
	return audit.NewClaims(c)
}

// cardTopic is what who claims a card is found under: of its tag as much as a topic holds, 104 bits.
func cardTopic(tag sign.Hash) discovery.Topic {
	return discovery.Topic{Class: "card/" + tag.String()[:26]}
}

// claimants are peers that are said to claim a card. Nobody is believed: who is asked shows a record or claims nothing.
func (n *Node) claimants(ctx context.Context, tag sign.Hash, most int) ([]sign.Key, error) {
	hints, err := n.discovery.Hints(ctx, cardTopic(tag), most)
	var out []sign.Key
	for _, h := range hints {
		if key, bad := p2p.KeyFromPeerID(h.ID); bad == nil {
			n.p.Host.Peerstore().AddAddrs(h.ID, h.Addrs, peerstore.TempAddrTTL)
			out = append(out, sign.Key(key))
		}
	}
	return out, err
}

// claimCards has this peer found by the cards that its units claim.
func (n *Node) claimCards(tags []sign.Hash) {
	topics := make([]discovery.Topic, len(tags))
	for i, tag := range tags {
		topics[i] = cardTopic(tag)
	}
	if err := n.discovery.Mark(topics); err != nil {
		n.p.Log.Error("this peer is not found by its cards", "err", err)
	}
}
