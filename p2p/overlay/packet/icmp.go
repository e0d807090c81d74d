package packet

import (
	"encoding/binary"
	"net/netip"
)

// TooBig returns the ICMP error for a packet that does not fit (RFC 1191), with the largest size that does. It returns
// nil if the packet is an ICMP error itself.
func TooBig(p []byte, mtu int, from, to netip.Addr) []byte {
	head := int(p[0]&15) * 4
	if p[9] == ICMP && len(p) > 20 && (len(p) <= head || p[head] != 8) { // no errors about errors
		return nil
	}
	quoted := min(len(p), head+8)
	b := make([]byte, 28+quoted)
	b[0], b[8], b[9] = 0x45, 64, ICMP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	put4(b[12:], from)
	put4(b[16:], to)
	binary.BigEndian.PutUint16(b[10:], ^Fold(Sum(b[:20], 0)))
	icmp := b[20:]
	icmp[0], icmp[1] = 3, 4 // fragmentation needed
	binary.BigEndian.PutUint16(icmp[6:], uint16(mtu))
	copy(icmp[8:], p[:quoted])
	binary.BigEndian.PutUint16(icmp[2:], ^Fold(Sum(icmp, 0)))
	return b
}

func put4(b []byte, a netip.Addr) {
	four := a.As4()
	copy(b, four[:])
}
