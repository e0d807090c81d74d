package testnet

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/config"
)

// A testnet in the directory of an earlier one takes its place, says so, and leaves other files alone.
func TestClear(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	n := &Network{Dir: t.TempDir(), opts: Options{Say: func(f string, args ...any) { fmt.Fprintf(&said, f+"\n", args...) }}}
	if err := n.clear(); err != nil || said.Len() > 0 {
		t.Fatalf("an empty directory: %v, said %q", err, said.String())
	}
	for _, name := range []string{"peer-1", "buyer-12", "peer-review", "results"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, name, "jobs"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(n.Dir, "peer-2"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.clear(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(n.Dir, "*"))
	if err != nil || fmt.Sprint(left) != fmt.Sprintf("[%[1]s/peer-2 %[1]s/peer-review %[1]s/results]", n.Dir) {
		t.Errorf("left: %v, %v", left, err)
	}
	if want := "receipts of its 2 peers are deleted"; !strings.Contains(said.String(), want) {
		t.Errorf("said %q, want %q", said.String(), want)
	}
}

// A stopped network is read from its homes, providers first. A home that lacks a part is ErrLost.
func TestStopped(t *testing.T) {
	t.Parallel()
	make := func(dir string, providers int) *Network {
		t.Helper()
		o, err := Options{Dir: dir, Binary: "starling", Providers: providers, Buyers: 2, Free: true}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		n := &Network{Dir: dir, opts: o}
		if n.Genesis, err = market.FreeGenesis("testnet", rand.Reader); err == nil {
			err = n.makeHomes(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	dir := t.TempDir()
	if n, err := Stopped(t.Context(), filepath.Join(dir, "none")); n != nil || err != nil {
		t.Fatalf("no directory: %v, %v", n, err)
	}
	if n, err := Stopped(t.Context(), dir); n != nil || err != nil {
		t.Fatalf("no homes: %v, %v", n, err)
	}
	made := make(dir, 11)
	n, err := Stopped(t.Context(), dir)
	if err != nil || n.Genesis != made.Genesis || n.Sellers() != 11 || len(n.Peers) != len(made.Peers) {
		t.Fatalf("%+v, %v", n, err)
	}
	for i, want := range made.Peers {
		if p := n.Peers[i]; p.Name != want.Name || p.Home != want.Home || p.Key != want.Key || p.Owner != want.Owner {
			t.Errorf("peer %d is %+v, want %+v", i, p, want)
		}
	}
	lost := func(change string, want string) {
		t.Helper()
		n, err := Stopped(t.Context(), dir)
		if n != nil || !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", change, n, err, want)
		}
	}
	other := make(t.TempDir(), 1).Peers[0].Home
	home := n.Peers[9].Home
	for _, file := range []string{config.FileGenesis, config.FileConfig, config.FileIdentity} {
		path := filepath.Join(home, file)
		kept, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		lost("without "+file, home)
		if err := os.WriteFile(path, kept, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	foreign, err := os.ReadFile(filepath.Join(other, config.FileGenesis))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, config.FileGenesis), foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	lost("a genesis of another network", "genesis: network ")
}
