package overlay

import "sync/atomic"

// drop is why a packet was dropped.
type drop int

const (
	dropStranger  drop = iota // a datagram for no device here
	dropQUIC                  // QUIC was too slow
	dropBusy                  // a device was too slow
	dropUnknown               // a handshake under a key that is no member's
	dropForged                // a probe or a stream that its key does not open
	dropSpoofed               // from the TUN, Outside or a member, under another's address
	dropAstray                // to an address that is nobody's here
	dropTooBig                // larger than the path takes, and not to be cut
	dropQueue                 // the queue towards the members was full
	dropStream                // the queue of a stream was full
	dropSend                  // the kernel refused to send it
	dropMalformed             // from the TUN, no IPv4 packet
	drops
)

var dropNames = [drops]string{"stranger", "quic", "busy", "unknown_key", "forged", "spoofed", "astray", "too_big",
	"queue", "stream", "send", "malformed"}

// Stats counts packets by their outcome.
type Stats struct {
	dropped [drops]atomic.Uint64
	probes  struct{ sent, answered atomic.Uint64 }
	paths   struct{ up, down, moved atomic.Uint64 } // direct paths found, lost, and left for faster ones
}

// Dropped is how many packets were dropped, by reason.
func (s *Stats) Dropped() map[string]uint64 {
	out := make(map[string]uint64, drops)
	for i := range s.dropped {
		out[dropNames[i]] = s.dropped[i].Load()
	}
	return out
}

// Stats are the counts of all overlays of this host.
func (n *Network) Stats() *Stats { return &n.stats }
