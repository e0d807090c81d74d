package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// homeOf makes the home directory of a peer that listens on the loopback interface alone.
func homeOf(t *testing.T, g market.Genesis, more string) string {
	t.Helper()
	home := t.TempDir()
	genesis, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	text := "listen: [/ip4/127.0.0.1/tcp/0]\nnat: {auto: false, portMap: false}\n" + more
	for file, b := range map[string][]byte{config.FileGenesis: genesis, config.FileConfig: []byte(text)} {
		if err := os.WriteFile(filepath.Join(home, file), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p2p.CreateIdentity(filepath.Join(home, config.FileIdentity)); err != nil {
		t.Fatal(err)
	}
	return home
}

func TestOpen(t *testing.T) {
	t.Parallel()
	home := homeOf(t, freeParts(t).Genesis, "region: here\nmetrics: {libp2p: true}\n")
	open := func() (*Peer, error) {
		return Open(t.Context(), home, home, "test", Once{NoClusters: true}, p2ptest.Quiet())
	}
	p, err := open()
	if err != nil {
		t.Fatal(err)
	}
	got := p.Node.p
	if c := got.Config; c.Region != "here" || c.Clusters.Accept || got.Metrics == nil || got.RPC != nil || got.Program != nil {
		t.Errorf("opened as %+v", got)
	}
	if len(got.Runtimes) != 2 || got.GPUs != nil || got.Owner != got.Key.Key() || p.Idle() != 0 {
		t.Errorf("runtimes %v, GPUs %v, owner %s, idle for %v", got.Runtimes, got.GPUs, got.Owner, p.Idle())
	}
	h, key, err := got.Mask()
	if err != nil || key.Key() == got.Key.Key() || h.ID() == got.Host.ID() {
		t.Errorf("mask: key %s, %v, want one that nobody knows", key.Key(), err)
	} else if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := open(); !errors.Is(err, ErrRuns) {
		t.Errorf("a second peer: %v, want %v", err, ErrRuns)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(home, config.FilePID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file with the process after it ended: %v", err)
	}
}

// A failure of any part closes those that were opened before it.
func TestOpenRefused(t *testing.T) {
	t.Parallel()
	token := tokenParts(t, 0).Genesis
	for _, c := range []struct {
		g          market.Genesis
		text, want string
	}{
		{token, "", "solana.rpc: no address, want"},
		{token, "solana: {rpc: [\"ftp://x\"]}\n", "not an http or https URL"},
		{freeParts(t).Genesis, "docker: {enabled: true, host: \"unix:///none.sock\"}\nprovide: {enabled: true, price: \"0\"}\n",
			"docker.enabled is true"},
		{freeParts(t).Genesis, "privateNetwork: none.key\n", "none.key"},
	} {
		home := homeOf(t, c.g, c.text)
		for range 2 { // the journal is free again
			_, err := Open(t.Context(), home, home, "test", Once{}, p2ptest.Quiet())
			if err == nil || errors.Is(err, ErrRuns) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v, want %q in it", c.text, err, c.want)
			}
		}
	}
	home := homeOf(t, freeParts(t).Genesis, "")
	if err := config.SaveOwner(home, sign.Key{7}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(home, config.FileIdentity)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), home, home, "test", Once{}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a key: %v", err)
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if _, err := Open(t.Context(), home, t.TempDir(), "test", Once{}, nil); err == nil || !strings.Contains(err.Error(), "genesis") {
		t.Errorf("without a genesis: %v", err)
	}
}

// A home directory is one peer's at a time: the second one says who has it.
func TestTwoPeersOfOneHome(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	var first, second Peer
	if err := first.openJournal(&Parts{Home: home}); err != nil {
		t.Fatal(err)
	}
	err := second.openJournal(&Parts{Home: home})
	if want := fmt.Sprintf("a peer already runs in %s, pid %d", home, os.Getpid()); !errors.Is(err, ErrRuns) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, p := range []*Peer{&second, &first} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := second.openJournal(&Parts{Home: home}); err != nil {
		t.Errorf("after the first: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
