package p2p

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/quic-go/quic-go"

	"github.com/starling-network/starling/p2p/addr"
)

// Reason is why a peer cannot be talked to.
type Reason string

const (
	ReasonBlocked     Reason = "blocked"      // it is there and refuses us
	ReasonBlockedHere Reason = "blocked-here" // our own block list names it
	ReasonOffline     Reason = "offline"      // none of its addresses answers
	ReasonNoAddress   Reason = "no-address"   // no source has an address of it
	// all its addresses are in private networks, which strangers are not dialled in
	ReasonClosed       Reason = "closed"
	ReasonBehindNAT    Reason = "behind-nat"    // it can only be reached through relays, and these did not reach it
	ReasonOtherNetwork Reason = "other-network" // it is there, on a network with another genesis
	// it is on a private network with another pre-shared key, or one of us has none
	ReasonOtherKey  Reason = "other-key"
	ReasonOtherPeer Reason = "other-peer" // another peer answers at its addresses
	ReasonFull      Reason = "full"       // it is there and takes no more connections now
	ReasonGone      Reason = "gone"       // it answered, and then it did not
)

// Diagnosis is why a peer cannot be talked to, for a person.
type Diagnosis struct {
	Peer   peer.ID
	Reason Reason
	Text   string    // a sentence: the problem
	Advice string    // the remedy
	Seen   time.Time // when we were last connected to it; zero: not since we remember
	Err    error     // the underlying error
}

func (d *Diagnosis) Error() string { return d.Text }
func (d *Diagnosis) Unwrap() error { return d.Err }

// Diagnose explains an error of dialling or calling p. It returns nil for a nil error, and for the caller's own
// cancellation.
func (h *Host) Diagnose(p peer.ID, err error) *Diagnosis {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	d := &Diagnosis{Peer: p, Err: err, Seen: h.book.Seen(p)}
	d.Reason = h.reason(p, err)
	theirs, _ := h.membership.foreign.Get(p)
	at := ""
	if a := answering(err); a != nil {
		at = " at " + a.String()
	}
	switch d.Reason {
	case ReasonBlocked:
		d.Text = fmt.Sprintf("peer %s is online and has blocked this peer", p)
		d.Advice = "ask its operator; other peers can be used meanwhile"
	case ReasonBlockedHere:
		d.Text = fmt.Sprintf("peer %s is on this peer's own block list", p)
		d.Advice = "remove it from block in config.yaml and restart, if that was not meant"
	case ReasonOtherNetwork:
		d.Text = fmt.Sprintf("peer %s is online, on another network", p)
		if name, ok := strings.CutPrefix(theirs, "starling/"); ok {
			d.Text += fmt.Sprintf(" (%q, this one is %q)", printable(name), h.cfg.Network)
		}
		d.Advice = "both peers need the same genesis.json"
	case ReasonOtherKey:
		if h.cfg.PSK != nil {
			d.Text = fmt.Sprintf("the peer%s is on another private network, or has no pre-shared key or another one",
				at)
			d.Advice = "both peers need the same swarm.key file, named by privateNetwork in config.yaml"
		} else {
			d.Text = fmt.Sprintf("the peer%s is on a private network with a pre-shared key that "+
				"this peer does not have, or not a peer",
				at)
			d.Advice = "get the network's swarm.key file and name it by privateNetwork in config.yaml; " +
				"check the address"
		}
	case ReasonOtherPeer:
		d.Text = fmt.Sprintf("another peer than %s answers at its addresses", p)
		d.Advice = "the address is out of date, or its peer got a new key: ask its operator for both"
	case ReasonFull:
		d.Text = fmt.Sprintf("peer %s is online and takes no more connections now", p)
		d.Advice = "try again later"
	case ReasonNoAddress:
		d.Text = fmt.Sprintf("no address of peer %s is known", p)
		d.Advice = "give its whole address, which ends in /p2p/ and its id; it may have left the network"
	case ReasonClosed:
		d.Text = fmt.Sprintf("all addresses of peer %s that are known are in private networks "+
			"that this machine is not in",
			p)
		d.Advice = "give the address whole, or name a peer of that network by bootstrap in config.yaml, if it is yours"
	case ReasonBehindNAT:
		d.Text = fmt.Sprintf("peer %s is behind a NAT or firewall, and no relay could reach it: %s",
			p, relayTrouble(err))
		d.Advice = "it may be offline, or it lost its reservation at the relay " +
			"and gets another within a minute; try again then"
	case ReasonGone:
		d.Text = fmt.Sprintf("peer %s answered and then broke off", p)
		d.Advice = "try again; if this persists, its machine or the path to it is overloaded"
	default:
		d.Text = fmt.Sprintf("peer %s does not answer at any of its addresses", p)
		d.Advice = "it is offline, or behind a firewall without a relay; " +
			"its operator sees with `starling peer status` how it can be reached"
	}
	if !d.Seen.IsZero() && (d.Reason == ReasonOffline || d.Reason == ReasonBehindNAT || d.Reason == ReasonNoAddress) {
		d.Text += fmt.Sprintf("; it was last seen %s ago", time.Since(d.Seen).Round(time.Second))
	}
	return d
}

// reason finds the strongest evidence in an error: the peer's own message before missing data.
func (h *Host) reason(p peer.ID, err error) Reason {
	dial, dialled := errors.AsType[*swarm.DialError](err)
	gated := errors.Is(err, swarm.ErrGaterDisallowedConnection)
	switch {
	case h.blocked[p] || gated && (!dialled || errors.Is(dial.Cause, swarm.ErrGaterDisallowedConnection)):
		return ReasonBlockedHere
	case gated && errors.Is(err, swarm.ErrNoGoodAddresses):
		return ReasonClosed
	}
	if code, ok := goodbye(err); ok {
		switch code {
		case network.ConnGated:
			return ReasonBlocked
		case connOtherNetwork:
			return ReasonOtherNetwork
		case network.ConnResourceLimitExceeded, network.ConnRateLimited, network.ConnGarbageCollected:
			return ReasonFull
		}
	}
	if h.membership.foreigner(p) {
		return ReasonOtherNetwork
	}
	if _, ok := errors.AsType[sec.ErrPeerIDMismatch](err); ok {
		return ReasonOtherPeer
	}
	if errors.Is(err, swarm.ErrNoAddresses) || errors.Is(err, swarm.ErrNoGoodAddresses) {
		return ReasonNoAddress
	}
	if !dialled {
		return ReasonGone
	}
	if answering(err) != nil {
		return ReasonOtherKey
	}
	if slices.ContainsFunc(dial.DialErrors, func(e swarm.TransportError) bool { return addr.Circuit(e.Address) }) {
		return ReasonBehindNAT
	}
	return ReasonOffline
}

// goodbye is the code with which the other side closed the connection. QUIC returns it unchanged during the handshake's
// last packets.
func goodbye(err error) (network.ConnErrorCode, bool) {
	if e, ok := errors.AsType[*network.ConnError](err); ok && e.Remote {
		return e.ErrorCode, true
	}
	if e, ok := errors.AsType[*quic.ApplicationError](err); ok && e.Remote && e.ErrorCode <= math.MaxUint32 {
		return network.ConnErrorCode(e.ErrorCode), true
	}
	return 0, false
}

// answering returns an address that answers but fails before libp2p's handshake, or nil. With a pre-shared key all
// bytes are encrypted, so to a peer with another key, or none, the first message is noise. It closes the connection, or
// waits for the rest of a message with a random length.
func answering(err error) ma.Multiaddr {
	dial, ok := errors.AsType[*swarm.DialError](err)
	if !ok {
		return nil
	}
	for _, e := range dial.DialErrors {
		if strings.Contains(e.Cause.Error(), "failed to negotiate security protocol") {
			return e.Address
		}
	}
	return nil
}

// relayTrouble is the relays' error, for a person.
func relayTrouble(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "NO_RESERVATION"):
		return "no reservation at the relay in its address"
	case strings.Contains(text, "RESOURCE_LIMIT_EXCEEDED"):
		return "the relay is full"
	case strings.Contains(text, "PERMISSION_DENIED"):
		return "the relay refuses to carry this connection"
	case strings.Contains(text, "CONNECTION_FAILED"):
		return "the relay cannot reach the peer"
	}
	return "the relays do not answer"
}

// printable makes a remote peer's word safe to show.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
