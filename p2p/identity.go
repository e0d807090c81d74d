package p2p

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

// maxKeyFile bounds an identity file as read: 64 numbers with generous white space.
const maxKeyFile = 4 << 10

// CreateIdentity makes a new key and writes it to path in the Solana CLI's keypair format, readable by its
// owner only. An existing file is never overwritten; the error then satisfies errors.Is(err, fs.ErrExist).
func CreateIdentity(path string) (crypto.PrivKey, error) {
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("creating identity: %w", err)
	}
	return SaveIdentity(path, seed)
}

// SaveIdentity writes the key of a seed as [CreateIdentity] does.
func SaveIdentity(path string, seed [32]byte) (crypto.PrivKey, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating identity: %w", err)
	}
	// Written beside and then linked, so that a crash leaves either no key or a whole one.
	tmp, err := os.CreateTemp(filepath.Dir(path), ".identity-*") // 0600
	if err != nil {
		return nil, fmt.Errorf("creating identity: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(MarshalKeypair(seed))
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Link(tmp.Name(), path)
	}
	if err != nil {
		return nil, fmt.Errorf("creating identity: %w", err)
	}
	return PrivKey(seed), nil
}

// LoadIdentity reads a key in the Solana CLI's keypair format. A missing file satisfies
// errors.Is(err, fs.ErrNotExist); others are [ErrKeyReadable] and [ErrKeyFile].
func LoadIdentity(path string) (crypto.PrivKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("loading identity: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("loading identity: %w", err)
	}
	if perm := info.Mode().Perm(); runtime.GOOS != "windows" && perm&0o077 != 0 {
		return nil, fmt.Errorf("loading identity: %s: %w (mode %04o): run chmod 600 %s",
			path, ErrKeyReadable, perm, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("loading identity: %w", err)
	}
	seed, err := UnmarshalKeypair(data)
	if err != nil {
		return nil, fmt.Errorf("loading identity: %s: %w", path, err)
	}
	return PrivKey(seed), nil
}

// MarshalKeypair is the Solana CLI's keypair format: a JSON array of 64 numbers, seed ‖ public key.
func MarshalKeypair(seed [32]byte) []byte {
	key := ed25519.NewKeyFromSeed(seed[:])
	numbers := make([]int, len(key))
	for i, b := range key {
		numbers[i] = int(b)
	}
	out, _ := json.Marshal(numbers) // integers always encode
	return append(out, '\n')
}

// UnmarshalKeypair is the inverse of [MarshalKeypair]. The public half must belong to the seed.
func UnmarshalKeypair(data []byte) ([32]byte, error) {
	var seed [32]byte
	if len(data) > maxKeyFile {
		return seed, fmt.Errorf("%w: more than %d bytes", ErrKeyFile, maxKeyFile)
	}
	var numbers []uint8array
	if err := json.Unmarshal(data, &numbers); err != nil {
		return seed, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	if len(numbers) != ed25519.PrivateKeySize {
		return seed, fmt.Errorf("%w: %d numbers, want %d", ErrKeyFile, len(numbers), ed25519.PrivateKeySize)
	}
	full := make([]byte, len(numbers))
	for i, n := range numbers {
		full[i] = byte(n)
	}
	copy(seed[:], full)
	if !bytes.Equal(ed25519.NewKeyFromSeed(seed[:]), full) {
		return [32]byte{}, fmt.Errorf("%w: the public half does not belong to the secret half", ErrKeyFile)
	}
	return seed, nil
}

// uint8array keeps encoding/json from reading the array as base64.
type uint8array uint8

// PrivKey is the libp2p key of an Ed25519 seed.
func PrivKey(seed [32]byte) crypto.PrivKey {
	key, err := crypto.UnmarshalEd25519PrivateKey(ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		panic("p2p: " + err.Error()) // the length is right by construction
	}
	return key
}

// SeedOf is the Ed25519 seed of a libp2p key.
func SeedOf(key crypto.PrivKey) ([32]byte, error) {
	raw, err := key.Raw()
	if err != nil {
		return [32]byte{}, fmt.Errorf("reading key: %w", err)
	}
	if key.Type() != crypto.Ed25519 || len(raw) != ed25519.PrivateKeySize {
		return [32]byte{}, fmt.Errorf("reading key: not an Ed25519 key")
	}
	return [32]byte(raw[:32]), nil
}

// PeerIDFromKey returns the peer ID of an Ed25519 public key, which is also a Solana address. It refuses unsound keys
// with [ErrWeakKey].
func PeerIDFromKey(key [32]byte) (peer.ID, error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	pub, err := crypto.UnmarshalEd25519PublicKey(key[:])
	if err != nil {
		return "", fmt.Errorf("reading key: %w", err)
	}
	return peer.IDFromPublicKey(pub)
}

// KeyFromPeerID is the Ed25519 public key of a peer. Other kinds of key are refused, and unsound ones
// with [ErrWeakKey].
func KeyFromPeerID(id peer.ID) ([32]byte, error) {
	pub, err := id.ExtractPublicKey()
	if err != nil {
		return [32]byte{}, fmt.Errorf("reading key of peer: %w", err)
	}
	raw, err := pub.Raw()
	if err != nil || pub.Type() != crypto.Ed25519 || len(raw) != ed25519.PublicKeySize {
		return [32]byte{}, errors.New("reading key of peer: not an Ed25519 key")
	}
	key := [32]byte(raw)
	return key, checkKey(key)
}
