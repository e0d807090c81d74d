package wire

import (
	"bytes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/curve25519"
	"golang.zx2c4.com/wireguard/device"
)

const (
	// MaxTold bounds the addresses in a call.
	MaxTold = 12

	Ping   = 1
	Pong   = 2
	Call   = 3
	Called = 4

	probeHead = 4 + 8 + chacha20poly1305.NonceSizeX
	probeBody = 1 + 8 + 2
	// MinProbe leaves room for the address in a pong also in a ping, so that no answer is larger than its request.
	MinProbe = probeHead + probeBody + addrSize + chacha20poly1305.Overhead
	addrSize = 16 + 2 // an IPv6 address, IPv4 as in RFC 4291 2.5.5.2, and a port
	callBody = probeBody + 1 + MaxTold*addrSize
)

// Tag names a pair of members and a direction.
type Tag [8]byte

// TagOf is the tag of a probe.
func TagOf(p []byte) Tag { return Tag(p[4:12]) }

// Pair seals the probes for another member and opens that member's.
type Pair struct {
	mine, Theirs Tag // of the probes that are sent and received
	seal         cipher.AEAD
}

// NewPair derives the tags and the key of the probes of two members: of one its private key and public key, of the
// other its public key.
func NewPair(key, own, other [32]byte) (Pair, error) {
	shared, err := curve25519.X25519(key[:], other[:])
	if err != nil {
		return Pair{}, err
	}
	b, err := hkdf.Key(sha256.New, shared, nil, "starling/overlay/probe/v1", chacha20poly1305.KeySize+16)
	if err != nil {
		return Pair{}, err
	}
	var p Pair
	if p.seal, err = chacha20poly1305.NewX(b[:chacha20poly1305.KeySize]); err != nil {
		return Pair{}, err
	}
	p.mine, p.Theirs = Tag(b[chacha20poly1305.KeySize:][:8]), Tag(b[chacha20poly1305.KeySize+8:])
	if bytes.Compare(own[:], other[:]) > 0 {
		p.mine, p.Theirs = p.Theirs, p.mine
	}
	return p, nil
}

// Seal makes a probe of size bytes, or the smallest; more follows the fixed part.
func (p *Pair) Seal(kind byte, id uint64, told int, more []byte, size int) []byte {
	b := make([]byte, probeHead, max(size, MinProbe))
	b[0] = Probe
	copy(b[4:], p.mine[:])
	rand.Read(b[12:])
	body := make([]byte, max(MinProbe, size)-probeHead-chacha20poly1305.Overhead)
	body[0] = kind
	binary.BigEndian.PutUint64(body[1:], id)
	binary.BigEndian.PutUint16(body[9:], uint16(told))
	copy(body[probeBody:], more)
	return p.seal.Seal(b, b[12:probeHead], body, b[:12])
}

// Open reads a probe of the other member.
func (p *Pair) Open(b []byte) (kind byte, id uint64, told int, more []byte, ok bool) {
	if KindOf(b) != Probe || TagOf(b) != p.Theirs {
		return 0, 0, 0, nil, false
	}
	body, err := p.seal.Open(nil, b[12:probeHead], b[probeHead:], b[:12])
	if err != nil || len(body) < probeBody {
		return 0, 0, 0, nil, false
	}
	return body[0], binary.BigEndian.Uint64(body[1:]), int(binary.BigEndian.Uint16(body[9:])), body[probeBody:], true
}

// DatagramOf is how long the datagram is in which WireGuard carries a packet.
func DatagramOf(mtu int) int {
	const pad = device.PaddingMultiple
	return device.MessageTransportSize + min((mtu+pad-1)/pad*pad, MaxMTU)
}

// AppendAddr adds an address as probes carry it.
func AppendAddr(b []byte, a netip.AddrPort) []byte {
	ip := a.Addr().As16()
	return binary.BigEndian.AppendUint16(append(b, ip[:]...), a.Port())
}

// ReadAddr parses an address; ok is false if it is not a valid destination.
func ReadAddr(b []byte) (a netip.AddrPort, ok bool) {
	if len(b) < addrSize {
		return a, false
	}
	a = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)).Unmap(), binary.BigEndian.Uint16(b[16:]))
	ip := a.Addr()
	return a, a.Port() != 0 && !ip.IsUnspecified() && !ip.IsMulticast() &&
		ip != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// SealCall makes a call, or the answer to one: the addresses at which this host may be. All have the same size, so that
// the answer to a replayed call is not longer than the call.
func (p *Pair) SealCall(kind byte, id uint64, own []netip.AddrPort) []byte {
	own = own[:min(len(own), MaxTold)]
	told := []byte{byte(len(own))}
	for _, a := range own {
		told = AppendAddr(told, a)
	}
	return p.Seal(kind, id, 0, told, probeHead+callBody+p.seal.Overhead())
}

// ReadCall parses the addresses of a call. It skips invalid destinations.
func ReadCall(b []byte) []netip.AddrPort {
	if len(b) == 0 {
		return nil
	}
	n := min(int(b[0]), MaxTold)
	var out []netip.AddrPort
	for b = b[1:]; n > 0 && len(b) >= addrSize; n, b = n-1, b[addrSize:] {
		if a, ok := ReadAddr(b); ok && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
