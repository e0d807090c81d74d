package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/reach"
	"github.com/starling-network/starling/p2p"
)

// maxPingTime bounds one ping of a user, all rounds together.
const maxPingTime = 2 * time.Minute

// Ping measures the way to a peer: a full multiaddr, a peer id or a key. If it cannot be reached, the answer has the
// reason.
func (s *Status) Ping(ctx context.Context, target string, count int) (api.PingResult, error) {
	info, err := parseTarget(target)
	if err != nil {
		return api.PingResult{}, &api.Error{
			Status: 400, Code: "bad_peer", Message: err.Error(),
			Hint: "starling peer ls lists the connected peers",
		}
	}
	ctx, cancel := context.WithTimeout(ctx, maxPingTime)
	defer cancel()
	r, err := s.cfg.Host.Ping(ctx, info, count)
	out := api.PingResult{Peer: info.ID.String()}
	if d, ok := errors.AsType[*p2p.Diagnosis](err); ok {
		out.Problem = &api.Problem{
			Reason: string(d.Reason), Text: d.Text, Advice: d.Advice, Seen: d.Seen, Detail: firstLines(d.Err, 12),
		}
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

// firstLines returns an error's text, as long as a person reads.
func firstLines(err error, n int) string {
	lines := strings.Split(err.Error(), "\n")
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

func parseTarget(text string) (peer.AddrInfo, error) {
	if strings.HasPrefix(text, "/") {
		info, err := peer.AddrInfoFromString(text)
		if err != nil {
			return peer.AddrInfo{}, fmt.Errorf("%q is no address of a peer: %w (it ends in /p2p/ and the peer's id)",
				text, err)
		}
		_, err = p2p.KeyFromPeerID(info.ID)
		return *info, err
	}
	id, err := reach.ParsePeer(text)
	return peer.AddrInfo{ID: id}, err
}

func connInfo(c p2p.Conn) api.ConnInfo {
	i := api.ConnInfo{
		Path: string(c.Path), Addr: c.Addr.String(), Direction: "out", Limited: c.Limited, Opened: c.Opened,
	}
	if c.Via != "" {
		i.Via = c.Via.String()
	}
	if c.Inbound {
		i.Direction = "in"
	}
	return i
}

// reach describes how this peer can be reached.
func (s *Status) reach() api.Reach {
	var out api.Reach
	r := s.cfg.Host.Reach()
	out.State, out.Text = string(r.State), r.Text
	for _, a := range r.Addrs {
		out.Addrs = append(out.Addrs, api.ReachAddr{
			Addr: a.Addr.String(), Class: string(a.Class), State: string(a.State), Mapped: a.Mapped,
		})
	}
	for _, id := range r.Relays {
		out.Relays = append(out.Relays, id.String())
	}
	slices.Sort(out.Relays)
	if r := s.cfg.Host.Relay(); r != nil {
		st := r.Stats()
		out.Serving = &api.Serving{
			Circuits: st.Circuits, Opened: st.Opened, Refused: st.Refused, Bytes: st.Bytes,
		}
	}
	out.Private = s.cfg.Private
	return out
}
