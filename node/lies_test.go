package node

import (
	"errors"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/evidence"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/notice"
)

// lyingWindow is the window of the tests' lies; it is now.
const lyingWindow audit.Window = 7

// hearsLies is a peer that hears of lies, with the keys of a provider and a member that have told three.
func hearsLies(t testing.TB) (l *lies, all []audit.Lie, self peer.ID) {
	t.Helper()
	g := audittest.New(1).Genesis()
	provider, member := audittest.Key("liar"), audittest.Key("lazy")
	keeper, err := evidence.Open(t.Context(), evidence.Config{
		Genesis: g, Self: audittest.Key("self").Key(), Store: store.NewMemory(), Slot: func() (market.Slot, error) { return lyingWindow.First(g.AuditSlots) + 5, nil },
		Heard: func(notice.Notice) {}, Proved: func(verify.Conflict) {}, Lied: func(audit.Lie) {}, Log: p2ptest.Quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	host := p2ptest.Loopback(t, 1)[0]
	n := &Node{p: Parts{Genesis: g, Host: host, Log: p2ptest.Quiet()}}
	n.evidence = keeper
	l = &lies{telling: newTelling[audit.Lie](n, toldPerPeer, toldBurst), staked: map[sign.Key]bool{}}
	l.setStakes([]program.Provider{{Peer: provider.Key(), Stake: 1}, {Peer: member.Key(), Unbonding: 1}})
	return l, audittest.Lies(g.Domain(), provider, member, lyingWindow), host.ID()
}

// TestLiesDecode is the topic's validator: what is passed on, what is dropped, and what costs its sender.
func TestLiesDecode(t *testing.T) {
	t.Parallel()
	l, all, self := hearsLies(t)
	d := l.n.p.Genesis.Domain()
	provider, member := audittest.Key("liar"), audittest.Key("lazy")
	changed := func(f func(l *audit.Lie)) []byte { x := all[0]; f(&x); return x.Marshal() }
	later := audittest.Lies(d, provider, member, lyingWindow+1)
	poor := audittest.Lies(d, audittest.Key("nobody"), member, lyingWindow)
	other := d
	other.Network = "other"
	foreign := audittest.Lies(other, provider, member, lyingWindow)
	for i, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"a false opening", all[0].Marshal(), nil},
		{"two answers", all[1].Marshal(), nil},
		{"a false pass", all[2].Marshal(), nil},
		{"nothing", nil, gossip.ErrReject},
		{"noise", make([]byte, audit.MaxLie), gossip.ErrReject},
		{"too long", make([]byte, 1<<16), gossip.ErrReject},
		{"cut off", all[0].Marshal()[:500], gossip.ErrReject},
		{"not signed", changed(func(l *audit.Lie) { l.Signature[0]++ }), gossip.ErrReject},
		{"a right value", changed(func(l *audit.Lie) { l.Value++ }), gossip.ErrReject},
		{"another root", changed(func(l *audit.Lie) { l.Shown.Openings[0]++ }), gossip.ErrReject},
		{"another seed", changed(func(l *audit.Lie) { l.Answer.ProductSeed[0]++ }), gossip.ErrReject},
		{"of another network", foreign[0].Marshal(), gossip.ErrReject},
		{"of a window to come", later[0].Marshal(), gossip.ErrIgnore},
		{"of the last window there is", audittest.Lies(d, provider, member, 1<<64-1)[0].Marshal(), gossip.ErrIgnore},
		{"of who has nothing at stake", poor[0].Marshal(), gossip.ErrIgnore},
	} {
		from := peer.ID([]byte{byte(i)}) // each of its own, so that nobody tells of too many
		if _, err := l.decode(from, c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if _, err := l.decode(self, c.data); (err == nil) != (c.want == nil || errors.Is(c.want, gossip.ErrIgnore)) {
			t.Errorf("%s, by this peer: %v", c.name, err)
		}
	}
	if _, err := l.n.evidence.KeepLie(t.Context(), all[0], false); err != nil {
		t.Fatal(err)
	}
	if _, err := l.decode("x", all[0].Marshal()); !errors.Is(err, gossip.ErrIgnore) {
		t.Errorf("a lie that is kept: %v", err)
	}
	for range toldBurst + 1 {
		_, err := l.decode("one", all[1].Marshal())
		if err != nil && !errors.Is(err, gossip.ErrIgnore) {
			t.Error(err)
		}
	}
	if l.told.Allow("one", time.Now()) {
		t.Error("one peer may tell of any number")
	}
}

// Nothing but a lie that was told here is taken for one.
func FuzzLies(f *testing.F) {
	l, all, self := hearsLies(f)
	known := map[string]bool{}
	for _, x := range all {
		f.Add(x.Marshal())
		known[string(x.Marshal())] = true
	}
	f.Add([]byte{1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, from := range []peer.ID{self, peer.ID(b[:min(len(b), 8)])} {
			lie, err := l.decode(from, b)
			switch {
			case err == nil && (lie.Check(l.n.p.Genesis.Domain()) != nil || !known[string(b)]):
				t.Fatalf("%x is passed on", b)
			case err != nil && !errors.Is(err, gossip.ErrReject) && !errors.Is(err, gossip.ErrIgnore):
				t.Fatalf("neither rejected nor ignored: %v", err)
			}
		}
	})
}
