// Package wire is the bytes that the members of an overlay exchange: the kinds of datagrams on a port that QUIC uses
// too, frames on a stream, and sealed probes. It encodes and decodes; it sends nothing.
package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.zx2c4.com/wireguard/device"
)

// The first four bytes of a datagram are its kind: WireGuard's message types, little-endian, and one of ours. QUIC's
// packets have one of the two highest bits of the first byte set, so that both share one port.
const (
	Junk       = -1 // neither ours nor QUIC's
	Other      = 0  // QUIC's
	Initiation = device.MessageInitiationType
	Response   = device.MessageResponseType
	Cookie     = device.MessageCookieReplyType
	Data       = device.MessageTransportType
	Probe      = 5
)

const (
	// MaxMTU and MinMTU bound the packets inside an overlay; DefaultMTU goes through nearly every path.
	MaxMTU     = 1420
	DefaultMTU = 1280
	MinMTU     = 1168 // QUIC asks of every path that it carries datagrams of 1200 bytes

	// MaxPacket bounds a datagram of ours.
	MaxPacket = MaxMTU + device.MessageTransportSize
	// frameHead is the length of the header of a packet on a stream.
	frameHead = 2
	// helloSize is the length of a stream's first bytes: the sender's and the receiver's public key.
	helloSize = 64
)

// ErrFrame: the bytes on a stream are not a frame of the overlay.
var ErrFrame = errors.New("malformed frame")

// KindOf returns the kind of a datagram, by its head and length.
func KindOf(p []byte) int {
	switch {
	case len(p) > 0 && p[0]&0xc0 != 0:
		return Other
	case len(p) < device.MinMessageSize || p[0] == 0 || p[0] > Probe || p[1]|p[2]|p[3] != 0:
		return Junk
	}
	kind := int(p[0])
	switch kind {
	case Initiation:
		if len(p) != device.MessageInitiationSize {
			return Junk
		}
	case Response:
		if len(p) != device.MessageResponseSize {
			return Junk
		}
	case Cookie:
		if len(p) != device.MessageCookieReplySize {
			return Junk
		}
	case Probe:
		if len(p) < MinProbe {
			return Junk
		}
	}
	return kind
}

// Receiver is the index that the receiver of a response, a cookie or data gave out; KindOf has looked at the length.
func Receiver(kind int, p []byte) uint32 {
	if kind == Response {
		return binary.LittleEndian.Uint32(p[8:])
	}
	return binary.LittleEndian.Uint32(p[4:])
}

// Sender is the index that the sender of an initiation or a response requests for answers.
func Sender(p []byte) uint32 { return binary.LittleEndian.Uint32(p[4:]) }

// AppendFrame adds a packet as it goes over a stream: length u16 big-endian ‖ packet.
func AppendFrame(b, packet []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(packet)))
	return append(b, packet...)
}

// ReadFrame reads one packet into buf, which holds at least maxPacket bytes. Anything else is an error.
func ReadFrame(r io.Reader, buf []byte) ([]byte, error) {
	if _, err := io.ReadFull(r, buf[:frameHead]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(buf))
	if n < device.MinMessageSize || n > MaxPacket {
		return nil, fmt.Errorf("%w: %d bytes", ErrFrame, n)
	}
	if _, err := io.ReadFull(r, buf[:n]); err != nil {
		return nil, err
	}
	if KindOf(buf[:n]) <= Other {
		return nil, fmt.Errorf("%w: no message of the overlay", ErrFrame)
	}
	return buf[:n], nil
}

// Hello are the first bytes of a stream.
func Hello(from, to [32]byte) []byte { return append(bytes.Clone(from[:]), to[:]...) }

// ReadHello reads them.
func ReadHello(r io.Reader) (from, to [32]byte, err error) {
	var b [helloSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return from, to, err
	}
	return [32]byte(b[:32]), [32]byte(b[32:]), nil
}
