package shelf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

var quiet = slog.New(slog.DiscardHandler)

// load returns the state in a journal.
func load(t rapid.TB, st store.Store) State {
	t.Helper()
	s, err := Open(context.Background(), st, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return s.State()
}

// world is a machine without a runner, and its journal.
type world struct {
	State
	disk store.Store
}

func newWorld(t rapid.TB) *world {
	disk := store.NewMemory()
	return &world{load(t, disk), disk}
}

// step takes the machine one event further, as a turn of its runner does.
func (w *world) step(ev event) error {
	next, effects, err := w.Step(machine.Now{}, ev)
	if err != nil {
		return err
	}
	var b journal.Batch
	shell{w.disk}.Record(&b, name, w.State, next, effects)
	w.State = next
	return b.Commit(context.Background(), w.disk)
}

// made is a real record.
var made = sync.OnceValue(func() audit.Record {
	r, err := audittest.NewUnit("unit").Make()
	if err != nil {
		panic(err)
	}
	return r
})

// passed is a result with a record of its own.
func passed(id market.UnitID, w audit.Window) Audited {
	r := made()
	r.Answer.Unit, r.Answer.Window = id, w
	return Audited{
		Unit: id, Class: "cpu", Window: w, At: time.Unix(int64(w), 0).UTC(), Record: &r,
		Report: audit.Report{Result: audit.Passed},
	}
}

// failed is a result without record.
func failed(id market.UnitID, w audit.Window, x audit.Result) Audited {
	a := passed(id, w)
	a.Record, a.Failed, a.Report.Result = nil, "late", x
	return a
}

func batch(s State, id byte) Batch {
	return Batch{Records: s.Draw(), Tx: chain.Prepared{ID: chain.TxID(fmt.Sprint("tx", id)), Raw: []byte{id}}}
}

// durable is the part of a state that a restart does not lose.
func durable(s State) State {
	out := State{units: map[market.UnitID]unit{}, anchored: s.anchored, batch: s.batch}
	for id, u := range s.units {
		u.former = form{}
		out.units[id] = u
	}
	return out
}

// same returns the state in the journal, which must be the machine's.
func same(t *rapid.T, w *world) State {
	t.Helper()
	got := load(t, w.disk)
	if a, b := durable(got), durable(w.State); !reflect.DeepEqual(a, b) {
		t.Fatalf("the journal has audits %v, batch %v, anchors %d; want %v, %v, %d", a.All(), a.batch, len(a.anchored),
			b.All(), b.batch, len(b.anchored))
	}
	return got
}

// Safety: the journal has every step, a window counts once, and a record is in one final anchor at most. A state never
// changes once it is left. Liveness: each newest record that is not under way is drawn.
func TestProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		counted := map[string]bool{}
		var final []sign.Hash
		var tx byte
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			before, was := w.State, fmt.Sprint(w.All(), w.Draw(), w.Counts())
			var err error
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0, 1:
				for range rapid.IntRange(1, 3).Draw(t, "units") {
					id := market.UnitID{rapid.Byte().Draw(t, "unit") % 3}
					at := audit.Window(rapid.IntRange(1, 40).Draw(t, "window"))
					a := passed(id, at)
					if x := audit.Result(rapid.IntRange(0, 3).Draw(t, "result")); x != audit.Passed {
						a = failed(id, at, x)
					}
					if u := w.units[id]; !u.known || u.window < at {
						counted[fmt.Sprint(id, at)] = true
					}
					err = errors.Join(err, w.step(audited{a}))
				}
			case 2:
				if b := batch(w.State, tx); len(b.Records) > 0 {
					tx++
					err = w.step(signed(b))
				}
			case 3:
				if b := w.UnderWay(); b.Tx.ID != "" {
					final = append(final, b.Records...)
					if err = w.step(landed{b.Tx.ID, 7}); w.step(landed{b.Tx.ID, 7}) == nil {
						t.Fatal("a batch lands twice")
					}
				}
			case 4:
				if b := w.UnderWay(); b.Tx.ID != "" {
					final = append(final, b.Records...)
					err = w.step(landed{})
				}
			case 5: // the peer is started again
				w.State, counted = same(t, w), map[string]bool{}
			}
			if err != nil {
				t.Fatal(err)
			}
			if now := fmt.Sprint(before.All(), before.Draw(), before.Counts()); now != was {
				t.Fatalf("a state changed from %s to %s", was, now)
			}
		}
		same(t, w)
		var n uint64
		for _, c := range w.Counts() {
			n += c
		}
		if n != uint64(len(counted)) {
			t.Fatalf("%d audits count, want %d", n, len(counted))
		}
		for id, u := range w.units {
			if len(u.past) > maxPast {
				t.Fatalf("unit %s: %d audits, at most %d are kept", id, len(u.past), maxPast)
			}
		}
		once := map[sign.Hash]bool{}
		for _, r := range final {
			if once[r] {
				t.Fatalf("record %s is in two anchors", r)
			}
			once[r] = true
		}
		for _, r := range w.Draw() {
			if once[r] {
				t.Fatalf("record %s is drawn again", r)
			}
		}
	})
}

// A record can be requested until two newer ones have come, and its anchor is kept as long.
func TestRecordsAndAnchors(t *testing.T) {
	t.Parallel()
	w, id := newWorld(t), market.UnitID{1}
	var hashes []sign.Hash
	for at := range audit.Window(maxPast + 2) {
		a := passed(id, at+1)
		hashes = append(hashes, a.Record.Hash())
		if err := w.step(audited{a}); err != nil {
			t.Fatal(err)
		}
		for _, ev := range []event{signed(batch(w.State, byte(at))), landed{chain.TxID(fmt.Sprint("tx", at)), 9}} {
			if err := w.step(ev); err != nil {
				t.Fatal(err)
			}
		}
		for i, h := range hashes {
			_, err := w.Record(h)
			if newest := i+2 >= len(hashes); (err == nil) != newest || err != nil && !errors.Is(err, proof.ErrUnknown) {
				t.Errorf("record %d of %d: %v", i+1, len(hashes), err)
			}
			if _, ok := w.Anchored(h); ok != (i+maxPast >= len(hashes)) {
				t.Errorf("record %d of %d: anchored %t", i+1, len(hashes), ok)
			}
		}
	}
	if _, hash, ok := w.Newest(id); !ok || hash != hashes[len(hashes)-1] {
		t.Errorf("newest: %s, %t", hash, ok)
	}
}

// Batches that must not be sent are refused, and so are transactions that are not under way.
func TestBatchRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := passed(market.UnitID{1}, 1)
	if err := w.step(audited{a}); err != nil {
		t.Fatal(err)
	}
	b := batch(w.State, 1)
	for text, ev := range map[string]event{
		"unsigned": signed{Records: b.Records}, "empty": signed{Tx: b.Tx}, "nothing under way": landed{b.Tx.ID, 1},
		"nothing to forget": landed{},
	} {
		if err := w.step(ev); !errors.Is(err, ErrBatch) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, ev := range []event{signed(b), signed(batch(w.State, 2))} { // the first transaction can never land
		if err := w.step(ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.step(landed{b.Tx.ID, 1}); !errors.Is(err, ErrBatch) {
		t.Errorf("a replaced transaction lands: %v", err)
	}
	if err := w.step(landed{}); err != nil { // no endpoint remembers
		t.Fatal(err)
	}
	if err := w.step(signed(b)); !errors.Is(err, ErrBatch) {
		t.Errorf("a record that may have been anchored is signed again: %v", err)
	}
	if _, ok := w.Anchored(a.Record.Hash()); ok || len(w.Draw()) != 0 {
		t.Error("a record with an unknown anchor counts as anchored, or is drawn again")
	}
}

// slow is a journal with writes that wait.
type slow struct {
	store.Store
	begun, open chan struct{}
}

func (s slow) Write(ctx context.Context, puts ...store.Put) error {
	s.begun <- struct{}{}
	<-s.open
	return s.Store.Write(ctx, puts...)
}

// Readers of a shelf do not wait for the journal, and the results that come during a write share the next.
func TestReadWhileWriting(t *testing.T) {
	t.Parallel()
	disk := slow{store.NewMemory(), make(chan struct{}), make(chan struct{})}
	s, err := Open(t.Context(), disk, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, s.Run)
	written := make(chan error, 3)
	keep := func(n byte) { written <- s.Keep(t.Context(), failed(market.UnitID{n}, 7, audit.Absent)) }
	go keep(1)
	<-disk.begun
	go keep(2)
	go keep(3)
	if now := s.State(); len(now.Counts()) != 0 || len(now.All()) != 0 {
		t.Error("an audit counts before it is journalled")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Keep(ended, failed(market.UnitID{4}, 7, audit.Absent)); !errors.Is(err, context.Canceled) {
		t.Errorf("a writer with an ended context: %v", err)
	}
	close(disk.open)
	go func() {
		for range disk.begun {
		}
	}()
	for range 3 {
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
	if n := len(s.State().All()); n != 3 {
		t.Errorf("%d audits, want 3", n)
	}
}

// Records of the journal that are not of this form end the start of the peer.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	unit := market.UnitID{1}.String()
	for kind, key := range map[string]string{
		"audit": unit, "auditlist": unit, "auditpast": unit + "/1", "auditanchor": sign.Hash{1}.String(),
		"auditbatch": batchKey,
	} {
		for _, value := range []string{`"AAAA"`, `{`} {
			st := store.NewMemory()
			if err := st.Write(t.Context(), store.Put{Kind: kind, Key: key, Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(t.Context(), st, quiet); err == nil {
				t.Errorf("%s: %s is no error", kind, value)
			}
		}
	}
}

// A real record is served with its anchor.
func TestProof(t *testing.T) {
	t.Parallel()
	r := made()
	s, err := Open(t.Context(), store.NewMemory(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, s.Run)
	a := passed(r.Answer.Unit, 5)
	a.Record = &r
	if err := s.Keep(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	tx := chain.TxID(sign.Signature{7}.String())
	if err := s.Sign(t.Context(), Batch{Records: s.State().Draw(), Tx: chain.Prepared{ID: tx}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Land(t.Context(), tx, 100); err != nil {
		t.Fatal(err)
	}
	p, err := s.Proof(t.Context(), r.Hash())
	if err != nil {
		t.Fatal(err)
	}
	if in, err := proof.ReadAnchor(p.Anchor, r.Hash()); err != nil || in.Tx != tx || in.Slot != 100 {
		t.Errorf("anchor %+v, %v", in, err)
	}
	if e := s.Entries(); len(e) != 1 || !e[0].Own {
		t.Errorf("entries %+v", e)
	}
}
