package copies

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
)

// placed returns a world in which two keepers have copies.
func placed(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 4)
	w.place()
	return w
}

// place lets two keepers have copies.
func (w *world) place() {
	t := w.t
	t.Helper()
	w.succeed()
	w.step() // packs
	w.step()
	w.take("v1", 2)
	w.step()
	w.take("v2", 3)
	if k := w.step(); len(k.Copies) != 2 {
		t.Fatalf("copies: %+v", k.Copies)
	}
}

// Copies are ordered one after the other, each at a provider that has none, and not at the job's own.
func TestPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	if k := w.step(); k.Pack != nil {
		t.Fatalf("before the result: %+v", k)
	}
	w.succeed()
	if k := w.step(); k.Pack == nil || len(k.Box) == 0 || len(w.buys.subs) > 0 {
		t.Fatalf("packed: %+v, %d orders", k, len(w.buys.subs))
	}
	if need, err := w.Blobs(); err != nil || !need[w.packed()] {
		t.Errorf("the pack is needed: %v, %v", need, err)
	}
	for range 3 {
		if k := w.step(); len(k.Copies) != 1 || len(w.buys.subs) != 1 {
			t.Fatalf("while the first is placed: %+v", k)
		}
	}
	w.take("v1", 2)
	w.step()
	w.take("v2", 3)
	if k := w.step(); len(k.Copies) != 2 || len(w.buys.subs) != 2 {
		t.Fatalf("copies: %+v", k)
	}
	if need, _ := w.Blobs(); need[w.packed()] || len(need) != 1 {
		t.Errorf("with all copies, needed: %v, want the chunk list", need)
	}
	one, two := w.buys.subs[0].Spec, w.buys.subs[1].Spec
	if one.Check() != nil || one.Payment.MaxPrice != 100 || one.Timeouts.Run.Round(time.Hour) != 24*time.Hour {
		t.Errorf("the first order: %v, %+v for %v", one.Check(), one.Payment, one.Timeouts.Run)
	}
	for i, has := range []bool{slices.Contains(one.Placement.Exclude, w.keeper(1)),
		slices.Contains(two.Placement.Exclude, w.keeper(1)), slices.Contains(two.Placement.Exclude, w.keeper(2)),
		slices.Contains(two.Placement.Exclude, w.cfg.Self)} {
		if !has {
			t.Errorf("exclusion %d is missing: %v, %v", i, one.Placement.Exclude, two.Placement.Exclude)
		}
	}
	s, err := w.Show(t.Context(), jobID)
	if err != nil || s.Kept() != 2 || s.Wanted != 2 || !strings.HasPrefix(s.Key, "AGE-SECRET-KEY-1") {
		t.Errorf("shown: %+v, %v", s, err)
	}
}

// A lost copy is reported, and replaced at a provider that has none, also if the pack is only at another keeper.
func TestReplace(t *testing.T) {
	t.Parallel()
	w := placed(t)
	w.serve(3)
	w.lose()
	w.buys.set("v1", func(j *record.Job) { j.State, j.Reason = record.Failed, "its provider was lost" })
	k := w.step()
	if len(k.Copies) != 3 || k.Copies[0].Lost != "its provider was lost" {
		t.Fatalf("copies: %+v", k.Copies)
	}
	spec := w.buys.subs[2].Spec
	if !slices.Contains(spec.Placement.Exclude, w.keeper(3)) || !slices.Contains(spec.Placement.Exclude, w.keeper(2)) {
		t.Errorf("excluded: %v", spec.Placement.Exclude)
	}
	if !w.blobs.Has(w.packed()) {
		t.Error("the pack is not here for the new keeper")
	}
	s, err := w.Show(t.Context(), jobID)
	if err != nil || s.Kept() != 1 || s.Copies[0].State != record.CopyLost {
		t.Errorf("shown: %+v, %v", s, err)
	}
}

// Copies whose time is paid in full are not replaced, and the entry is closed.
func TestPastTime(t *testing.T) {
	t.Parallel()
	w := placed(t)
	k, _, err := w.read(t.Context(), jobID)
	if err != nil {
		t.Fatal(err)
	}
	k.Until = time.Now().Add(-time.Second)
	if err := w.write(t.Context(), jobID, k); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"v1", "v2"} {
		w.buys.set(id, func(j *record.Job) { j.State, j.Started = record.Succeeded, time.Now().Add(-48*time.Hour) })
	}
	if k := w.step(); k.Over == "" || len(w.buys.subs) != 2 || k.Copies[0].Lost != pastTime {
		t.Errorf("%+v, %d orders", k, len(w.buys.subs))
	}
}

// A job that fails has no copies.
func TestFailedJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.buys.set(jobID, func(j *record.Job) { j.State = record.Failed })
	if k := w.step(); k.Over == "" || k.Pack != nil {
		t.Errorf("%+v", k)
	}
	if err := w.Restore(t.Context(), jobID); err != nil { // its outputs are here
		t.Error(err)
	}
	w.lose()
	if err := w.Restore(t.Context(), jobID); !errors.Is(err, record.ErrNoCopies) {
		t.Errorf("got %v, want ErrNoCopies", err)
	}
}

// Refusals are retried ever later, and at most maxAttempts times.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.succeed()
	w.step()
	w.buys.refuse = fmt.Errorf("%w: the limit of a day", record.ErrRefused)
	var at []time.Duration
	for range maxAttempts + 10 {
		k := w.step()
		if n := len(k.Copies); n > 0 {
			at = append(at, next(k).Sub(k.Copies[n-1].At))
			if soon := w.step(); n > 1 && len(soon.Copies) != n {
				t.Fatalf("attempt %d did not wait", n)
			}
			for i := range k.Copies {
				k.Copies[i].At = k.Copies[i].At.Add(-2 * lastPause)
			}
			if err := w.write(t.Context(), jobID, k); err != nil {
				t.Fatal(err)
			}
		}
	}
	k, _, err := w.read(t.Context(), jobID)
	if err != nil || len(k.Copies) != maxAttempts || at[0] != firstPause || at[1] != 2*firstPause ||
		at[60] != lastPause {
		t.Errorf("%d attempts, %v, after %v", len(k.Copies), err, at)
	}
	if !strings.Contains(k.Copies[0].Lost, "limit of a day") {
		t.Errorf("reason: %q", k.Copies[0].Lost)
	}
}

// The volumes of a removed job end.
func TestRemovedJob(t *testing.T) {
	t.Parallel()
	w := placed(t)
	w.buys.mu.Lock()
	delete(w.buys.jobs, jobID)
	w.buys.mu.Unlock()
	if err := w.Room.step(t.Context(), jobID); err != nil || !slices.Equal(w.buys.stops, []string{"v1", "v2"}) {
		t.Errorf("stopped: %v, %v", w.buys.stops, err)
	}
	if _, _, err := w.read(t.Context(), jobID); !errors.Is(err, record.ErrNoCopies) {
		t.Errorf("the entry: %v", err)
	}
}

// The outputs come back from a keeper, and what is here is not asked for.
func TestRestore(t *testing.T) {
	t.Parallel()
	w := placed(t)
	if err := w.Restore(t.Context(), jobID); err != nil {
		t.Fatal(err)
	}
	w.serve(3)
	w.lose()
	if err := w.Restore(t.Context(), jobID); err != nil || w.output() != result {
		t.Errorf("%q, %v", w.output(), err)
	}
	if w.blobs.Has(w.packed()) {
		t.Error("the pack stays, although nothing needs it")
	}
}

// A crash before or after any write buys no copy twice, and loses none that was bought.
func TestAttackCrashWhilePlacing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	for n, crashed := 1, true; crashed; n++ {
		for _, when := range []store.When{store.Before, store.After} {
			w.fresh()
			w.succeed()
			steady, failing := w.store, store.NewCrashing(w.store)
			failing.CrashAt(n, when)
			w.store = failing
			w.restart()
			crashed = false
			for range 12 {
				if err := w.Room.step(t.Context(), jobID); errors.Is(err, store.ErrCrashed) {
					crashed, w.store = true, steady
					w.restart()
				} else if err != nil {
					t.Fatal(err)
				}
				for i, id := range []string{"v1", "v2"} {
					if j, err := w.buys.Job(id); err == nil && j.State == record.Matching {
						w.take(id, 2+i)
					}
				}
			}
			k := w.step()
			if len(w.buys.subs) != 2 || len(k.Copies) != 2 || k.Copies[0].Job != "v1" || k.Copies[1].Job != "v2" {
				t.Fatalf("write %d: %d volumes, copies: %+v", n, len(w.buys.subs), k.Copies)
			}
			for _, sub := range w.buys.subs { // both have the pack that the journal has the key of
				if sub.Spec.Inputs[0].Source != job.CIDScheme+k.Pack.CID {
					t.Errorf("write %d: %v, want %s", n, sub.Spec.Inputs, k.Pack.CID)
				}
			}
			j := w.buys.jobs[jobID]
			key, err := w.cfg.Boxes.Open(useKey, jobID, k.Box)
			if err != nil {
				t.Fatal(err)
			}
			if err := (archiver{w.Room}).unpack(t.Context(), k.Pack.CID, string(key), outputs(j)); err != nil {
				t.Errorf("write %d: %v", n, err)
			}
		}
	}
}

// Keepers that send other bytes, too many, too few or none are left out, whatever was sent before by another one. Copies
// with other bytes are lost; broken streams prove nothing.
func TestAttackKeepers(t *testing.T) {
	t.Parallel()
	lost := map[string]bool{"other bytes": true, "endless": true}
	for name, send := range map[string]func(s network.Stream, head []byte, size uint64){
		"other bytes": func(s network.Stream, head []byte, size uint64) {
			_, _ = s.Write(append(head, make([]byte, size)...))
		},
		"cut false bytes": func(s network.Stream, head []byte, size uint64) {
			_, _ = s.Write(append(head, make([]byte, size/2)...))
		},
		"endless": func(s network.Stream, head []byte, _ uint64) {
			for _, err := s.Write(head); err == nil; _, err = s.Write(make([]byte, 64<<10)) {
			}
		},
		"huge": func(s network.Stream, head []byte, _ uint64) {
			binary.BigEndian.PutUint64(head[len(head)-8:], 1<<60)
			for _, err := s.Write(head); err == nil; _, err = s.Write(make([]byte, 64<<10)) {
			}
		},
		"nothing": func(network.Stream, []byte, uint64) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := placed(t)
			w.serve(3)
			w.lose()
			k, _, err := w.read(t.Context(), jobID)
			if err != nil {
				t.Fatal(err)
			}
			size := uint64(k.Pack.Size)
			body := binary.AppendUvarint([]byte{0x08}, size)
			head := append(binary.BigEndian.AppendUint32([]byte{0, 100}, uint32(len(body))), body...)
			head = binary.BigEndian.AppendUint64(head, size)
			w.hosts[2].SetStreamHandler("/starling/blob/1/test", func(s network.Stream) {
				defer s.Close()
				_, _ = s.Read(make([]byte, 256))
				send(s, slices.Clone(head), size)
			})
			if err := w.Restore(t.Context(), jobID); err != nil || w.output() != result {
				t.Errorf("%q, %v", w.output(), err)
			}
			if k, _, err = w.read(t.Context(), jobID); err != nil || (k.Copies[0].Lost == lostFalse) != lost[name] ||
				k.Copies[0].Stop != lost[name] || k.Copies[1].Lost != "" {
				t.Errorf("afterwards: %+v, %v", k.Copies, err)
			}
			w.hosts[3].RemoveStreamHandler("/starling/blob/1/test")
			w.lose()
			if err := w.Restore(t.Context(), jobID); !errors.Is(err, record.ErrNoKeeper) || w.output() != "" {
				t.Errorf("without an honest one: %q, %v, want ErrNoKeeper", w.output(), err)
			}
		})
	}
}

// A provider reads nothing of the outputs in its pack, nor their digests.
func TestAttackReadingKeeper(t *testing.T) {
	t.Parallel()
	w := placed(t)
	f, err := w.blobs.Open(w.packed())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var text strings.Builder
	if _, err := f.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	j, err := w.buys.Job(jobID)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{result, j.Ranks[0].Outputs[0].CID, "/out"} {
		if strings.Contains(text.String(), secret) {
			t.Errorf("the pack has %q", secret)
		}
	}
	for _, sub := range w.buys.subs {
		if strings.Contains(fmt.Sprint(sub.Spec), j.Ranks[0].Outputs[0].CID) {
			t.Errorf("the volume's job names the output: %+v", sub.Spec)
		}
	}
}
