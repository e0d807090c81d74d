package peerbook

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"
)

func anyPeer(peer.ID) error { return nil }

// TestAttackRememberedPeers: strangers that connect here with many keys, and later than everybody else, take no place of the peers that
// this one dialled; those of one network take few of the others.
func TestAttackRememberedPeers(t *testing.T) {
	t.Parallel()
	of := func(name string, n int, addr string, seen int64, dialled bool) (out []Entry) {
		for i := range n {
			out = append(out, Entry{ID: peer.ID(fmt.Sprint(name, i)), Addrs: []ma.Multiaddr{ma.StringCast(fmt.Sprintf(addr, i%250))}, Seen: seen, Dialled: dialled})
		}
		return out
	}
	count := func(entries []Entry) (dialled, inbound int) {
		for _, e := range entries {
			if e.Dialled {
				dialled++
			} else {
				inbound++
			}
		}
		return dialled, inbound
	}
	dialled := of("d", 240, "/ip4/10.1.%d.1/tcp/1", 1, true)
	strangers := append(of("a", 1000, "/ip4/203.0.113.%d/tcp/1", 2, false), of("b", 1000, "/ip6/2001:db8::%x/tcp/1", 2, false)...)
	if d, in := count(choose(append(strangers, dialled...))); d != 240 || in != 2*maxPerNetwork {
		t.Errorf("%d of 240 that were dialled are kept, and %d strangers of two networks", d, in)
	}
	everywhere := of("c", 1000, "/ip4/10.9.%d.1/tcp/1", 2, false)
	if d, in := count(choose(append(everywhere, dialled...))); d != 240 || in != maxPeers-240 {
		t.Errorf("%d of 240 that were dialled are kept, and %d strangers", d, in)
	}
	if d, in := count(choose(everywhere)); d != 0 || in != maxInbound {
		t.Errorf("%d strangers are kept where nobody was dialled", in)
	}
	if _, in := count(choose(of("e", 20, "/ip4/127.0.0.1/tcp/1%d", 2, false))); in != 20 {
		t.Errorf("%d of 20 on this machine are kept", in)
	}
}

// TestBookIsBounded: whoever connects, and however often, the book keeps its bounds, what it has dialled, and an order
// by time.
func TestBookIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b, err := Open("", anyPeer, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1_000_000_000, 0)
		dialled := map[peer.ID]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			var entries []Entry
			from := rapid.IntRange(0, 300).Draw(t, "first")
			for i := range rapid.IntRange(0, 400).Draw(t, "peers") {
				id := peer.ID(fmt.Sprint("p", from+i))
				e := Entry{ID: id, Addrs: []ma.Multiaddr{ma.StringCast(fmt.Sprintf("/ip4/8.%d.%d.1/tcp/1", i%7, i%50))},
					Seen: now.Unix(), Dialled: i%3 == 0}
				dialled[id] = dialled[id] || e.Dialled
				entries = append(entries, e)
			}
			kept := b.add(entries, now)
			inbound := 0
			for _, e := range kept {
				if !e.Dialled {
					inbound++
				}
				if e.Dialled && !dialled[e.ID] || now.Sub(time.Unix(e.Seen, 0)) > forgetAfter || b.Seen(e.ID).Unix() != e.Seen {
					t.Fatalf("kept %+v", e)
				}
			}
			if len(kept) > maxPeers || inbound > maxInbound || b.Len() != len(kept) || len(b.Entries()) != len(kept) {
				t.Fatalf("%d peers, %d of them inbound", len(kept), inbound)
			}
			if !slices.IsSortedFunc(kept, func(a, b Entry) int { return int(b.Seen - a.Seen) }) {
				t.Fatal("not by time")
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "days")) * 24 * time.Hour)
		}
	})
}

// A file that is none, or too large, is set aside, and the next run begins with an empty book.
func TestBadFileIsSetAside(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{"no JSON": []byte("{"), "too large": bytes.Repeat([]byte(" "), maxFile+1)} {
		dir := t.TempDir()
		path := filepath.Join(dir, fileName)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := Open(dir, anyPeer, slog.New(slog.DiscardHandler))
		if err != nil || b.Len() != 0 {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := os.Stat(path + ".bad"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file is still there: %v", name, err)
		}
	}
}

// Of a file only sound peers are taken, each once.
func TestUnsoundPeersAreLeftOut(t *testing.T) {
	t.Parallel()
	const a, b = "12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm", "12D3KooWFUk3fp7MBjuJs3x4ExVoSwBBtatxUCqks2DkQKHDZZDW"
	text := fmt.Sprintf(`[{"id":%q,"addrs":["/ip4/1.2.3.4/tcp/5","x"],"seen":7},{"id":%q,"addrs":["/ip4/1.2.3.4/tcp/6"]},
		{"id":%q,"addrs":["/ip4/1.2.3.4/tcp/5"]},{"id":"x","addrs":["/ip4/1.2.3.4/tcp/5"]}]`, a, a, b)
	got, err := decode([]byte(text), func(p peer.ID) error {
		if p.String() == b {
			return errors.New("unsound")
		}
		return nil
	})
	if err != nil || len(got) != 1 || got[0].ID.String() != a || len(got[0].Addrs) != 1 || got[0].Seen != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzPeers(f *testing.F) {
	f.Add([]byte("[]"))
	f.Add([]byte(`[{"id":"12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm","addrs":["/ip4/1.2.3.4/tcp/5","x"],"seen":7}]`))
	f.Add([]byte(`[{"id":"x"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := decode(data, anyPeer)
		if err != nil {
			return
		}
		text := encode(entries)
		again, err := decode(text, anyPeer)
		if err != nil || !bytes.Equal(encode(again), text) {
			t.Fatalf("%s became %s: %v", text, encode(again), err)
		}
	})
}
