package keep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/prooftest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify/audit"
)

// opened is a store with the standings of some peers; all others are strangers.
func opened(t testing.TB, s journal.Store, standings map[sign.Key]admit.Standing) *Store {
	t.Helper()
	k, err := Open(t.Context(), Config{
		Genesis: prooftest.Genesis(), Journal: s, Log: p2ptest.Quiet(), Kept: func(proof.Content) {},
		Standing: func(k sign.Key) admit.Standing { return standings[k] },
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pass is a false pass that a member of a committee signed, in a window.
func pass(offender string, w audit.Window) proof.Fraud {
	return prooftest.Frauds(prooftest.Key("prover"), prooftest.Key(offender), w)[2]
}

// twice is two answers that a peer signed in a window.
func twice(offender string, w audit.Window) proof.Fraud {
	return prooftest.Frauds(prooftest.Key(offender), prooftest.Key("member"), w)[1]
}

func keepAll(t testing.TB, k *Store, own bool, cs ...proof.Content) (kept int) {
	t.Helper()
	for _, c := range cs {
		fresh, err := k.Keep(t.Context(), c, own)
		if err != nil && !errors.Is(err, proof.ErrFull) {
			t.Fatal(err)
		}
		if fresh {
			kept++
		}
	}
	return kept
}

// kinds is a proof of each kind that is kept.
func kinds() []proof.Content {
	a, b, p := prooftest.Key("a"), prooftest.Key("b"), prooftest.Key("p")
	return []proof.Content{prooftest.DoubleSale(p, a, b, 0), prooftest.Frauds(p, a, 3)[0], prooftest.Dispute(0, 1, 2)}
}

// A proof is kept once, over restarts, with its progress, and only if it holds; kinds of other rooms are refused.
func TestKeep(t *testing.T) {
	t.Parallel()
	disk := store.NewMemory()
	k := opened(t, disk, nil)
	for _, c := range kinds() {
		for i := range 2 {
			if fresh, err := k.Keep(t.Context(), c, true); err != nil || fresh != (i == 0) {
				t.Fatalf("%s: fresh %t, %v", c.Kind(), fresh, err)
			}
		}
	}
	for name, c := range map[string]proof.Content{
		"an audit": prooftest.Audit(), "a history": prooftest.History(), "receipts": prooftest.Receipts(),
	} {
		if _, err := k.Keep(t.Context(), c, true); !errors.Is(err, proof.ErrKind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := prooftest.Dispute(5, 1, 2)
	bad.Results[0].Receipt.ProviderSig[0] ^= 1
	if _, err := k.Keep(t.Context(), bad, true); err == nil {
		t.Error("a dispute without its provider's signature is kept")
	}
	h := kinds()[1].Hash()
	if err := k.Progress(t.Context(), h, proof.StateTaken, true, &proof.Outcome{Taken: 7}); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]*Store{"here": k, "after a restart": opened(t, disk, nil)} {
		all := k.List("")
		if len(all) != 3 || len(k.List(proof.KindDispute)) != 1 {
			t.Fatalf("%s %d are kept", name, len(all))
		}
		for _, c := range kinds() {
			p, e, err := k.Get(t.Context(), c.Hash())
			if err != nil || e.Kind != c.Kind() || !e.Own || e.Proves != c.Summary() {
				t.Fatalf("%s: %s: %+v, %v", name, c.Kind(), e, err)
			}
			if again, err := p.Open(); err != nil || again.Hash() != c.Hash() {
				t.Errorf("%s: %s is another proof: %v", name, c.Kind(), err)
			}
		}
		x, err := k.Case(t.Context(), h)
		if err != nil || x.Entry.State != proof.StateTaken || x.Entry.Outcome.Taken != 7 || !x.Open {
			t.Errorf("%s: %+v, %v", name, x, err)
		}
		if got := k.Pending(proof.KindFraud); !slices.Equal(got, []sign.Hash{h}) {
			t.Errorf("%s: pending are %v", name, got)
		}
	}
	if _, _, err := k.Get(t.Context(), sign.Hash{1}); !errors.Is(err, proof.ErrUnknown) {
		t.Error(err)
	}
	if err := k.Progress(t.Context(), sign.Hash{1}, proof.StateTaken, false, nil); !errors.Is(err, proof.ErrUnknown) {
		t.Error(err)
	}
	if !k.Explain(h, "later") || k.Explain(h, "later") || k.Explain(sign.Hash{1}, "x") {
		t.Error("a reason is news once")
	}
}

// A crash before or after any write leaves each proof kept whole or not at all.
func TestKeepOverCrashes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 4; n++ {
		for _, when := range []store.When{store.Before, store.After} {
			inner := store.NewMemory()
			disk := store.NewCrashing(inner)
			disk.CrashAt(n, when)
			k := opened(t, disk, nil)
			done := 0
			for _, c := range kinds() {
				if _, err := k.Keep(t.Context(), c, true); err == nil {
					done++
				}
			}
			_ = k.Progress(t.Context(), kinds()[1].Hash(), proof.StateSubmitting, true, nil)
			again := opened(t, inner, nil)
			if got := len(again.List("")); got < done || got > done+1 {
				t.Errorf("write %d, %v: %d are kept, %d were reported", n, when, got, done)
			}
		}
	}
}

// A thousand free keys fill no more than the share of strangers, and displace nothing: not the proofs that this peer
// found, and not those about peers that it knows.
func TestAttackFreeKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		known := map[sign.Key]admit.Standing{}
		var about, own []proof.Content
		for i := range 50 {
			name := fmt.Sprint("known ", i)
			known[prooftest.Key(name).Key()] = admit.Counterparty
			about = append(about, twice(name, 3))
			own = append(own, pass(fmt.Sprint("found ", i), 3))
		}
		k := opened(t, store.NewMemory(), known)
		keepAll(t, k, true, own...)
		keepAll(t, k, false, about[:25]...)
		has := func(cs []proof.Content) {
			t.Helper()
			for _, c := range cs {
				if !k.Has(c.Hash()) {
					t.Fatalf("%s was displaced", c.Summary())
				}
			}
		}
		var free []proof.Content
		for i := range 1000 {
			free = append(free, twice(fmt.Sprint("free ", i), 3))
		}
		share := admit.Stranger.Share(limits[proof.KindFraud].others)
		if kept := keepAll(t, k, false, free...); kept != share-25 {
			t.Errorf("%d proofs about strangers are kept beside 25 others, their share is %d", kept, share)
		}
		has(own)
		has(about[:25])
		if k.Room(free[999], false) {
			t.Error("there is room for one more")
		}
		if kept := keepAll(t, k, false, about[25:]...); kept != 25 { // now they still find room
			t.Errorf("%d of 25 proofs about known peers are kept", kept)
		}
		if kept := keepAll(t, k, true, pass("late", 3)); kept != 1 {
			t.Error("a proof that this peer found is not kept")
		}
		time.Sleep(fresh) // old ones about strangers make room, one for one
		if kept := keepAll(t, k, false, free[900:]...); kept == 0 {
			t.Error("the first strangers' proofs stay for ever")
		}
		has(own)
		has(about)
	})
}

// Free keys that lie to a judge have it find as much as they like. It displaces neither the frauds of peers with a
// stake, whoever found them, nor what this peer found of members.
func TestAttackFreeLies(t *testing.T) {
	t.Parallel()
	known := map[sign.Key]admit.Standing{}
	var kept []proof.Content
	for i := range 20 {
		name := fmt.Sprint("staked ", i)
		known[prooftest.Key(name).Key()] = admit.Counterparty
		kept = append(kept, twice(name, 3))
	}
	k := opened(t, store.NewMemory(), known)
	if n := keepAll(t, k, true, kept[:10]...) + keepAll(t, k, false, kept[10:]...); n != 20 {
		t.Fatalf("%d of 20 are kept", n)
	}
	member := pass("lazy", 3)
	keepAll(t, k, true, member)
	share := admit.Stranger.Share(limits[proof.KindFraud].others)
	var free []proof.Content
	for i := range share + 100 {
		free = append(free, twice(fmt.Sprint("free ", i), 3))
	}
	if n := keepAll(t, k, true, free...); n != share-20 {
		t.Errorf("%d lies of free keys are kept beside 20 others, their share is %d", n, share)
	}
	for _, c := range append(kept, member) {
		if !k.Has(c.Hash()) {
			t.Errorf("%s was displaced", c.Summary())
		}
	}
	var again []proof.Content
	for w := range audit.Window(9) {
		again = append(again, twice("staked 0", w+10))
	}
	if n := keepAll(t, k, true, again...); n != limits[proof.KindFraud].subject-1 {
		t.Errorf("%d more frauds of one offender are kept", n)
	}
	if n := keepAll(t, k, false, twice("staked 1", 4)); n != 1 {
		t.Error("there is no room for a fraud of a peer with a stake")
	}
}

// One peer that proves against itself without end has a few places, and its victims' own proofs find room beside them.
func TestAttackOneSubject(t *testing.T) {
	t.Parallel()
	p, a, b := prooftest.Key("p"), prooftest.Key("a"), prooftest.Key("b")
	k := opened(t, store.NewMemory(), map[sign.Key]admit.Standing{p.Key(): admit.Counterparty})
	var sales, frauds []proof.Content
	for n := range 40 {
		sales = append(sales, prooftest.DoubleSale(p, a, b, n))
		frauds = append(frauds, twice("p", audit.Window(n)))
	}
	if n, m := keepAll(t, k, false, sales...), keepAll(t, k, false, frauds...); n != 8 || m != 4 {
		t.Errorf("%d double sales and %d frauds are kept, want 8 and 4", n, m)
	}
	if n := keepAll(t, k, true, sales[39]); n != 1 {
		t.Error("the victim's proof is not kept")
	}
	if k.Room(sales[38], false) || !k.Room(sales[38], true) {
		t.Error("the room is not that of Keep")
	}
}

// This peer's own disputes roll, settled frauds go first, and a fraud that is being submitted stays.
func TestRoom(t *testing.T) {
	t.Parallel()
	k := opened(t, store.NewMemory(), nil)
	most := limits[proof.KindDispute].all
	for n := range most + 3 {
		if kept := keepAll(t, k, true, prooftest.Dispute(n, 1, 2)); kept != 1 {
			t.Fatalf("dispute %d is not kept", n)
		}
	}
	if got := k.List(proof.KindDispute); len(got) != most || k.Has(prooftest.Dispute(0, 1, 2).Hash()) {
		t.Errorf("%d disputes are kept", len(got))
	}
	share := admit.Stranger.Share(limits[proof.KindFraud].others)
	var all []proof.Content
	for i := range share {
		all = append(all, twice(fmt.Sprint(i), 3))
	}
	keepAll(t, k, false, all...)
	settled, begun := all[7].Hash(), all[8].Hash()
	err := errors.Join(k.Progress(t.Context(), settled, proof.StateTaken, false, nil),
		k.Progress(t.Context(), begun, proof.StateSubmitting, true, nil))
	if err != nil {
		t.Fatal(err)
	}
	if keepAll(t, k, false, twice("next", 3)) != 1 || k.Has(settled) || !k.Has(begun) {
		t.Error("the settled fraud does not make room")
	}
	if keepAll(t, k, false, twice("after", 3)) != 0 {
		t.Error("another one makes room")
	}
}

// Two that keep the same proof at a time keep it once, and a caller that leaves is not waited for.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	k := opened(t, store.NewMemory(), nil)
	c := twice("p", 3)
	done := make(chan bool)
	for range 8 {
		go func() {
			fresh, err := k.Keep(context.Background(), c, true)
			done <- fresh && err == nil
		}()
	}
	n := 0
	for range 8 {
		if <-done {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of 8 are told that it is new", n)
	}
	k.writing <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Keep(ctx, twice("q", 3), true); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
