package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/node/wholefile"
)

// FilePeers names the file of a light client's entry peers that its user gave, one address a line. It is read whenever
// the client needs an entry peer.
const FilePeers = "peers"

const (
	// MaxPeers is how many entry peers a user may give.
	MaxPeers     = 32
	maxPeersFile = 256 << 10
)

// ErrPeers means that a light client cannot work as it is configured; the error's text names the field.
var ErrPeers = errors.New("light client")

// ParsePeers reads addresses of entry peers, full multiaddrs that end in /p2p/ and the peer's id; those of one peer
// become one. The error is ErrPeers.
func ParsePeers(addrs []string) ([]peer.AddrInfo, error) {
	var all []ma.Multiaddr
	for _, text := range addrs {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			return nil, fmt.Errorf("%w: peer %q: %w", ErrPeers, text, err)
		}
		all = append(all, a)
	}
	infos, err := peer.AddrInfosFromP2pAddrs(all...)
	if err != nil {
		return nil, fmt.Errorf("%w: peers: %w (an address ends in /p2p/ and the peer's id, as `starling peer status` "+
			"shows it)", ErrPeers, err)
	}
	for _, p := range infos {
		if len(p.Addrs) == 0 {
			return nil, fmt.Errorf("%w: peer %s has no address, only an id", ErrPeers, p.ID)
		}
	}
	if len(infos) > MaxPeers {
		return nil, fmt.Errorf("%w: %d peers, at most %d", ErrPeers, len(infos), MaxPeers)
	}
	return infos, nil
}

// ReadPeers reads the file of given peers; unsound ones are left out.
func ReadPeers(home string) []peer.AddrInfo {
	st, err := os.Stat(filepath.Join(home, FilePeers))
	if err != nil || st.Size() > maxPeersFile {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(home, FilePeers))
	if err != nil {
		return nil
	}
	infos, _ := ParsePeers(strings.Split(string(b), "\n"))
	return infos
}

// GivePeers adds the user's entry peers to home. A running client on home reads them, too.
func GivePeers(home string, addrs []string) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("making the home directory: %w", err)
	}
	text := []byte(strings.Join(addrs, "\n") + "\n")
	if old, err := os.ReadFile(filepath.Join(home, FilePeers)); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := wholefile.Write(filepath.Join(home, FilePeers), text, 0o600); err != nil {
		return fmt.Errorf("noting entry peers: %w", err)
	}
	return nil
}
