package clitest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest/programtest"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/client"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// lightKey is the number of the light client's key.
const lightKey = 60

// asCommand is the variable that makes a test program the command line.
const asCommand = "STARLING_TEST_COMMAND"

// Main is TestMain of packages with a light client. A command that finds no agent starts its own program as one, which
// must not run the tests once more. AsCommand makes the program the command line instead.
func Main(m *testing.M, commands []func(*cli.App) *cobra.Command) {
	switch {
	case os.Getenv(asCommand) != "":
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, commands))
	case len(os.Args) > 1 && os.Args[1] == "client":
		os.Exit(int(cli.ExitUnreachable))
	}
	os.Exit(m.Run())
}

// AsCommand is the environment in which a program with Main is the command line of the world's user.
func (w *World) AsCommand() []string {
	env := append(os.Environ(), asCommand+"=1", "STARLING_HOME="+w.Home)
	for name, value := range w.Env {
		env = append(env, name+"="+value)
	}
	return env
}

// NewLightWorld is a world in which the commands are those of a light client. Its only entry is the buying peer. With
// direct it dials providers too.
func NewLightWorld(t testing.TB, commands []func(*cli.App) *cobra.Command, relay p2p.NAT, direct bool) *World {
	t.Helper()
	w := NewWorld(t, commands, relay)
	entry := w.Hosts[2].AddrInfo()
	addrs, err := peer.AddrInfoToP2pAddrs(&entry)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := p2p.SeedOf(p2ptest.Key(lightKey))
	if err != nil {
		t.Fatal(err)
	}
	key := sign.NewPrivate(seed)
	w.Home, w.Owner = t.TempDir(), key.Key()
	w.Env["STARLING_PEER"] = addrs[0].String()
	home := filepath.Join(w.Home, "client")
	if _, err := p2p.SaveIdentity(filepath.Join(home, config.FileIdentity), seed); err != nil {
		t.Fatal(err)
	}
	g, err := json.Marshal(w.Genesis)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(home, config.FileGenesis), g)
	journal, err := store.OpenSQLite(filepath.Join(home, config.FileJournal))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { journal.Close() })
	blobs, err := blob.OpenStore(filepath.Join(home, "blobs"), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	host, err := p2p.NewLight(p2p.Config{
		Key: p2ptest.Key(lightKey), Network: w.Genesis.Tag(), Agent: "starling-client/test", Logger: p2ptest.Quiet(),
	}, direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	w.Chain.Mint(key.Key(), minted)
	parts := client.Parts{
		Config: config.Default(), Home: home, Genesis: w.Genesis, Key: key, Owner: key.Key(), Host: host,
		Entries: []peer.AddrInfo{entry}, Store: journal, Blobs: blobs, Runtimes: programtest.Runtimes(),
		SlotEvery: time.Second,
		Version:   "test", Log: p2ptest.Quiet(),
	}
	ledger := w.Chain.Ledger(key.Key())
	parts.Access.Ledger, parts.Access.Program = ledger, ledger
	c, err := client.New(t.Context(), parts)
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, c.Serve)
	Eventually(t, "the light client answers", func() bool { return cli.Answering(t.Context(), home) != nil })
	w.Finds(t)
	return w
}

// WantRelayed checks that a light client is connected to its entry, and to all other peers through it.
func (w *World) WantRelayed(t testing.TB) {
	t.Helper()
	entry, seen := w.Hosts[2].ID().String(), 0
	var peers []api.PeerInfo
	r := w.CLI(t, "peer", "ls", "-o", "json").Want(t, cli.ExitOK)
	if err := json.Unmarshal([]byte(r.Out), &peers); err != nil {
		t.Fatal(err)
	}
	for _, p := range peers {
		for _, c := range p.Conns {
			if want := map[bool]string{false: entry}[p.Peer == entry]; c.Via != want {
				t.Errorf("connected to %s by %s, through %q, want %q", p.Peer, c.Addr, c.Via, want)
			}
			if c.Via != "" {
				seen++
			}
		}
	}
	if st := w.Hosts[2].Relay().Stats(); st.Opened == 0 || seen == 0 {
		t.Errorf("%d circuits are open, the entry relayed %d", seen, st.Opened)
	}
}
