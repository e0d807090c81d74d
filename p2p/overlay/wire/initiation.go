package wire

import (
	"slices"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/curve25519"
	"golang.zx2c4.com/wireguard/device"
)

// Initiator opens the public key of an initiation's sender, for the device with a private key and its public key. It
// costs a multiplication on the curve. It proves nothing: WireGuard finds out whether the sender has that key.
func Initiator(p []byte, key, own [32]byte) (sender [32]byte, ok bool) {
	if len(p) < 88 {
		return sender, false
	}
	// The first half of Noise IK's first message, as in device.ConsumeMessageInitiation.
	ephemeral, static := p[8:40], p[40:88]
	var hash, chain [blake2s.Size]byte
	mixHash(&hash, device.InitialHash[:], own[:])
	mixHash(&hash, hash[:], ephemeral)
	device.KDF1(&chain, device.InitialChainKey[:], ephemeral)
	shared, err := curve25519.X25519(key[:], ephemeral)
	if err != nil {
		return sender, false
	}
	var opens [chacha20poly1305.KeySize]byte
	device.KDF2(&chain, &opens, chain[:], shared)
	aead, err := chacha20poly1305.New(opens[:])
	if err != nil {
		return sender, false
	}
	_, err = aead.Open(sender[:0], device.ZeroNonce[:], static, hash[:])
	return sender, err == nil
}

func mixHash(to *[blake2s.Size]byte, h, data []byte) {
	*to = blake2s.Sum256(slices.Concat(h, data))
}
