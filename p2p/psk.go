package p2p

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/libp2p/go-libp2p/core/pnet"
)

// maxPSKFile bounds a file with a pre-shared key as read.
const maxPSKFile = 1 << 10

// CreatePSK makes a new key of a private network and writes it to path, readable by its owner only, in the format of
// libp2p's swarm.key. An existing file is never overwritten; the error then satisfies errors.Is(err, fs.ErrExist).
func CreatePSK(path string) (*[32]byte, error) {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating pre-shared key: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating pre-shared key: %w", err)
	}
	_, err = f.Write(EncodePSK(key))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, fmt.Errorf("creating pre-shared key: %w", errors.Join(err, os.Remove(path)))
	}
	return &key, nil
}

// EncodePSK is a key as a swarm.key file has it: three lines, the key in base 16.
func EncodePSK(key [32]byte) []byte {
	return fmt.Appendf(nil, "/key/swarm/psk/1.0.0/\n/base16/\n%s\n", hex.EncodeToString(key[:]))
}

// DecodePSK reads a swarm.key file: base 16, base 64 or plain bytes.
func DecodePSK(text []byte) (*[32]byte, error) {
	if len(text) > maxPSKFile {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrPSKFile, maxPSKFile)
	}
	psk, err := pnet.DecodeV1PSK(bytes.NewReader(text))
	if err != nil || len(psk) != 32 {
		return nil, fmt.Errorf("%w: %w", ErrPSKFile, errors.Join(err))
	}
	key := [32]byte(psk)
	if key == ([32]byte{}) {
		return nil, fmt.Errorf("%w: the key is all zero", ErrPSKFile)
	}
	return &key, nil
}

// LoadPSK reads the key of a private network from its file. It fails if others than the file's owner can read the file.
func LoadPSK(path string) (*[32]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading pre-shared key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading pre-shared key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("reading pre-shared key: %w: %s has mode %#o; run chmod 600 %s",
			ErrKeyReadable, path, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPSKFile+1))
	if err == nil {
		var key *[32]byte
		if key, err = DecodePSK(text); err == nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("reading pre-shared key %s: %w", path, err)
}
