package packet

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"net/netip"
)

const (
	// VirtioHead is the length of struct virtio_net_hdr, which precedes a packet read from the TUN.
	VirtioHead = 10

	virtioNeedsChecksum = 1
	virtioNone          = 0
	virtioTCP4          = 1
	virtioUDP           = 5

	tcpFIN, tcpPSH = 0x01, 0x08
)

var errPacket = errors.New("no IPv4 packet that the overlay can carry")

// Packet is an IPv4 packet as the kernel gave it to the TUN: perhaps one of many segments, perhaps without a checksum.
type Packet struct {
	Buf  *Buffer
	Data []byte // from the IP header on, or the rest of a message after its first fragments

	ip, head int    // length of the IP header, and of all headers of a segment
	Seg      int    // payload of a segment; 0: it is sent as it is
	Proto    byte   // of a packet that is cut
	sum      int    // start of the transport's header for the checksum; 0: none
	sumAt    int    // where it goes
	off      int    // payload that was sent already
	count    uint16 // segments that were
	over     bool
}

// Parse parses the TUN's data: a virtio header and a packet. The packet refers to raw.
func Parse(raw []byte, p *Packet) error {
	if len(raw) < VirtioHead+20 {
		return errPacket
	}
	flags, kind := raw[0], raw[1]
	size, start := int(binary.NativeEndian.Uint16(raw[4:])), int(binary.NativeEndian.Uint16(raw[6:]))
	at := int(binary.NativeEndian.Uint16(raw[8:]))
	b := raw[VirtioHead:]
	p.ip = int(b[0]&15) * 4
	if b[0]>>4 != 4 || p.ip < 20 || len(b) < p.ip || int(binary.BigEndian.Uint16(b[2:])) > len(b) ||
		int(binary.BigEndian.Uint16(b[2:])) < p.ip {
		return errPacket
	}
	b = b[:binary.BigEndian.Uint16(b[2:])]
	p.Data, p.Proto = b, b[9]
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
	case kind == virtioTCP4 && p.Proto == TCP:
		return p.cut(size)
	case kind == virtioUDP && p.Proto == UDP && len(b) >= p.ip+8:
		p.head, p.Seg = p.ip+8, size
		return nil
	}
	return errPacket
}

// cut marks the TCP packet for segmentation.
func (p *Packet) cut(size int) error {
	if len(p.Data) < p.ip+20 {
		return errPacket
	}
	n := int(p.Data[p.ip+12]>>4) * 4
	if n < 20 || len(p.Data) < p.ip+n {
		return errPacket
	}
	p.head, p.Seg, p.sum = p.ip+n, size, 0
	return nil
}

// Fit makes the packet fit a path. It reports false if the packet cannot be segmented.
func (p *Packet) Fit(mtu int) bool {
	switch {
	case p.Seg == 0 && len(p.Data) <= mtu:
		return true
	case p.Proto == TCP && p.Data[6]&0x3f|p.Data[7] == 0:
		if p.Seg == 0 && p.cut(mtu) != nil {
			return false
		}
		if p.head+p.Seg > mtu {
			p.Seg = mtu - p.head
		}
		return p.Seg > 0
	case p.Seg != 0:
		return p.head+min(p.Seg, len(p.Data)-p.head) <= mtu
	}
	return false
}

// Release gives the packet's memory back.
func (p *Packet) Release() { p.Buf.Release() }

// Empty reports whether the last segment was written.
func (p *Packet) Empty() bool { return p.over }

// Next writes the next segment to b and returns its length. It returns 0 if the segment does not fit; the packet is
// then lost.
func (p *Packet) Next(b []byte) int {
	if p.Seg == 0 {
		p.over = true
		if len(b) < len(p.Data) {
			return 0
		}
		n := copy(b, p.Data)
		if p.sum > 0 {
			at := b[p.sumAt:]
			begun := binary.BigEndian.Uint16(at) // the pseudo header's
			at[0], at[1] = 0, 0
			binary.BigEndian.PutUint16(at, ^Fold(Sum(b[p.sum:n], uint64(begun))))
		}
		return n
	}
	payload := p.Data[p.head+p.off:]
	size := min(p.Seg, len(payload))
	n := p.head + size
	if p.over = p.off+size == len(p.Data)-p.head; len(b) < n {
		p.over = true
		return 0
	}
	copy(b, p.Data[:p.head])
	copy(b[p.head:], payload[:size])
	b = b[:n]
	binary.BigEndian.PutUint16(b[2:], uint16(n))
	binary.BigEndian.PutUint16(b[4:], binary.BigEndian.Uint16(b[4:])+p.count)
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^Fold(Sum(b[:p.ip], 0)))
	t := b[p.ip:]
	var at []byte // the transport's checksum
	if p.Proto == TCP {
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
	begun := Sum(b[12:20], uint64(p.Proto)+uint64(len(t)))
	s := ^Fold(Sum(t, begun))
	if s == 0 && p.Proto == UDP {
		s = 0xffff
	}
	binary.BigEndian.PutUint16(at, s)
	p.off += size
	p.count++
	return n
}

// Sum adds b as big-endian 16-bit words to a sum in one's complement, wide.
func Sum(b []byte, begun uint64) uint64 {
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

// Fold brings a wide sum to 16 bits.
func Fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

// IPv4 protocol numbers.
const (
	ICMP = 1
	TCP  = 6
	UDP  = 17
)

// Source is the address that a packet comes from.
func Source(p []byte) netip.Addr { return netip.AddrFrom4([4]byte(p[12:16])) }

// Destination is the address that a packet goes to.
func Destination(p []byte) netip.Addr { return netip.AddrFrom4([4]byte(p[16:20])) }
