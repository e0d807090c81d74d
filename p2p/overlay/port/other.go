//go:build !linux

package port

import "net"

// Listen opens a port for QUIC alone.
func Listen(network string, laddr *net.UDPAddr, _ bool, _ Handler) (net.PacketConn, Port, error) {
	c, err := net.ListenUDP(network, laddr)
	return c, nil, err
}
