package wire

import (
	"bytes"
	"crypto/ecdh"
	"testing"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/curve25519"
	"golang.zx2c4.com/wireguard/device"
)

// initiation is the sender's half of a handshake, as far as it names its sender.
func initiation(t testing.TB, to, sender [32]byte) []byte {
	t.Helper()
	ephemeral, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{8}, 32))
	if err != nil {
		t.Fatal(err)
	}
	pub := ephemeral.PublicKey().Bytes()
	var hash, chain [blake2s.Size]byte
	mixHash(&hash, device.InitialHash[:], to[:])
	mixHash(&hash, hash[:], pub)
	device.KDF1(&chain, device.InitialChainKey[:], pub)
	shared, err := curve25519.X25519(ephemeral.Bytes(), to[:])
	if err != nil {
		t.Fatal(err)
	}
	var key [chacha20poly1305.KeySize]byte
	device.KDF2(&chain, &key, chain[:], shared)
	aead, err := chacha20poly1305.New(key[:])
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, device.MessageInitiationSize)
	b[0] = Initiation
	copy(b[8:], pub)
	aead.Seal(b[40:40], device.ZeroNonce[:], sender[:], hash[:])
	return b
}

// The device that an initiation is for learns its sender's key; another device, and one that gets it changed, does not.
func TestInitiator(t *testing.T) {
	t.Parallel()
	own, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{16}, 32))
	if err != nil {
		t.Fatal(err)
	}
	key, pub, sender := [32]byte(own.Bytes()), [32]byte(own.PublicKey().Bytes()), [32]byte{1: 77}
	b := initiation(t, pub, sender)
	if got, ok := Initiator(b, key, pub); !ok || got != sender {
		t.Fatalf("sender %x, %v", got, ok)
	}
	if _, ok := Initiator(b, [32]byte{0: 8, 31: 64}, pub); ok {
		t.Error("opened with another key")
	}
	for i := 8; i < 88; i++ {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if got, ok := Initiator(bad, key, pub); ok {
			t.Errorf("opened with byte %d changed: %x", i, got)
		}
	}
	for n := range 88 {
		if _, ok := Initiator(b[:n], key, pub); ok {
			t.Errorf("opened though cut to %d bytes", n)
		}
	}
}
