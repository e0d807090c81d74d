package gossip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/admit"
)

// Self returns the id that messages of this peer are signed by.
func (g *Gossip) Self() peer.ID { return g.self }

// PeersOf returns the connected peers that joined a topic, whether or not this one did.
func (g *Gossip) PeersOf(name string) []peer.ID { return g.ps.ListPeers(prefix(g.network) + name) }

// NetworksOf returns how many networks ([admit.NetworkOf]) the connected peers are in that joined a topic; one in none
// counts as its own.
func (g *Gossip) NetworksOf(name string) int {
	nets, alone := map[netip.Prefix]bool{}, 0
	for _, p := range g.PeersOf(name) {
		if at := admit.NetworkOfPeer(g.h.Network(), p); at.IsValid() {
			nets[at] = true
		} else if len(g.h.Network().ConnsToPeer(p)) > 0 { // else it has just left
			alone++
		}
	}
	return len(nets) + alone
}

// Send signs data and sends it to the neighbours that joined a topic that this peer has not joined. This peer does not
// decode it. As with Publish, success does not imply delivery. Send returns ErrName, ErrTooLarge or ctx's error.
func (g *Gossip) Send(ctx context.Context, name string, data []byte) error {
	fail := func(err error) error { return fmt.Errorf("sending to topic %q: %w", name, err) }
	switch {
	case !topicName.MatchString(name):
		return fail(ErrName)
	case len(data) > MaxMessage:
		return fail(fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), MaxMessage))
	}
	g.sending.Lock() // a topic has one handle at a time
	defer g.sending.Unlock()
	t, err := g.ps.Join(prefix(g.network) + name)
	if err != nil {
		return fail(err)
	}
	if err := errors.Join(t.Publish(ctx, data), t.Close()); err != nil {
		return fail(err)
	}
	return nil
}
