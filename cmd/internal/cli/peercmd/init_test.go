package peercmd

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

// The configuration that init writes is the default one, and whatever init is told comes out of it as it went in.
func TestConfigText(t *testing.T) {
	t.Parallel()
	read := func(o initOptions) config.Config {
		text, err := o.configText()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), config.FileConfig)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	want := config.Default()
	want.Listen, want.Announce, want.Bootstrap, want.Solana.RPC = []string{}, []string{}, []string{}, []string{}
	want.NAT.Relays, want.Block = []string{}, []string{}
	if got := read(initOptions{region: want.Region, price: want.Provide.Price}); !reflect.DeepEqual(got, want) {
		t.Errorf("init writes %+v, the defaults are %+v", got, want)
	}
	const owner = "SysvarC1ock11111111111111111111111111111111"
	want.Region, want.Owner, want.Provide.Enabled, want.Provide.Price = "eu-west", owner, true, "0.10"
	want.Bootstrap, want.Solana.RPC = []string{`/dns4/a"b: #c`}, []string{"http://127.0.0.1:1", "http://[::1]:2"}
	if got := read(initOptions{region: "eu-west", owner: owner, bootstrap: want.Bootstrap, rpc: want.Solana.RPC, provide: true, price: "0.10"}); !reflect.DeepEqual(got, want) {
		t.Errorf("read back as %+v, want %+v", got, want)
	}
}

// A private network's key is made once, given on as a file, and never overwritten.
func TestInitPSK(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	if code, _, text := clitest.Run(t, NewInit, "init", "--home", first, "--psk", "new"); code != 0 {
		t.Fatal(text)
	}
	key, err := p2p.LoadPSK(filepath.Join(first, config.FilePSK))
	if err != nil {
		t.Fatal(err)
	}
	if code, _, text := clitest.Run(t, NewInit, "init", "--home", second, "--psk", filepath.Join(first, config.FilePSK)); code != 0 {
		t.Fatal(text)
	}
	if code, out, _ := clitest.Run(t, NewInit, "init", "--home", second, "--psk", "new"); code != 0 || !strings.Contains(out, "swarm.key      kept") {
		t.Errorf("again: %q", out)
	}
	if got, err := p2p.LoadPSK(filepath.Join(second, config.FilePSK)); err != nil || *got != *key {
		t.Errorf("the second peer's key: %v", err)
	}
	cfg, err := config.Load(filepath.Join(second, config.FileConfig))
	if err != nil || cfg.PrivateNetwork != config.FilePSK {
		t.Errorf("configuration names %q, %v", cfg.PrivateNetwork, err)
	}
	for _, args := range [][]string{{"--psk", dir}, {"--psk", filepath.Join(first, config.FileConfig)}, {"--relay", "--dial-out-only"}} {
		if code, _, text := clitest.Run(t, NewInit, append([]string{"init", "--home", filepath.Join(dir, "third")}, args...)...); code != int(cli.ExitUsage) {
			t.Errorf("%v: code %d, %s", args, code, text)
		}
	}
}
