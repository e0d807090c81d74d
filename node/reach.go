package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/relay"
)

// NAT is how a peer that cannot be dialled is reached.
type NAT struct {
	// Auto finds out whether the peer can be dialled, reserves places at relays if not, and punches holes.
	Auto bool `yaml:"auto"`
	// PortMap asks the router for a port by UPnP.
	PortMap bool `yaml:"portMap"`
	// DialOutOnly listens on nothing; the peer is reached through relays.
	DialOutOnly bool `yaml:"dialOutOnly"`
	// Relays are full multiaddrs of relays to try first; others are found without.
	Relays []string `yaml:"relays"`
}

// Relay is what a peer does for those that cannot be dialled, and for light clients. Zero limits take the defaults.
type Relay struct {
	Serve        bool          `yaml:"serve"`
	DataMiB      int64         `yaml:"dataMiB"`  // that one circuit may carry, both ways together; -1: no limit
	Duration     time.Duration `yaml:"duration"` // that one circuit may live; -1s: no limit
	Circuits     int           `yaml:"circuits"`
	PerPeer      int           `yaml:"perPeer"`
	Reservations int           `yaml:"reservations"`
	PerIP        int           `yaml:"perIP"`
	MiBPerSecond int64         `yaml:"mibPerSecond"` // that all circuits may carry, both ways together; -1: no limit
}

// maxRelayMiB bounds Relay.DataMiB and Relay.MiBPerSecond, so that they fit in bytes.
const maxRelayMiB = 1 << 40

func (r Relay) limits() relay.Limits {
	return relay.Limits{Data: r.DataMiB << 20, Duration: r.Duration, Circuits: r.Circuits, PerPeer: r.PerPeer, Reservations: r.Reservations, PerIP: r.PerIP, Rate: r.MiBPerSecond << 20}
}

// validateReach checks what a configuration says of the network.
func (c Config) validateReach() error {
	if c.Relay.DataMiB > maxRelayMiB {
		return fmt.Errorf("%w: relay.dataMiB: %d is above %d", ErrConfig, c.Relay.DataMiB, int64(maxRelayMiB))
	}
	if c.Relay.MiBPerSecond > maxRelayMiB {
		return fmt.Errorf("%w: relay.mibPerSecond: %d is above %d", ErrConfig, c.Relay.MiBPerSecond, int64(maxRelayMiB))
	}
	if err := c.Relay.limits().Check(); err != nil {
		return fmt.Errorf("%w: relay: %w", ErrConfig, err)
	}
	if c.NAT.DialOutOnly {
		switch {
		case len(c.Listen) > 0 || len(c.Announce) > 0:
			return fmt.Errorf("%w: nat.dialOutOnly: a peer that only dials out has nothing to listen on; leave listen and announce empty", ErrConfig)
		case c.Relay.Serve:
			return fmt.Errorf("%w: relay.serve: a peer that only dials out (nat.dialOutOnly) cannot relay", ErrConfig)
		}
	}
	if _, err := infos("nat.relays", c.NAT.Relays); err != nil {
		return err
	}
	_, err := c.blocked()
	return err
}

// blocked is the block list: peer ids, or the same keys as Solana addresses.
func (c Config) blocked() ([]peer.ID, error) {
	var out []peer.ID
	for i, text := range c.Block {
		id, err := ParsePeer(text)
		if err != nil {
			return nil, fmt.Errorf("%w: block[%d]: %w", ErrConfig, i, err)
		}
		out = append(out, id)
	}
	return out, nil
}

// ParsePeer reads a peer's name: its libp2p id, or the same key as a Solana address.
func ParsePeer(text string) (peer.ID, error) {
	if id, err := peer.Decode(text); err == nil {
		if _, err := p2p.KeyFromPeerID(id); err != nil {
			return "", fmt.Errorf("%q: %w", text, err)
		}
		return id, nil
	}
	k, err := sign.ParseKey(text)
	if err != nil {
		return "", fmt.Errorf("%q is neither a peer id (12D3Koo…) nor a key", text)
	}
	return p2p.PeerIDFromKey(k)
}

// hostConfig is the part of the host's configuration that says how it is reached.
func (c Config) hostConfig(home string) (p2p.Config, error) {
	boot, err := infos("bootstrap", c.Bootstrap)
	if err != nil {
		return p2p.Config{}, err
	}
	relays, err := infos("nat.relays", c.NAT.Relays)
	if err != nil {
		return p2p.Config{}, err
	}
	block, err := c.blocked()
	if err != nil {
		return p2p.Config{}, err
	}
	out := p2p.Config{
		Listen: c.Listen, Announce: c.Announce, Bootstrap: boot, Block: block, PeerstoreDir: filepath.Join(home, "peers"),
		PlainUDP: c.PlainUDP,
		NAT: p2p.NAT{
			Auto: c.NAT.Auto, PortMap: c.NAT.PortMap, DialOutOnly: c.NAT.DialOutOnly, Relays: relays,
			Serve: c.Relay.Serve, Limits: c.Relay.limits(),
		},
	}
	if c.PrivateNetwork != "" {
		path := c.PrivateNetwork
		if !filepath.IsAbs(path) {
			path = filepath.Join(home, path)
		}
		if out.PSK, err = p2p.LoadPSK(path); err != nil {
			return out, fmt.Errorf("%w: privateNetwork: %w", ErrConfig, err)
		}
	}
	return out, nil
}

// infos reads full multiaddrs.
func infos(field string, addrs []string) ([]peer.AddrInfo, error) {
	var all []ma.Multiaddr
	for i, text := range addrs {
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %s[%d]: %q: %w", ErrConfig, field, i, text, err)
		}
		if _, err := peer.AddrInfoFromP2pAddr(a); err != nil {
			return nil, fmt.Errorf("%w: %s[%d]: %q does not end in /p2p/ and the peer's id", ErrConfig, field, i, text)
		}
		all = append(all, a)
	}
	out, err := peer.AddrInfosFromP2pAddrs(all...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, field, err)
	}
	return out, nil
}

// maxPingTime bounds one ping of a user, all rounds together.
const maxPingTime = 2 * time.Minute

// Ping measures the way to a peer: a full multiaddr, a peer id or a key. When it cannot be talked to, the answer says why.
func (n *Node) Ping(ctx context.Context, target string, count int) (api.PingResult, error) {
	info, err := parseTarget(target)
	if err != nil {
		return api.PingResult{}, &api.Error{Status: 400, Code: "bad_peer", Message: err.Error(), Hint: "starling peer ls lists those that are connected"}
	}
	ctx, cancel := context.WithTimeout(ctx, maxPingTime)
	defer cancel()
	r, err := n.p.Host.Ping(ctx, info, count)
	out := api.PingResult{Peer: info.ID.String()}
	if d, ok := errors.AsType[*p2p.Diagnosis](err); ok {
		out.Problem = &api.Problem{Reason: string(d.Reason), Text: d.Text, Advice: d.Advice, Seen: d.Seen, Detail: firstLines(d.Err, 12)}
		return out, nil
	}
	if err != nil {
		return out, &api.Error{Status: 400, Code: "bad_peer", Message: err.Error()}
	}
	out.Conn = connInfo(r.Conn)
	for _, rtt := range r.RTTs {
		out.RTTs = append(out.RTTs, float64(rtt)/float64(time.Millisecond))
	}
	return out, nil
}

// firstLines is an error's text, as long as a person reads.
func firstLines(err error, n int) string {
	lines := strings.Split(err.Error(), "\n")
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

func parseTarget(text string) (peer.AddrInfo, error) {
	if strings.HasPrefix(text, "/") {
		info, err := peer.AddrInfoFromString(text)
		if err != nil {
			return peer.AddrInfo{}, fmt.Errorf("%q is no address of a peer: %w (it ends in /p2p/ and the peer's id)", text, err)
		}
		_, err = p2p.KeyFromPeerID(info.ID)
		return *info, err
	}
	id, err := ParsePeer(text)
	return peer.AddrInfo{ID: id}, err
}

func connInfo(c p2p.Conn) api.ConnInfo {
	i := api.ConnInfo{Path: string(c.Path), Addr: c.Addr.String(), Direction: "out", Limited: c.Limited, Opened: c.Opened}
	if c.Via != "" {
		i.Via = c.Via.String()
	}
	if c.Inbound {
		i.Direction = "in"
	}
	return i
}

// reach describes how this peer can be reached.
func (n *Node) reach() api.Reach {
	var out api.Reach
	r := n.p.Host.Reach()
	out.State, out.Text = string(r.State), r.Text
	for _, a := range r.Addrs {
		out.Addrs = append(out.Addrs, api.ReachAddr{Addr: a.Addr.String(), Class: string(a.Class), State: string(a.State), Mapped: a.Mapped})
	}
	for _, id := range r.Relays {
		out.Relays = append(out.Relays, id.String())
	}
	slices.Sort(out.Relays)
	if s := n.p.Host.Relay(); s != nil {
		st := s.Stats()
		out.Serving = &api.Serving{Circuits: st.Circuits, Opened: st.Opened, Refused: st.Refused, Bytes: st.Bytes}
	}
	out.Private = n.p.Config.PrivateNetwork != ""
	return out
}
