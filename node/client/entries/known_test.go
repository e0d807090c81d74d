package entries

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

func addr(i int) string {
	id, err := p2p.PeerIDFromKey(keyOf(i).Key())
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("/ip4/10.0.0.%d/tcp/4001/p2p/%s", i, id)
}

func FuzzEntries(f *testing.F) {
	one, err := config.ParsePeers([]string{addr(1)})
	if err != nil {
		f.Fatal(err)
	}
	k := knownOf(one[0])
	k.Given, k.Shown, k.Seen, k.By = true, true, 1700000000, k.ID
	f.Add(encodeEntries([]known{k, knownOf(one[0])}))
	f.Add([]byte(`[{"id":"x"},{}]`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decodeEntries(b)
		if err != nil {
			if !errors.Is(err, ErrEntriesFile) {
				t.Fatal(err)
			}
			return
		}
		once := encodeEntries(all)
		again, err := decodeEntries(once)
		if err != nil || len(again) != len(all) || !bytes.Equal(encodeEntries(again), once) {
			t.Fatalf("%s is read as %v (%v)", once, again, err)
		}
		for _, k := range all {
			if _, ok := k.info(); !ok || !slices.ContainsFunc(again, func(o known) bool { return o.ID == k.ID }) {
				t.Fatalf("entry %v makes no sense or is lost", k)
			}
		}
	})
}

// Entries that the user gave come first and are never left out, then the latest seen; entries that make
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
		if err := os.WriteFile(filepath.Join(home, FileEntries), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readEntries(home); got != nil {
			t.Errorf("%.20q holds %v", text, got)
		}
	}
}

// The next keeper of a home knows the entries of the one before, with their origins, and those given.
func TestRemembers(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	lone := loneKeeper(t)
	p, err := config.ParsePeers([]string{addr(1), addr(2), addr(3)})
	if err != nil {
		t.Fatal(err)
	}
	first := New(lone.host, genesis, home, p[:1], p2ptest.Quiet())
	first.learn(p[0].ID, p[1:2])
	first.mu.Lock()
	first.all[p[1].ID].Shown, first.all[p[1].ID].Seen = true, 5
	first.mu.Unlock()
	first.remember()
	next := New(lone.host, genesis, home, p[2:], p2ptest.Quiet())
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
