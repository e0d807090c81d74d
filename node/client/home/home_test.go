package home

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

func addr(i int) string {
	id, err := p2p.PeerIDFromKey(sign.NewPrivate([32]byte{byte(i)}).Key())
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("/ip4/10.0.0.%d/tcp/4001/p2p/%s", i, id)
}

func TestParsePeers(t *testing.T) {
	t.Parallel()
	one, two := addr(1), addr(2)
	peers, err := config.ParsePeers([]string{one, " ", two, "/ip4/10.9.9.9/udp/1/quic-v1" + one[len("/ip4/10.0.0.1/tcp/4001"):]})
	if err != nil || len(peers) != 2 {
		t.Fatalf("%v, %v", peers, err)
	}
	for _, bad := range []string{"noise", "/ip4/10.0.0.1/tcp/1", one[len("/ip4/10.0.0.1/tcp/4001"):]} {
		if _, err := config.ParsePeers([]string{bad}); !errors.Is(err, config.ErrPeers) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestHome(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "client")
	if made, err := Make(home); err != nil || !made {
		t.Fatalf("made %v, %v", made, err)
	}
	if made, err := Make(home); err != nil || made {
		t.Errorf("again: made %v, %v", made, err)
	}
	lock, err := Lock(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(t.Context(), home); !errors.Is(err, ErrInUse) {
		t.Errorf("taken twice: %v", err)
	}
	lock.Close()
	if lock, err = Lock(t.Context(), home); err != nil {
		t.Errorf("after it was given back: %v", err)
	}
	lock.Close()
	if err := config.GivePeers(home, []string{addr(1), addr(2)}); err != nil {
		t.Fatal(err)
	}
	if p := config.ReadPeers(home); len(p) != 2 {
		t.Errorf("given peers %v", p)
	}
	if err := os.WriteFile(filepath.Join(home, config.FileConfig), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(home); !errors.Is(err, config.ErrPeers) {
		t.Errorf("a full peer's directory: %v", err)
	}
}

// The key of a private network is taken from the file that is given, kept when it was of use, and not exchanged.
func TestPSK(t *testing.T) {
	t.Parallel()
	home, keys := t.TempDir(), t.TempDir()
	first, second, none := filepath.Join(keys, "first"), filepath.Join(keys, "second"), filepath.Join(keys, "none")
	want, err := p2p.CreatePSK(first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p2p.CreatePSK(second); err != nil {
		t.Fatal(err)
	}
	if key, err := ReadPSK(home, ""); key != nil || err != nil {
		t.Errorf("on an open network: %v, %v", key, err)
	}
	if err := KeepPSK(home, nil); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{none, keys} {
		if _, err := ReadPSK(home, bad); !errors.Is(err, config.ErrPeers) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := ReadPSK(home, second); err != nil { // tried, and of no use
		t.Error(err)
	}
	key, err := ReadPSK(home, first)
	if err != nil || *key != *want {
		t.Fatal(err)
	}
	for range 2 {
		if err := KeepPSK(home, key); err != nil {
			t.Fatal(err)
		}
	}
	for _, given := range []string{"", first} {
		if key, err := ReadPSK(home, given); err != nil || *key != *want {
			t.Errorf("kept, given %q: %v", given, err)
		}
	}
	if _, err := ReadPSK(home, second); !errors.Is(err, config.ErrPeers) || !strings.Contains(err.Error(), "another pre-shared key") {
		t.Errorf("another key: %v", err)
	}
	path := filepath.Join(home, config.FilePSK)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPSK(home, ""); !errors.Is(err, config.ErrPeers) || !errors.Is(err, p2p.ErrKeyReadable) {
		t.Errorf("readable by all: %v", err)
	}
}
