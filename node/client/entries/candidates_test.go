package entries

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// entryAt is an entry with addresses on ports of one host.
func entryAt(id string, ports ...int) peer.AddrInfo {
	p := peer.AddrInfo{ID: peer.ID(id)}
	for _, n := range ports {
		p.Addrs = append(p.Addrs, ma.StringCast(fmt.Sprintf("/ip4/10.0.0.1/tcp/%d", n)))
	}
	return p
}

func loneKeeper(t *testing.T) *Keeper {
	t.Helper()
	host, err := p2p.NewLight(p2p.Config{Key: p2ptest.Key(91), Network: genesis.Tag(), Logger: p2ptest.Quiet()}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	return New(host, genesis, "", nil, p2ptest.Quiet())
}

// Entries that others name are bounded, keep their source, and change no address of an entry that the user named.
func TestLearnEntries(t *testing.T) {
	t.Parallel()
	k := loneKeeper(t)
	k.give([]peer.AddrInfo{entryAt("given", 1)})
	k.learn("given", []peer.AddrInfo{entryAt("friend", 2), entryAt("given", 666), {ID: k.host.ID()}})
	k.learn("friend", []peer.AddrInfo{entryAt("friend's", 3)})
	if got := k.all["given"].peer.Addrs; len(got) != 1 || k.all[k.host.ID()] != nil {
		t.Errorf("another entry changed the addresses of the one that the user named: %v", got)
	}
	if a, b := k.all["friend"], k.all["friend's"]; k.apart(a, b) || k.apart(k.all["given"], b) {
		t.Error("entries that one entry led to are witnesses against each other")
	}
	for i := range 2 * maxEntries {
		k.learn("friend", []peer.AddrInfo{entryAt(fmt.Sprint("many", i), 9)})
	}
	if len(k.all) != maxEntries {
		t.Errorf("%d entries are remembered, want %d", len(k.all), maxEntries)
	}
	for port := range 3 * maxEntryAddrs {
		k.learn("given", []peer.AddrInfo{entryAt("friend", 1000+port)})
	}
	addrs := k.all["friend"].peer.Addrs
	if newest := fmt.Sprintf("/tcp/%d", 1000+3*maxEntryAddrs-1); len(addrs) != maxEntryAddrs ||
		addrs[0].String() != "/ip4/10.0.0.1"+newest {
		t.Errorf("%d addresses, the first %v, want %d, the newest first", len(addrs), addrs[0], maxEntryAddrs)
	}
}

// The entries that the user named are tried first, then those that were entered last; not those that failed just now.
func TestNextEntries(t *testing.T) {
	t.Parallel()
	k := loneKeeper(t)
	now := time.Now()
	k.learn("x", []peer.AddrInfo{entryAt("old", 1), entryAt("recent", 2), entryAt("failed", 3), entryAt("nowhere")})
	k.all["old"].Seen, k.all["recent"].Seen, k.all["failed"].after = 10, 20, now.Add(time.Second)
	k.give([]peer.AddrInfo{entryAt("given", 4)})
	names := func(all []*candidate) (out []string) {
		for _, c := range all {
			out = append(out, string(c.peer.ID))
		}
		return out
	}
	if got := names(k.next(now)); !slices.Equal(got, []string{"given", "recent"}) {
		t.Errorf("tried first: %v", got)
	}
	if got := names(k.next(now)); len(got) != 0 {
		t.Errorf("%v are tried while two are under way", got)
	}
	if got := names(k.next(now.Add(tryTime))); !slices.Equal(got, []string{"failed", "old"}) &&
		!slices.Equal(got, []string{"old", "failed"}) {
		t.Errorf("tried in place of two that do not answer: %v", got)
	}
}
