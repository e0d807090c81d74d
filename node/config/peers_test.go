package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
)

// entryAddress is the address of entry peer i at a port.
func entryAddress(t *testing.T, i byte, port int) string {
	t.Helper()
	id, err := peer.IDFromPrivateKey(p2p.PrivKey([32]byte{i}))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/ip4/127.0.0.1/tcp/%d/p2p/%s", port, id)
}

// Addresses of one peer become one entry. Refused lists name the field, so that a user finds the wrong address.
func TestParsePeers(t *testing.T) {
	t.Parallel()
	got, err := ParsePeers([]string{entryAddress(t, 1, 1), " " + entryAddress(t, 1, 2) + " ", "", entryAddress(t, 2, 1)})
	if err != nil || len(got) != 2 || len(got[0].Addrs)+len(got[1].Addrs) != 3 {
		t.Errorf("got %v, %v; want two peers with three addresses", got, err)
	}
	_, id, _ := strings.Cut(entryAddress(t, 1, 1), "/p2p/")
	var many []string
	for i := range byte(MaxPeers + 1) {
		many = append(many, entryAddress(t, i+1, 1))
	}
	for want, addrs := range map[string][]string{
		`peer "nonsense"`: {entryAddress(t, 1, 1), "nonsense"},
		"ends in /p2p/":   {"/ip4/127.0.0.1/tcp/1"},
		"has no address":  {"/p2p/" + id},
		"33 peers":        many,
	} {
		if _, err := ParsePeers(addrs); !errors.Is(err, ErrPeers) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrPeers with %q", err, want)
		}
	}
	if _, err := ParsePeers(many[1:]); err != nil {
		t.Errorf("%d peers: %v", MaxPeers, err)
	}
}

// A client finds the peers that its user gave last. A file that is absent, broken or too large gives none.
func TestGivenPeers(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "new")
	if got := ReadPeers(home); got != nil {
		t.Errorf("without a file: %v", got)
	}
	for i := range byte(2) {
		if err := GivePeers(home, []string{entryAddress(t, i+1, 1)}); err != nil {
			t.Fatal(err)
		}
		want, _ := ParsePeers([]string{entryAddress(t, i+1, 1)})
		if got := ReadPeers(home); len(got) != 1 || got[0].String() != want[0].String() {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	for name, text := range map[string]string{
		"broken": "nonsense\n", "too large": entryAddress(t, 1, 1) + strings.Repeat("\n", maxPeersFile),
	} {
		if err := os.WriteFile(filepath.Join(home, FilePeers), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ReadPeers(home); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}
