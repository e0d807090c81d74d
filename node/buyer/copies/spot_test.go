package copies

import (
	"crypto/rand"
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/p2p/blob"
)

// patient is the time of a keeper that is expected to answer.
const patient = time.Minute

// replaced is the step after the loss of the first copy: its volume is stopped, and another one is ordered.
func (w *world) replaced(reason string) {
	w.t.Helper()
	k := w.step()
	if k.Copies[0].Lost != reason || k.Copies[0].Stop || len(k.Copies) != 3 || k.Copies[1].Lost != "" {
		w.t.Errorf("copies: %+v", k.Copies)
	}
	if !slices.Equal(w.buys.stops, []string{"v1"}) || len(w.buys.subs) != 3 {
		w.t.Errorf("stopped: %v, %d orders", w.buys.stops, len(w.buys.subs))
	}
	s, err := w.Show(w.t.Context(), jobID)
	if err != nil || s.Copies[0].State != record.CopyLost || s.Copies[0].Reason != reason || s.Kept() != 1 {
		w.t.Errorf("shown: %+v, %v", s, err)
	}
}

// silent checks a keeper that sends no chunk: its copy is lost after some failures over some time, not before.
func (w *world) silent(least time.Duration) {
	t := w.t
	t.Helper()
	for n := uint32(1); n < spotFailures; n++ {
		if c := w.check(0, least); c.Lost != "" || c.Spot.Failed != n || c.Spot.Since.IsZero() {
			t.Fatalf("after %d failures: %+v", n, c)
		}
	}
	if c := w.check(0, least); c.Lost != "" {
		t.Fatalf("after many failures in a short time: %+v", c)
	}
	w.change(func(k *record.Kept) { k.Copies[0].Spot.Since = time.Now().Add(-spotPatience) })
	if c := w.check(0, least); c.Lost != lostSilent {
		t.Fatalf("in the end: %+v", c)
	}
	w.replaced(lostSilent)
}

// Copies are checked at random times, and honest keepers pass. A keeper that fails for a while passes again.
func TestSpots(t *testing.T) {
	t.Parallel()
	w := placed(t)
	_, at := w.serve(2)
	if err := (spots{w.Room, patient}).round(t.Context()); err != nil {
		t.Fatal(err)
	}
	k, _, err := w.read(t.Context(), jobID)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range k.Copies {
		if d := time.Until(c.Spot.Next); d < spotLeast-time.Minute || d > spotMost || !c.Spot.Passed.IsZero() {
			t.Errorf("first check in %v: %+v", d, c.Spot)
		}
	}
	c := w.check(0, patient)
	if c.Lost != "" || c.Spot.Passed.IsZero() || time.Until(c.Spot.Next) < spotLeast-time.Minute {
		t.Errorf("an honest keeper: %+v", c)
	}
	before := k.Copies[1].Spot.Passed
	if k = w.step(); !k.Copies[1].Spot.Passed.Equal(before) || k.Copies[1].Spot.Failed > 0 {
		t.Errorf("a check that was not due: %+v", k.Copies[1])
	}
	if err := at.Remove(w.packed()); err != nil {
		t.Fatal(err)
	}
	if c := w.check(0, patient); c.Spot.Failed != 1 || !c.Spot.Passed.IsZero() && c.Lost != "" {
		t.Errorf("without the file: %+v", c)
	}
	f, err := w.blobs.Open(w.packed())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := at.Put(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if c := w.check(0, patient); c.Spot.Failed != 0 || !c.Spot.Since.IsZero() || c.Lost != "" {
		t.Errorf("with it again: %+v", c)
	}
	s, err := w.Show(t.Context(), jobID)
	if err != nil || s.Copies[0].Checked.IsZero() || !s.Copies[1].Checked.IsZero() {
		t.Errorf("shown: %+v, %v", s, err)
	}
}

// The time of the next check is written before a request, so that a crash makes no more checks.
func TestSpotsBounded(t *testing.T) {
	t.Parallel()
	w := placed(t)
	w.change(func(k *record.Kept) { k.Copies[0].Spot.Next = time.Now().Add(-time.Second) })
	for n := range 3 {
		_, due, err := (spots{w.Room, patient}).due(t.Context(), jobID) // and a crash after it
		if err != nil || len(due) != map[int]int{0: 1}[n] {
			t.Errorf("restart %d: %d checks, %v", n, len(due), err)
		}
		w.restart()
	}
	var sum time.Duration
	const n = 10000
	for range n {
		d := drawn()
		if d < spotLeast || d > spotMost {
			t.Fatalf("a check after %v", d)
		}
		sum += d
	}
	if mean := sum / n; mean < 5*time.Hour || mean > 7*time.Hour {
		t.Errorf("a check every %v", mean)
	}
}

// A peer without any connection, or without the chunk list, finds no keeper guilty.
func TestSpotsOffline(t *testing.T) {
	t.Parallel()
	w := placed(t)
	if err := w.hosts[0].Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if c := w.check(0, patient); c.Spot.Failed > 0 || c.Lost != "" {
			t.Errorf("alone: %+v", c)
		}
	}
	w.lose()
	for range 3 {
		if c := w.check(0, patient); c.Spot.Failed > 0 || c.Lost != "" {
			t.Errorf("without a list: %+v", c)
		}
	}
}

// A keeper that dropped the file, and keeps its lease, is found and paid no longer.
func TestAttackKeeperDropsFile(t *testing.T) {
	t.Parallel()
	w := placed(t)
	_, at := w.serve(2)
	if err := at.Remove(w.packed()); err != nil {
		t.Fatal(err)
	}
	w.silent(patient)
}

// All keepers are silent, as they are for a peer that is cut off. Without the pack here, none is given up for a day,
// until another one passes a check.
func TestSpotsOfLastCopies(t *testing.T) {
	t.Parallel()
	w := placed(t)
	if err := w.blobs.Remove(w.packed()); err != nil {
		t.Fatal(err)
	}
	failing := func(since time.Duration) {
		w.change(func(k *record.Kept) {
			for i := range k.Copies {
				k.Copies[i].Spot.Failed, k.Copies[i].Spot.Since = spotFailures, time.Now().Add(-since)
			}
		})
	}
	failing(lastPatience - time.Hour)
	for i := range 2 {
		if c := w.check(i, patient); c.Lost != "" || c.Spot.Failed != spotFailures+1 {
			t.Errorf("copy %d: %+v", i, c)
		}
	}
	w.change(func(k *record.Kept) { k.Copies[1].Spot.Passed = time.Now() })
	if c := w.check(0, patient); c.Lost != lostSilent {
		t.Errorf("beside one that passes: %+v", c)
	}
	failing(lastPatience)
	if c := w.check(1, patient); c.Lost != lostSilent {
		t.Errorf("after a day: %+v", c)
	}
}

// A keeper that dropped half of the file passes half of the checks, and is found by the first other one.
func TestAttackKeeperDropsHalf(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(f *os.File, size int64) error{
		"cut": func(f *os.File, size int64) error { return f.Truncate(size / 2) },
		"hole": func(f *os.File, size int64) error {
			_, err := f.WriteAt(make([]byte, size/2), size-size/2)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4)
			w.text = rand.Text() + string(make([]byte, 7<<20))
			w.fresh()
			w.place()
			dir, _ := w.serve(2)
			w.spoil(dir, drop)
			for n := 0; ; n++ {
				c := w.check(0, patient)
				if c.Lost == lostFalse {
					break
				}
				if n == 100 || c.Lost != "" || c.Spot.Failed > 0 {
					t.Fatalf("after %d checks: %+v", n, c)
				}
			}
			w.replaced(lostFalse)
		})
	}
}

// spoil changes the pack in a store.
func (w *world) spoil(dir string, drop func(f *os.File, size int64) error) {
	w.t.Helper()
	name, done := w.packed().String(), false
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != name || filepath.Base(filepath.Dir(path)) == "lists" {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() < 1<<20 {
			return err
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		done = true
		return drop(f, info.Size())
	})
	if err != nil || !done {
		w.t.Fatalf("spoiling the pack: %v, %v", done, err)
	}
}

// A keeper that answers checks with other bytes, another size, or an endless body loses its copy at once. One that
// answers too slowly, too little or not at all loses it after a while.
func TestAttackKeeperAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		send  func(s network.Stream, size uint64, end <-chan struct{})
		least time.Duration
		lost  string
	}{
		"wrong bytes": {func(s network.Stream, size uint64, _ <-chan struct{}) {
			_, _ = s.Write(append(head(size, size), make([]byte, size)...))
		}, patient, lostFalse},
		"another size": {func(s network.Stream, size uint64, _ <-chan struct{}) {
			_, _ = s.Write(append(head(size+1, size), make([]byte, size)...))
		}, patient, lostFalse},
		"huge": {func(s network.Stream, size uint64, _ <-chan struct{}) {
			for _, err := s.Write(head(size, 1<<61)); err == nil; _, err = s.Write(make([]byte, 64<<10)) {
			}
		}, patient, lostFalse},
		"endless": {func(s network.Stream, size uint64, _ <-chan struct{}) {
			for _, err := s.Write(head(size, size)); err == nil; _, err = s.Write(make([]byte, 64<<10)) {
			}
		}, patient, lostFalse},
		"slow": {func(s network.Stream, size uint64, end <-chan struct{}) {
			_, _ = s.Write(append(head(size, size), 0))
			<-end
		}, 200 * time.Millisecond, lostSilent},
		"no answer": {func(_ network.Stream, _ uint64, end <-chan struct{}) {
			<-end
		}, 200 * time.Millisecond, lostSilent},
		"cut": {func(s network.Stream, size uint64, _ <-chan struct{}) {
			_, _ = s.Write(append(head(size, size), 0))
		}, patient, lostSilent},
		"refused": {func(s network.Stream, _ uint64, _ <-chan struct{}) { _ = s.Reset() }, patient, lostSilent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := placed(t)
			k, _, err := w.read(t.Context(), jobID)
			if err != nil {
				t.Fatal(err)
			}
			end := make(chan struct{})
			defer close(end)
			w.hosts[2].SetStreamHandler("/starling/blob/1/test", func(s network.Stream) {
				defer s.Close()
				_, _ = s.Read(make([]byte, 256))
				c.send(s, uint64(k.Pack.Size), end)
			})
			if c.lost == lostSilent {
				w.silent(c.least)
				return
			}
			if got := w.check(0, c.least); got.Lost != c.lost || !got.Stop {
				t.Fatalf("%+v", got)
			}
			w.replaced(c.lost)
		})
	}
}

// head is the begin of a keeper's answer: the size of the blob, and that of the body.
func head(blob, body uint64) []byte {
	msg := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), blob)
	out := append(binary.BigEndian.AppendUint32([]byte{0, 100}, uint32(len(msg))), msg...)
	return binary.BigEndian.AppendUint64(out, body)
}

// A crash at any write between a failed check and the end of the volume leaves no volume that is paid for nothing.
func TestAttackCrashAfterCheck(t *testing.T) {
	t.Parallel()
	w := placed(t)
	w.change(func(k *record.Kept) { k.Copies[0].Lost, k.Copies[0].Stop = lostFalse, true })
	w.restart()
	w.replaced(lostFalse)
	w.buys.mu.Lock()
	delete(w.buys.jobs, jobID)
	w.buys.mu.Unlock()
	w.restart()
	if err := w.Room.step(t.Context(), jobID); err != nil || slices.Contains(w.buys.stops[1:], "v1") {
		t.Errorf("stopped: %v, %v", w.buys.stops, err)
	}
	if need, err := w.Blobs(); err != nil || len(need) > 0 {
		t.Errorf("needed by a removed job: %v, %v", need, err)
	}
}

// A check that this peer could not make changes nothing.
func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name   string
		result error
		lost   bool
		failed uint32
	}{
		{"right", nil, false, 0}, {"false", errFalse, true, 7}, {"alone", blob.ErrAlone, false, 7},
		{"own", errOwn, false, 7}, {"silent", blob.ErrNotFound, true, 8},
	} {
		of := record.Copy{Spot: record.Spot{Failed: spotFailures - 1, Since: now.Add(-spotPatience)}}
		judge(&of, c.result, spotPatience, now)
		if (of.Lost != "") != c.lost || of.Stop != c.lost || of.Spot.Failed != c.failed {
			t.Errorf("%s: %+v", c.name, of)
		}
	}
}
