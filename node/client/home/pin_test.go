package home

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/client/entries"
	"github.com/starling-network/starling/node/config"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The genesis is that of the home, of a file or of a hash; two that differ are refused, and so is any other
// text. An entry has to show the pinned one.
func TestPin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	genesis := market.Genesis{
		Network: "client", Chain: sign.Sum([]byte("chain")), Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10, Simulated: true,
	}
	other := genesis
	other.Network = "other"
	text, err := json.Marshal(genesis)
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, filepath.Join(dir, "genesis.json"), string(text))
	used, unused, broken := filepath.Join(dir, "used"), t.TempDir(), t.TempDir()
	if err := os.Mkdir(used, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := KeepGenesis(used, genesis); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(broken, config.FileGenesis), "{")
	hash, wrong := genesis.Hash().String(), other.Hash().String()
	for name, c := range map[string]struct {
		home, text string
		known      bool  // in full
		err        error // nil: pins genesis
	}{
		"kept":                   {used, "", true, nil},
		"kept, and the hash":     {used, hash, true, nil},
		"kept, and the file":     {used, file, true, nil},
		"the hash":               {unused, hash, false, nil},
		"the file":               {unused, file, true, nil},
		"kept, and another hash": {used, wrong, true, config.ErrPeers},
		"no such file":           {unused, filepath.Join(dir, "none"), false, config.ErrPeers},
		"a hash cut off":         {unused, hash[:63], false, config.ErrPeers},
		"a file of another kind": {unused, write(t, filepath.Join(dir, "text"), "text"), false, config.ErrPeers},
		"too long a file":        {unused, write(t, filepath.Join(dir, "long"), strings.Repeat(" ", maxFile)+"{}"), false, config.ErrPeers},
		"a broken home":          {broken, hash, false, market.ErrMalformed},
	} {
		p, err := ReadPin(c.home, c.text)
		if !errors.Is(err, c.err) || (c.err == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
			continue
		}
		if err != nil {
			continue
		}
		if (p.Genesis != nil) != c.known || p.Check(genesis) != nil {
			t.Errorf("%s: %+v, %v", name, p, p.Check(genesis))
		}
		if err := p.Check(other); !errors.Is(err, entries.ErrOtherNetwork) {
			t.Errorf("%s: an entry of another network: %v", name, err)
		}
	}
	if p, err := ReadPin(unused, ""); err != nil || p != (entries.Pin{}) || p.Check(other) != nil {
		t.Errorf("nothing pinned: %+v, %v", p, err)
	}
}
