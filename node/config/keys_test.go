package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
)

// A peer knows its owner by address alone: the wallet's file may be unreadable or gone. A wallet without an address is refused, and so is a
// key that others may read.
func TestOwnersKeyIsNotRead(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if _, err := p2p.CreateIdentity(filepath.Join(home, FileIdentity)); err != nil {
		t.Fatal(err)
	}
	key, owner, err := LoadKeys(home, Config{})
	if err != nil || owner != key.Key() {
		t.Fatalf("without an owner: %s, %v", owner, err)
	}
	if err := os.WriteFile(filepath.Join(home, FileWallet), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadKeys(home, Config{}); !errors.Is(err, ErrConfig) {
		t.Errorf("a wallet without its address: %v", err)
	}
	want := sign.NewPrivate([32]byte{7}).Key()
	if err := SaveOwner(home, want); err != nil {
		t.Fatal(err)
	}
	if _, owner, err := LoadKeys(home, Config{}); err != nil || owner != want {
		t.Errorf("beside a wallet that is none: %s, %v", owner, err)
	}
	if err := os.Chmod(filepath.Join(home, FileIdentity), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadKeys(home, Config{}); !errors.Is(err, p2p.ErrKeyReadable) {
		t.Errorf("a key that others may read: %v", err)
	}
}
