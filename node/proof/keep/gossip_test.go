package keep

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/prooftest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
)

// listener is a peer that hears of frauds, on a network where liar and lazy have something at stake.
func listener(t testing.TB) (*Gossip, Frauds) {
	t.Helper()
	staked := map[sign.Key]bool{prooftest.Key("liar").Key(): true, prooftest.Key("lazy").Key(): true}
	g := prooftest.Genesis()
	f := Frauds{
		Store:  opened(t, store.NewMemory(), nil),
		Slot:   func() (market.Slot, error) { return prooftest.Window.First(g.AuditSlots) + 5, nil },
		Staked: func(k sign.Key) (bool, bool) { return staked[k], true },
	}
	x := newGossip(GossipConfig{
		Host: p2ptest.Loopback(t, 1)[0], Handlers: map[proof.Kind]Handler{proof.KindFraud: f}, Log: p2ptest.Quiet(),
	})
	return x, f
}

func wire(t testing.TB, c proof.Content) []byte {
	t.Helper()
	b, err := proof.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The topic's validator: which proofs are passed on, which are dropped, and which cost the neighbour.
func TestDecode(t *testing.T) {
	t.Parallel()
	x, f := listener(t)
	liar, lazy := prooftest.Key("liar"), prooftest.Key("lazy")
	all := prooftest.Frauds(liar, lazy, prooftest.Window)
	unsigned, right := all[0], all[0]
	unsigned.Signature[0]++
	right.Value++
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"a false opening", wire(t, all[0]), nil},
		{"two answers", wire(t, all[1]), nil},
		{"a false pass", wire(t, all[2]), nil},
		{"nothing", nil, gossip.ErrReject},
		{"a code", []byte{7}, gossip.ErrReject},
		{"an unknown code", []byte{99, 1}, gossip.ErrReject},
		{"noise", append([]byte{7}, make([]byte, audit.MaxLie)...), gossip.ErrReject},
		{"a kind that is not published", wire(t, prooftest.Dispute(0, 1, 2)), gossip.ErrReject},
		{"not signed", wire(t, unsigned), gossip.ErrReject},
		{"a right value", wire(t, right), gossip.ErrReject},
		{"of a window to come", wire(t, prooftest.Frauds(liar, lazy, prooftest.Window+1)[0]), gossip.ErrIgnore},
		{"of the last window there is", wire(t, prooftest.Frauds(liar, lazy, 1<<64-1)[0]), gossip.ErrIgnore},
		{"nothing at stake", wire(t, prooftest.Frauds(prooftest.Key("x"), lazy, prooftest.Window)[0]), gossip.ErrIgnore},
	} {
		if _, err := x.decode("author", "neighbour", c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := f.Take(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := x.decode("author", "neighbour", wire(t, all[0])); !errors.Is(err, gossip.ErrIgnore) {
		t.Errorf("a known fraud: %v", err)
	}
	if n := len(f.Publish(t.Context())); n != 0 {
		t.Errorf("%d proofs of others are published", n)
	}
	if _, err := f.Store.Keep(t.Context(), all[1], true); err != nil {
		t.Fatal(err)
	}
	if out := f.Publish(t.Context()); len(out) != 1 || out[0].Hash() != all[1].Hash() {
		t.Errorf("published are %v", out)
	}
}

// believing is a handler whose checks cost nothing.
type believing struct{ Frauds }

func (believing) Check(context.Context, proof.Content) error { return nil }

// A flood of free authors through one neighbour is cut off there, and costs other neighbours nothing.
func TestAttackFreeAuthors(t *testing.T) {
	t.Parallel()
	x, f := listener(t)
	x.cfg.Handlers = map[proof.Kind]Handler{proof.KindFraud: believing{f}}
	data := wire(t, prooftest.Frauds(prooftest.Key("liar"), prooftest.Key("lazy"), prooftest.Window)[1])
	begun, passed := time.Now(), 0
	for i := range ofNeighbour.Burst + 1000 {
		if _, err := x.decode(peer.ID([]byte{1, byte(i), byte(i >> 8)}), "flooder", data); err == nil {
			passed++
		}
	}
	most := float64(ofNeighbour.Burst) + float64(ofNeighbour.PerSecond)*time.Since(begun).Seconds() + 1
	if float64(passed) > most {
		t.Errorf("%d pass through one neighbour, want at most %.0f", passed, most)
	}
	if _, err := x.decode("author", "other", data); err != nil {
		t.Errorf("through another neighbour: %v", err)
	}
}

// Peers get public proofs by their hash, and nothing that a buyer keeps to itself.
func TestAnswer(t *testing.T) {
	t.Parallel()
	list := []market.Shown{{Unit: market.UnitID{1}, Record: sign.Hash{2}}}
	root, err := market.ProofRoot(list)
	if err != nil {
		t.Fatal(err)
	}
	s := Server{Catalog: Catalog{Store: opened(t, store.NewMemory(), nil)}, Offered: func(p sign.Hash) []market.Shown {
		if p == root {
			return list
		}
		return nil
	}}
	keepAll(t, s.Store, true, kinds()...)
	for _, c := range kinds() {
		h := c.Hash()
		r, err := s.Answer(t.Context(), &nodepb.ProofRequest{Hash: h[:]})
		if (err == nil) != c.Kind().Public() {
			t.Fatalf("%s: %v", c.Kind(), err)
		}
		if err != nil {
			continue
		}
		if got, err := Read(r, h); err != nil || got.Hash() != h {
			t.Errorf("%s: %v", c.Kind(), err)
		}
		if _, err := Read(r, sign.Hash{1}); !errors.Is(err, proof.ErrUnknown) {
			t.Errorf("another proof than the one requested: %v", err)
		}
	}
	if r, err := s.Answer(t.Context(), &nodepb.ProofRequest{Offered: root[:]}); err != nil || len(r.Shown) == 0 {
		t.Errorf("%v, %v", r, err)
	}
	var refused *stream.Refused
	var bad *stream.Malformed
	for name, c := range map[string]struct {
		req  *nodepb.ProofRequest
		kind any
	}{
		"another proof": {&nodepb.ProofRequest{Hash: root[:]}, &refused},
		"another offer": {&nodepb.ProofRequest{Offered: make([]byte, 32)}, &refused},
		"a short offer": {&nodepb.ProofRequest{Offered: []byte{1}}, &bad},
		"a short hash":  {&nodepb.ProofRequest{Hash: []byte{1}}, &bad},
		"both":          {&nodepb.ProofRequest{Hash: root[:], Offered: root[:]}, &bad},
		"neither":       {&nodepb.ProofRequest{}, &bad},
	} {
		if _, err := s.Answer(context.Background(), c.req); !errors.As(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecodeGossip: only a fraud that somebody signed here is passed on.
func FuzzDecodeGossip(f *testing.F) {
	x, _ := listener(f)
	known := map[string]bool{}
	for _, c := range prooftest.Frauds(prooftest.Key("liar"), prooftest.Key("lazy"), prooftest.Window) {
		f.Add(wire(f, c))
		known[string(wire(f, c))] = true
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := x.decode("author", "neighbour", b)
		switch {
		case err == nil && !known[string(b)]:
			t.Fatalf("%x is passed on", b)
		case err != nil && !errors.Is(err, gossip.ErrReject) && !errors.Is(err, gossip.ErrIgnore):
			t.Fatalf("neither rejected nor ignored: %v", err)
		}
	})
}
