// Package port is a UDP port that libp2p's QUIC and the overlays of a host share, with the kernel's offloads: trains of
// datagrams are read, sorted and sent in one call.
package port

import (
	"net/netip"

	"github.com/starling-network/starling/p2p/overlay/packet"
)

// Port is an open UDP port.
type Port interface {
	// Share begins to sort the datagrams that come.
	Share()
	// Send sends datagrams to one address.
	Send(packets [][]byte, to netip.AddrPort) error
	// Fits reports whether the port can send to an address.
	Fits(to netip.Addr) bool
	// Local is where the port is open.
	Local() netip.AddrPort
}

// Handler takes the datagrams that come to a port.
type Handler interface {
	// Take takes the first datagrams of a train, those for one recipient, and returns them and the rest. For QUIC's it
	// does nothing else, and reports true. It never waits. The caller holds the train's buffer.
	Take(t packet.Train, from netip.AddrPort, at Port) (taken, rest packet.Train, quic bool)
	// Lost notes that QUIC was too slow for a run of its datagrams.
	Lost()
	// Closed notes that a port is closed.
	Closed(Port)
}
