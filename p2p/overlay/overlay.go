// Package overlay joins network namespaces of different peers into one network: userspace WireGuard over the UDP port
// that libp2p's QUIC has open, and over libp2p streams where there is no direct path.
//
//	container ── TUN ── Device ─┬─ WireGuard ─┬─ UDP, the port of QUIC ───── member's peer
//	                            │             └─ stream, relayed or over TCP ─ member's peer
//	                            └─ Outside: the service address, and all addresses outside of the overlay
//
// An execution without an overlay uses the same egress directly:
//
//	container ── TUN ── Alone ── Outside
//
// Datagrams on the shared port are distinguished by their first four bytes (package wire). One host may be in several
// overlays, with the same addresses in each. An initiation names its device by mac1, other datagrams by an index that
// the device sent in its half of the handshake.
//
// Probes select the path of a member's packets, not WireGuard's roaming:
//
//	probe  5 0 0 0 ‖ tag (8) ‖ nonce (24) ‖ XChaCha20-Poly1305{ kind u8 ‖ id u64 ‖ size u16 ‖ more ‖ zeros }
//
// The tag names the pair of members and the direction. The key is derived from their two static keys, so only they can
// make one. A ping is answered on its path by a pong with its id; more is the source address of the ping. A path is
// used from its first pong until several consecutive pings are unanswered; unanswered traffic triggers a ping. Padded
// pings measure the path's MTU, and occasionally the path is compared with the member's other addresses. Without a
// direct path, a call over the stream lists possible addresses of the caller (more: count u8 ‖ { IPv6 (16), IPv4 in it
// ‖ port u16 }*). The answer lists the callee's. Then both send to all of them at the same time, which opens their
// NATs.
//
//	stream  /starling/overlay/1/<network>: sender's key (32) ‖ receiver's key (32) ‖ { length u16 ‖ datagram }*
//
// This package has the devices, their members and the paths to them. Its subpackages are
//
//	wire    the wire format: kinds of datagrams, frames, sealed probes
//	port    the UDP port that is shared with QUIC
//	index   the sender of a datagram
//	turns   fair queues before and behind WireGuard
//	packet  packets of a TUN, their segments and memory
//	tun     a TUN that another process made
//	egress  one container's access to other networks: an Outside
package overlay

import (
	"crypto/ecdh"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/overlay/wire"
)

// PrivateKey is a member's Curve25519 private key.
type PrivateKey [32]byte

// PublicKey is a member's Curve25519 public key, its identity in the overlay.
type PublicKey [32]byte

// Public is the public key of k.
func (k PrivateKey) Public() (PublicKey, error) {
	key, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		return PublicKey{}, fmt.Errorf("%w: private key: %w", ErrConfig, err)
	}
	return PublicKey(key.PublicKey().Bytes()), nil
}

func (k PublicKey) String() string { return hex.EncodeToString(k[:]) }

// Config is one membership.
type Config struct {
	Key     PrivateKey
	Address netip.Addr   // of this member, IPv4
	Prefix  netip.Prefix // of the overlay; packets within it go to members, or are dropped
	// the one address within it that goes to Outside; zero means the last before the broadcast address
	Service netip.Addr
	// Tun is a file of IFF_TUN|IFF_NO_PI|IFF_VNET_HDR, of any network namespace. Join owns it afterwards, also when
	// Join fails.
	Tun     *os.File
	MTU     int          // of the TUN's interface, MinMTU..MaxMTU; 0 means DefaultMTU
	Outside Outside      // where packets for Service and beyond Prefix go; nil drops them
	Log     *slog.Logger // nil means slog.Default()
}

// Outside is the network beyond the overlay.
type Outside interface {
	// Deliver takes IPv4 packets from the TUN, each at most MTU bytes and with checksums. A packet of an Alone may
	// contain several TCP segments, without the transport's checksum. Deliver must not block, and must not retain the
	// packets after it returns.
	Deliver(packets [][]byte)
	// SetWriter sets the function that sends IPv4 packets, with checksums, to the TUN; the writer does not keep them.
	// Packets for others than this member, or with another member's source, are dropped. It is called before the first
	// Deliver, and with nil when the device is closed.
	SetWriter(write func(packets [][]byte) error)
}

// Member is another member of the overlay.
type Member struct {
	Key     PublicKey
	Peer    peer.ID
	Address netip.Addr
}

// Path is how a member's packets travel.
type Path string

// The paths.
const (
	PathDirect  Path = "direct"  // UDP between the two peers
	PathRelayed Path = "relayed" // a libp2p stream, through a relay or over TCP
	PathNone    Path = "none"    // no answer by either for a while
)

// MemberState is a member as it stands now.
type MemberState struct {
	Member
	Path      Path
	RTT       time.Duration // of the path, 0 when not known
	MTU       int           // the largest packet that reaches it whole
	Rx, Tx    uint64        // bytes received and sent, WireGuard's own included
	Handshake time.Time     // the last one; zero when there was none
}

// Sizes of the packets inside an overlay.
const (
	MaxMTU     = wire.MaxMTU
	MinMTU     = wire.MinMTU
	DefaultMTU = wire.DefaultMTU // goes through nearly every path
)

const (
	// MaxDevices bounds the overlays of one host, MaxMembers the members of one.
	MaxDevices = 64
	MaxMembers = 1024
)

// check sets defaults and reports the first error of the configuration.
func (c *Config) check() error {
	if c.MTU == 0 {
		c.MTU = wire.DefaultMTU
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if !c.Service.IsValid() && c.Prefix.Addr().Is4() && c.Prefix.Bits() >= 0 && c.Prefix.Bits() < 31 {
		b := c.Prefix.Masked().Addr().As4()
		last := (uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])) | (1<<(32-c.Prefix.Bits()) - 1)
		last--
		c.Service = netip.AddrFrom4([4]byte{byte(last >> 24), byte(last >> 16), byte(last >> 8), byte(last)})
	}
	switch {
	case c.Tun == nil:
		return fmt.Errorf("%w: no TUN", ErrConfig)
	case !c.Prefix.IsValid() || !c.Prefix.Addr().Is4():
		return fmt.Errorf("%w: prefix %s is not IPv4", ErrConfig, c.Prefix)
	case !c.Prefix.Contains(c.Address):
		return fmt.Errorf("%w: address %s is not in %s", ErrConfig, c.Address, c.Prefix)
	case !c.Prefix.Contains(c.Service) || c.Service == c.Address:
		return fmt.Errorf("%w: service address %s: not free, or not in %s", ErrConfig, c.Service, c.Prefix)
	case c.MTU < wire.MinMTU || c.MTU > wire.MaxMTU:
		return fmt.Errorf("%w: MTU %d is not in %d..%d", ErrConfig, c.MTU, wire.MinMTU, wire.MaxMTU)
	}
	return nil
}
