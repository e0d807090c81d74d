package overlay

import (
	"crypto/cipher"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/crypto/chacha20poly1305"
)

// rename makes the paths that a socket finds name another port.
func rename(p, as port) {
	if s, ok := p.(*socket); ok {
		s.as = as
	}
}

// sortFor sorts a train and says how many bytes QUIC got of it.
func sortFor(n *Network, t train, from netip.AddrPort) int {
	s := &socket{n: n, quic: make(chan quicTrain, quicQueue)}
	s.sort(t, from, nil, func(a netip.AddrPort) *net.UDPAddr { return net.UDPAddrFromAddrPort(a) })
	total := 0
	for {
		select {
		case q := <-s.quic:
			total += len(q.data)
			q.buf.release()
		default:
			return total
		}
	}
}

func seal(t testing.TB) cipher.AEAD {
	t.Helper()
	a, err := chacha20poly1305.NewX(make([]byte, chacha20poly1305.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return a
}
