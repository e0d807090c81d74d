package client

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// TestPin: the genesis is that of the home, of a file or of a hash; two that differ are refused, and so is any other
// text. An entry has to show the pinned one.
func TestPin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
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
	if err := keepGenesis(used, genesis); err != nil {
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
		"kept, and another hash": {used, wrong, true, ErrConfig},
		"no such file":           {unused, filepath.Join(dir, "none"), false, ErrConfig},
		"a hash cut off":         {unused, hash[:63], false, ErrConfig},
		"a file of another kind": {unused, write(t, filepath.Join(dir, "text"), "text"), false, ErrConfig},
		"too long a file":        {unused, write(t, filepath.Join(dir, "long"), strings.Repeat(" ", maxGenesisFile)+"{}"), false, ErrConfig},
		"a broken home":          {broken, hash, false, market.ErrMalformed},
	} {
		p, err := readPin(c.home, c.text)
		if !errors.Is(err, c.err) || (c.err == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
			continue
		}
		if err != nil {
			continue
		}
		if (p.genesis != nil) != c.known || p.check(genesis) != nil {
			t.Errorf("%s: %+v, %v", name, p, p.check(genesis))
		}
		if err := p.check(other); !errors.Is(err, ErrOtherNetwork) {
			t.Errorf("%s: an entry of another network: %v", name, err)
		}
	}
	if p, err := readPin(unused, ""); err != nil || p != (pin{}) || p.check(other) != nil {
		t.Errorf("nothing pinned: %+v, %v", p, err)
	}
}

// TestEntriesFile: entries that the user gave come first and are never left out, then the latest seen; entries that make
// no sense are left out, each other is there once, and a file that does not decode is an empty one.
func TestEntriesFile(t *testing.T) {
	t.Parallel()
	parsed := func(i int) peer.AddrInfo {
		p, err := config.ParsePeers([]string{addr(i)})
		if err != nil {
			t.Fatal(err)
		}
		return p[0]
	}
	var all []known
	for i := range maxEntries + 3 {
		k := knownOf(parsed(i + 1))
		k.Seen, k.Given = int64(i%7), i == maxEntries+1
		all = append(all, k)
	}
	got, err := decodeEntries(encodeEntries(all))
	if err != nil || len(got) != maxEntries || !got[0].Given || got[0].ID != all[maxEntries+1].ID {
		t.Fatalf("%d entries, the first %+v, %v", len(got), got[0], err)
	}
	if !slices.IsSortedFunc(got[1:], func(a, b known) int { return int(b.Seen - a.Seen) }) {
		t.Error("they are not in the order in which they were seen")
	}
	good := knownOf(parsed(1))
	many := good
	for range maxEntryAddrs + 3 {
		many.Addrs = append(many.Addrs, good.Addrs[0])
	}
	for name, c := range map[string]struct {
		in   known
		want int // addresses; 0: it is left out
	}{
		"good":               {good, 1},
		"no address":         {known{ID: good.ID}, 0},
		"no address of ours": {known{ID: good.ID, Addrs: []string{"x", "/ip4/1"}}, 0},
		"one of two":         {known{ID: good.ID, Addrs: []string{"x", good.Addrs[0]}}, 1},
		"too many addresses": {many, maxEntryAddrs},
		"no peer":            {known{ID: "x", Addrs: good.Addrs}, 0},
		"a key unlike ours":  {known{ID: "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N", Addrs: good.Addrs}, 0},
	} {
		c.in.Seen, c.in.By = -5, "nobody"
		got, err := decodeEntries(encodeEntries([]known{c.in, c.in}))
		if err != nil || (len(got) > 0) != (c.want > 0) || len(got) > 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		} else if c.want > 0 && (len(got[0].Addrs) != c.want || got[0].Seen != 0 || got[0].By != "") {
			t.Errorf("%s: %+v", name, got[0])
		}
	}
	home := t.TempDir()
	if got := readEntries(home); got != nil {
		t.Errorf("no file holds %v", got)
	}
	for _, text := range []string{"{", `{"id":1}`, "[" + strings.Repeat(" ", maxEntriesFile) + "]"} {
		if _, err := decodeEntries([]byte(text)); !errors.Is(err, ErrEntriesFile) {
			t.Errorf("%.20q: %v", text, err)
		}
		write(t, filepath.Join(home, FileEntries), text)
		if got := readEntries(home); got != nil {
			t.Errorf("%.20q holds %v", text, got)
		}
	}
}

// TestRemembers: the next keeper of a home knows the entries of the one before, with their origins, and those given.
func TestRemembers(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	lone := loneKeeper(t)
	p, err := config.ParsePeers([]string{addr(1), addr(2), addr(3)})
	if err != nil {
		t.Fatal(err)
	}
	first := newKeeper(lone.host, genesis, home, p[:1], p2ptest.Quiet())
	first.learn(p[0].ID, p[1:2])
	first.mu.Lock()
	first.all[p[1].ID].Shown, first.all[p[1].ID].Seen = true, 5
	first.mu.Unlock()
	first.remember()
	next := newKeeper(lone.host, genesis, home, p[2:], p2ptest.Quiet())
	if len(next.all) != 3 || len(next.Peers()) != 3 {
		t.Fatalf("%d entries are known, %d are not in use", len(next.all), len(next.Peers()))
	}
	given, named := next.all[p[0].ID], next.all[p[1].ID]
	if !given.Given || named.Given || !named.Shown || named.Seen != 5 || named.By != p[0].ID.String() {
		t.Errorf("given %+v, named by it %+v", given.known, named.known)
	}
	if next.apart(given, named) || !next.apart(given, next.all[p[2].ID]) {
		t.Error("an entry's origin is forgotten")
	}
	next.all[p[1].ID].in = true
	if got := next.Peers(); len(got) != 2 || slices.ContainsFunc(got, func(x peer.AddrInfo) bool { return x.ID == p[1].ID }) {
		t.Errorf("not in use: %v", got)
	}
	if lone.remember(); lone.home != "" {
		t.Error("a keeper without a home remembers")
	}
}
