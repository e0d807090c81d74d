//go:build !linux

package overlay

import (
	"errors"
	"net"
	"os"
)

// ListenUDP opens the ports of libp2p's QUIC; here they are QUIC's alone.
func (n *Network) ListenUDP(network string, laddr *net.UDPAddr) (net.PacketConn, error) {
	return net.ListenUDP(network, laddr)
}

func openTunnel(f *os.File) (*tunnel, error) { return nil, errors.Join(ErrUnsupported, f.Close()) }
