package overlay

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

const (
	// virtioHead is the length of struct virtio_net_hdr, which precedes a packet read from the TUN.
	virtioHead = 10

	virtioNeedsChecksum = 1
	virtioNone          = 0
	virtioTCP4          = 1
	virtioUDP           = 5

	tcpFIN, tcpPSH = 0x01, 0x08
)

var errPacket = errors.New("no IPv4 packet that the overlay can carry")

// packet is an IPv4 packet as the kernel gave it to the TUN: perhaps one of many segments, perhaps without a checksum.
type packet struct {
	buf    *buffer
	data   []byte // from the IP header on, or the rest of a message after its first fragments
	member *member

	ip, head int    // length of the IP header, and of all headers of a segment
	seg      int    // payload of a segment; 0: it is sent as it is
	proto    byte   // of a packet that is cut
	sum      int    // start of the transport's header for the checksum; 0: none
	sumAt    int    // where it goes
	off      int    // payload that was sent already
	count    uint16 // segments that were
	over     bool
}

// parsePacket parses the TUN's data: a virtio header and a packet. The packet refers to raw.
func parsePacket(raw []byte, p *packet) error {
	if len(raw) < virtioHead+20 {
		return errPacket
	}
	flags, kind := raw[0], raw[1]
	size, start := int(binary.NativeEndian.Uint16(raw[4:])), int(binary.NativeEndian.Uint16(raw[6:]))
	at := int(binary.NativeEndian.Uint16(raw[8:]))
	b := raw[virtioHead:]
	p.ip = int(b[0]&15) * 4
	if b[0]>>4 != 4 || p.ip < 20 || len(b) < p.ip || int(binary.BigEndian.Uint16(b[2:])) > len(b) ||
		int(binary.BigEndian.Uint16(b[2:])) < p.ip {
		return errPacket
	}
	b = b[:binary.BigEndian.Uint16(b[2:])]
	p.data, p.proto = b, b[9]
	if kind == virtioNone {
		if flags&virtioNeedsChecksum != 0 {
			if p.sum, p.sumAt = start, start+at; start < p.ip || start+at+2 > len(b) {
				return errPacket
			}
		}
		return nil
	}
	switch {
	case size == 0 || start != p.ip:
		return errPacket
	case kind == virtioTCP4 && p.proto == protoTCP:
		return p.cut(size)
	case kind == virtioUDP && p.proto == protoUDP && len(b) >= p.ip+8:
		p.head, p.seg = p.ip+8, size
		return nil
	}
	return errPacket
}

// cut makes the packet, which is of TCP, one that is sent in segments.
func (p *packet) cut(size int) error {
	if len(p.data) < p.ip+20 {
		return errPacket
	}
	n := int(p.data[p.ip+12]>>4) * 4
	if n < 20 || len(p.data) < p.ip+n {
		return errPacket
	}
	p.head, p.seg, p.sum = p.ip+n, size, 0
	return nil
}

// fit makes the packet fit a path. It reports false for one that cannot be cut.
func (p *packet) fit(mtu int) bool {
	switch {
	case p.seg == 0 && len(p.data) <= mtu:
		return true
	case p.proto == protoTCP && p.data[6]&0x3f|p.data[7] == 0:
		if p.seg == 0 && p.cut(mtu) != nil {
			return false
		}
		if p.head+p.seg > mtu {
			p.seg = mtu - p.head
		}
		return p.seg > 0
	case p.seg != 0:
		return p.head+min(p.seg, len(p.data)-p.head) <= mtu
	}
	return false
}

func (p *packet) release()    { p.buf.release() }
func (p *packet) empty() bool { return p.over }

// next writes the next segment to b and says how long it is; 0 when it does not fit, and the packet is then lost.
func (p *packet) next(b []byte) int {
	if p.seg == 0 {
		p.over = true
		if len(b) < len(p.data) {
			return 0
		}
		n := copy(b, p.data)
		if p.sum > 0 {
			at := b[p.sumAt:]
			begun := binary.BigEndian.Uint16(at) // the pseudo header's
			at[0], at[1] = 0, 0
			binary.BigEndian.PutUint16(at, ^fold(sum(b[p.sum:n], uint64(begun))))
		}
		return n
	}
	payload := p.data[p.head+p.off:]
	size := min(p.seg, len(payload))
	n := p.head + size
	if p.over = p.off+size == len(p.data)-p.head; len(b) < n {
		p.over = true
		return 0
	}
	copy(b, p.data[:p.head])
	copy(b[p.head:], payload[:size])
	b = b[:n]
	binary.BigEndian.PutUint16(b[2:], uint16(n))
	binary.BigEndian.PutUint16(b[4:], binary.BigEndian.Uint16(b[4:])+p.count)
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^fold(sum(b[:p.ip], 0)))
	t := b[p.ip:]
	var at []byte // the transport's checksum
	if p.proto == protoTCP {
		binary.BigEndian.PutUint32(t[4:], binary.BigEndian.Uint32(t[4:])+uint32(p.off))
		if !p.over {
			t[13] &^= tcpFIN | tcpPSH
		}
		at = t[16:18]
	} else {
		binary.BigEndian.PutUint16(t[4:], uint16(len(t)))
		at = t[6:8]
	}
	at[0], at[1] = 0, 0
	begun := sum(b[12:20], uint64(p.proto)+uint64(len(t)))
	s := ^fold(sum(t, begun))
	if s == 0 && p.proto == protoUDP {
		s = 0xffff
	}
	binary.BigEndian.PutUint16(at, s)
	p.off += size
	p.count++
	return n
}

// sum adds b as big-endian 16-bit words to a sum in one's complement, wide.
func sum(b []byte, begun uint64) uint64 {
	s, carry := begun, uint64(0)
	for len(b) >= 32 {
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b), carry)
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b[8:]), carry)
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b[16:]), carry)
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b[24:]), carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(last[:]), carry)
	}
	s, carry = bits.Add64(s, 0, carry)
	return s + carry
}

// fold brings a wide sum to 16 bits.
func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}
