package p2p

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"
)

func TestIdentityFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "id.json")
	made, err := CreateIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadIdentity(path)
	if err != nil || !loaded.Equals(made) {
		t.Fatalf("loaded another key: %v", err)
	}
	if _, err := CreateIdentity(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an existing key was overwritten: %v", err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o, want 600", info.Mode().Perm())
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".identity-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIdentity(path); !errors.Is(err, ErrKeyReadable) {
		t.Errorf("group-readable key: got %v, want ErrKeyReadable", err)
	}
	if _, err := LoadIdentity(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing key: got %v, want ErrNotExist", err)
	}
}

func TestUnmarshalKeypairRefuses(t *testing.T) {
	t.Parallel()
	good := string(MarshalKeypair([32]byte{7}))
	for name, data := range map[string]string{
		"empty":         "",
		"not JSON":      "-----BEGIN",
		"base64 string": `"AAAA"`,
		"63 numbers":    strings.Replace(good, "[7,", "[", 1),
		"65 numbers":    strings.Replace(good, "[7,", "[7,7,", 1),
		"a number 256":  strings.Replace(good, "[7,", "[256,", 1),
		"a fraction":    strings.Replace(good, "[7,", "[7.5,", 1),
		"a wrong half":  strings.Replace(good, "[7,", "[8,", 1),
		"trailing":      good + "[]",
		"too large":     good + strings.Repeat(" ", maxKeyFile),
	} {
		if _, err := UnmarshalKeypair([]byte(data)); !errors.Is(err, ErrKeyFile) {
			t.Errorf("%s: got %v, want ErrKeyFile", name, err)
		}
	}
}

func TestKeyConversions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seed := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "seed"))
		key := PrivKey(seed)
		if back, err := SeedOf(key); err != nil || back != seed {
			t.Fatalf("seed %x came back as %x: %v", seed, back, err)
		}
		id, err := peer.IDFromPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		pub, err := KeyFromPeerID(id)
		if err != nil || !bytes.Equal(pub[:], ed25519.NewKeyFromSeed(seed[:])[32:]) {
			t.Fatalf("public key %x: %v", pub, err)
		}
		if back, err := PeerIDFromKey(pub); err != nil || back != id {
			t.Fatalf("peer %s came back as %s: %v", id, back, err)
		}
	})
}

// Every encoding of a point of small order, and every encoding that is not reduced, is refused.
func TestWeakKeys(t *testing.T) {
	t.Parallel()
	weak := []string{
		"0100000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000080",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0000000000000000000000000000000000000000000000000000000000000080",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // p
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // p + 1
		"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	}
	for _, s := range weak {
		raw, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := PeerIDFromKey([32]byte(raw)); !errors.Is(err, ErrWeakKey) {
			t.Errorf("%s: got %v, want ErrWeakKey", s, err)
		}
		// The same key inside a peer ID, as it arrives in a handshake.
		id := peer.ID(append([]byte{0x00, 0x24, 0x08, 0x01, 0x12, 0x20}, raw...))
		if _, err := KeyFromPeerID(id); !errors.Is(err, ErrWeakKey) {
			t.Errorf("peer ID of %s: got %v, want ErrWeakKey", s, err)
		}
		if (gater{}).InterceptSecured(0, id, nil) {
			t.Errorf("a connection from %s was let in", s)
		}
	}
}

func FuzzKeypair(f *testing.F) {
	f.Add(MarshalKeypair([32]byte{}))
	f.Add(MarshalKeypair([32]byte{1, 2, 3}))
	f.Add([]byte("[1,2,3]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		seed, err := UnmarshalKeypair(data)
		if err != nil {
			return
		}
		if again, err := UnmarshalKeypair(MarshalKeypair(seed)); err != nil || again != seed {
			t.Fatalf("%x became %x: %v", seed, again, err)
		}
	})
}
