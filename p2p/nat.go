package p2p

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/autorelay"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/proto"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/starling-network/starling/p2p/conns"
	"github.com/starling-network/starling/p2p/portmap"
	"github.com/starling-network/starling/p2p/relay"
)

// How a peer that cannot be dialled finds relays.
const (
	// wantRelays is at how many relays it keeps a place: one to use and one to lose.
	wantRelays = 2
	// relayCandidates bounds the relays that one round considers.
	relayCandidates = 16
	// relaySearch is the pause between rounds while places are missing.
	relaySearch = 5 * time.Second
	// relayBackoff is how long a relay that gave no place is left alone.
	relayBackoff = 10 * time.Second
)

// natOptions are the libp2p options for cfg.NAT, listening included.
func natOptions(cfg Config, mapped *portmap.Mapper) ([]libp2p.Option, *relaySource) {
	// Every host can dial and accept relayed connections. Unused, this costs nothing.
	opts := []libp2p.Option{libp2p.EnableRelay()}
	n := cfg.NAT
	if n.DialOutOnly {
		opts = append(opts, libp2p.NoListenAddrs)
	} else {
		opts = append(opts, libp2p.ListenAddrStrings(cfg.listen()...))
	}
	if cfg.Transport != nil || !n.DialOutOnly && cfg.loopbackOnly() {
		return opts, nil // no NAT to get through
	}
	if n.PortMap && !n.DialOutOnly {
		opts = append(opts, libp2p.NATManager(mapped.Start))
	}
	if !n.Auto && !n.DialOutOnly && len(n.Relays) == 0 {
		return opts, nil
	}
	source := &relaySource{static: n.Relays, bootstrap: cfg.Bootstrap}
	opts = append(opts, libp2p.EnableAutoNATv2(), libp2p.EnableHolePunching(),
		// The older AutoNAT would repeat the same requests; guide supplies its verdict from AutoNATv2's.
		libp2p.ForceReachabilityPrivate())
	if n.Serve {
		// A relay can be dialled. If it were reached through others too, peers reached through it would not accept it
		// as a relay.
		return opts, source
	}
	return append(opts,
		libp2p.EnableAutoRelayWithPeerSource(source.peers,
			autorelay.WithNumRelays(wantRelays), autorelay.WithMinCandidates(1),
			autorelay.WithMaxCandidates(relayCandidates), autorelay.WithBootDelay(0),
			autorelay.WithMinInterval(relaySearch), autorelay.WithBackoff(relayBackoff)),
	), source
}

// listen are the addresses to listen on.
func (c Config) listen() []string {
	if len(c.Listen) > 0 {
		return c.Listen
	}
	if c.PSK != nil {
		return []string{"/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0"}
	}
	return []string{"/ip4/0.0.0.0/tcp/0", "/ip4/0.0.0.0/udp/0/quic-v1", "/ip6/::/tcp/0", "/ip6/::/udp/0/quic-v1"}
}

// loopbackOnly reports whether this host can be dialled only from this machine.
func (c Config) loopbackOnly() bool {
	return !slices.ContainsFunc(c.listen(), func(text string) bool {
		a, err := ma.NewMultiaddr(text)
		return err != nil || !manet.IsIPLoopback(a)
	})
}

// relaySource returns possible relays: those given, the bootstrap peers, and connected peers that offer to relay.
type relaySource struct {
	static, bootstrap []peer.AddrInfo
	h                 atomic.Pointer[Host] // nil until the host stands
}

// peers sends up to num candidates, those given first.
func (r *relaySource) peers(ctx context.Context, num int) <-chan peer.AddrInfo {
	out := make(chan peer.AddrInfo, num)
	defer close(out)
	seen := make(map[peer.ID]bool)
	add := func(p peer.AddrInfo) {
		if len(out) < num && !seen[p.ID] {
			seen[p.ID] = true
			out <- p
		}
	}
	h := r.h.Load()
	for _, p := range r.static {
		if h != nil {
			r.straighten(ctx, h, p)
		}
		add(p)
	}
	if h != nil {
		connected := h.Network().Peers()
		rand.Shuffle(len(connected), func(i, j int) { connected[i], connected[j] = connected[j], connected[i] })
		for _, p := range connected {
			if offers, err := h.Peerstore().SupportsProtocols(p, proto.ProtoIDv2Hop); err == nil && len(offers) > 0 {
				r.straighten(ctx, h, h.Peerstore().PeerInfo(p))
				if conns.Direct(h, p) {
					add(h.Peerstore().PeerInfo(p))
				}
			}
		}
	}
	for _, i := range rand.Perm(len(r.bootstrap)) {
		add(r.bootstrap[i])
	}
	return out
}

// straighten dials a peer that is connected only through a relay, so that it can be a relay itself: libp2p's relay
// client accepts no relayed peer.
func (r *relaySource) straighten(ctx context.Context, h *Host, p peer.AddrInfo) {
	if h.Network().Connectedness(p.ID) == network.NotConnected {
		return
	}
	if !conns.Direct(h, p.ID) {
		ctx, cancel := context.WithTimeout(network.WithForceDirectDial(ctx, "relay"), DialTimeout/4)
		defer cancel()
		if err := h.Connect(ctx, p); err != nil {
			return
		}
	}
	conns.CloseRelayed(h, h.log)
}

// serve begins to relay for others. Both ends must be of this network, as far as they have named theirs.
func (h *Host) serve() error {
	var err error
	h.relay, err = relay.New(h.Host, relay.Config{
		Limits: h.cfg.NAT.Limits, Logger: h.log, Standing: h.Standing,
		Allow: func(client, target peer.ID) bool {
			return !h.blocked[client] && !h.blocked[target] && !h.membership.foreigner(client) &&
				!h.membership.foreigner(target)
		},
		Find: func(ctx context.Context, target peer.ID) (peer.AddrInfo, error) {
			find := h.find.Load()
			if find == nil {
				return peer.AddrInfo{}, errors.New("no peer lookup configured")
			}
			return (*find)(ctx, target)
		},
	})
	return err
}

// guide supplies the verdict that starts and stops libp2p's relay client: relays are needed until an address of ours is
// known to be reachable.
func guide(ctx context.Context, h host.Host, log *slog.Logger) error {
	sub, err := h.EventBus().Subscribe(new(event.EvtHostReachableAddrsChanged), eventbus.Name("starling/reach"))
	if err != nil {
		return fmt.Errorf("subscribing to reachability: %w", err)
	}
	defer sub.Close()
	emit, err := h.EventBus().Emitter(new(event.EvtLocalReachabilityChanged), eventbus.Stateful)
	if err != nil {
		return fmt.Errorf("publishing reachability: %w", err)
	}
	defer emit.Close()
	was := network.ReachabilityPrivate
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-sub.Out():
			now := network.ReachabilityPrivate
			if len(ev.(event.EvtHostReachableAddrsChanged).Reachable) > 0 {
				now = network.ReachabilityPublic
			}
			if now != was {
				log.Info("reachability", "now", strings.ToLower(now.String()))
				if err := emit.Emit(event.EvtLocalReachabilityChanged{Reachability: now}); err != nil {
					return fmt.Errorf("publishing reachability: %w", err)
				}
				was = now
			}
		}
	}
}
