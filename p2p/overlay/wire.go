package overlay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"golang.zx2c4.com/wireguard/device"
)

// The first four bytes of a datagram are its kind: WireGuard's message types, little-endian, and one of ours. QUIC's
// packets have one of the two highest bits of the first byte set, so that both share one port.
const (
	kindJunk       = -1 // neither ours nor QUIC's
	kindOther      = 0  // QUIC's
	kindInitiation = device.MessageInitiationType
	kindResponse   = device.MessageResponseType
	kindCookie     = device.MessageCookieReplyType
	kindData       = device.MessageTransportType
	kindProbe      = 5
)

const (
	// MaxMTU and MinMTU bound the packets inside an overlay; DefaultMTU goes through nearly every path.
	MaxMTU     = 1420
	DefaultMTU = 1280
	MinMTU     = 1168 // QUIC asks of every path that it carries datagrams of 1200 bytes

	// maxPacket bounds a datagram of ours.
	maxPacket = MaxMTU + device.MessageTransportSize
	// frameHead is the length of the header of a packet on a stream.
	frameHead = 2
	// helloSize is the length of a stream's first bytes: the sender's and the receiver's public key.
	helloSize = 64
)

// kindOf returns the kind of a datagram, by its head and length.
func kindOf(p []byte) int {
	switch {
	case len(p) > 0 && p[0]&0xc0 != 0:
		return kindOther
	case len(p) < device.MinMessageSize || p[0] == 0 || p[0] > kindProbe || p[1]|p[2]|p[3] != 0:
		return kindJunk
	}
	kind := int(p[0])
	switch kind {
	case kindInitiation:
		if len(p) != device.MessageInitiationSize {
			return kindJunk
		}
	case kindResponse:
		if len(p) != device.MessageResponseSize {
			return kindJunk
		}
	case kindCookie:
		if len(p) != device.MessageCookieReplySize {
			return kindJunk
		}
	case kindProbe:
		if len(p) < minProbe {
			return kindJunk
		}
	}
	return kind
}

// receiverOf is the index that the receiver of a response, a cookie or data gave out; kindOf has looked at the length.
func receiverOf(kind int, p []byte) uint32 {
	if kind == kindResponse {
		return binary.LittleEndian.Uint32(p[8:])
	}
	return binary.LittleEndian.Uint32(p[4:])
}

// senderOf is the index that the sender of an initiation or a response wants to be answered under.
func senderOf(p []byte) uint32 { return binary.LittleEndian.Uint32(p[4:]) }

// appendFrame adds a packet as it goes over a stream: length u16 big-endian ‖ packet.
func appendFrame(b, packet []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(packet)))
	return append(b, packet...)
}

// readFrame reads one packet into buf, which holds at least maxPacket bytes. Anything else is an error.
func readFrame(r io.Reader, buf []byte) ([]byte, error) {
	if _, err := io.ReadFull(r, buf[:frameHead]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(buf))
	if n < device.MinMessageSize || n > maxPacket {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	if _, err := io.ReadFull(r, buf[:n]); err != nil {
		return nil, err
	}
	if kindOf(buf[:n]) <= kindOther {
		return nil, fmt.Errorf("%w: no message of the overlay", errFrame)
	}
	return buf[:n], nil
}

// hello are the first bytes of a stream.
func hello(from, to PublicKey) []byte { return append(bytes.Clone(from[:]), to[:]...) }

func readHello(r io.Reader) (from, to PublicKey, err error) {
	var b [helloSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return from, to, err
	}
	return PublicKey(b[:32]), PublicKey(b[32:]), nil
}
