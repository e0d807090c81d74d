package copies

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/files"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// export returns the record of the copies as it is read from an exported file.
func (w *world) export() (s record.ShownCopies) {
	w.t.Helper()
	shown, err := w.Show(w.t.Context(), jobID)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := json.Marshal(shown)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// forgetAll begins anew on the peer's key alone: its journal, jobs and files are lost.
func (w *world) forgetAll() {
	w.t.Helper()
	w.lose()
	w.store = store.NewMemory()
	w.buys.mu.Lock()
	clear(w.buys.jobs)
	w.buys.mu.Unlock()
	w.restart()
}

// content returns the content of an output of a record, or "".
func (w *world) content(s record.ShownCopies) string {
	w.t.Helper()
	f, size, err := w.cfg.Files.OpenBlob("", s.Outputs[0][0].CID)
	if errors.Is(err, blob.ErrNotFound) {
		return ""
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, size)
	if _, err := f.Read(b); err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// The key of a peer and an exported file restore the outputs. Keepers that lost their copy are not asked.
func TestImport(t *testing.T) {
	t.Parallel()
	w := placed(t)
	w.serve(3)
	pack := w.packed()
	w.buys.set("v1", func(j *record.Job) { j.State, j.Reason = record.Failed, "its provider was lost" })
	w.step()
	s := w.export()
	if len(s.Outputs) != 1 || s.Copies[0].State != record.CopyLost {
		t.Fatalf("exported: %+v", s)
	}
	asked := make(chan peer.ID, 10)
	w.hosts[2].SetStreamHandler("/starling/blob/1/test", func(s network.Stream) {
		asked <- s.Conn().RemotePeer()
		_ = s.Reset()
	})
	w.forgetAll()
	if err := w.Import(t.Context(), s); err != nil || w.content(s) != result {
		t.Errorf("%q, %v", w.content(s), err)
	}
	if len(asked) > 0 {
		t.Error("the provider of the lost copy was asked")
	}
	if w.blobs.Has(pack) {
		t.Error("the pack stays, although nothing needs it")
	}
	if err := w.Import(t.Context(), s); err != nil { // it is here
		t.Error(err)
	}
}

// A thief of the exported file has the key of the pack, and gets no pack: keepers send it to the peer that pays.
func TestAttackImportByStranger(t *testing.T) {
	t.Parallel()
	w := placed(t)
	w.serve(2)
	w.serve(3)
	s := w.export()
	theirs, err := blob.OpenStore(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	of := files.New(files.Config{Host: w.hosts[4], Network: p2ptest.Network, Blobs: theirs, Log: p2ptest.Quiet()})
	of.Serve(none{})
	stranger := New(Config{
		Self: w.keeper(4), Store: store.NewMemory(), Boxes: sealed.Boxes{}, Jobs: w.buys, Files: of,
		Log: p2ptest.Quiet(),
	})
	if err := stranger.Import(t.Context(), s); !errors.Is(err, record.ErrNoKeeper) {
		t.Errorf("got %v, want ErrNoKeeper", err)
	}
	if all, err := theirs.List(); err != nil || len(all) > 0 {
		t.Errorf("it has %v, %v", all, err)
	}
}

// A record that is incomplete, too long, or of other outputs stores nothing.
func TestAttackImportedRecord(t *testing.T) {
	t.Parallel()
	w := placed(t)
	w.serve(2)
	good := w.export()
	w.forgetAll()
	for name, change := range map[string]func(*record.ShownCopies){
		"no job":       func(s *record.ShownCopies) { s.Job = "" },
		"a long job":   func(s *record.ShownCopies) { s.Job = string(make([]byte, maxName+1)) },
		"no pack":      func(s *record.ShownCopies) { s.Pack = nil },
		"no size":      func(s *record.ShownCopies) { s.Pack = &record.Blob{CID: s.Pack.CID} },
		"no CID":       func(s *record.ShownCopies) { s.Pack = &record.Blob{Size: 1} },
		"no key":       func(s *record.ShownCopies) { s.Key = "" },
		"many copies":  func(s *record.ShownCopies) { s.Copies = make([]record.ShownCopy, maxAttempts+1) },
		"many ranks":   func(s *record.ShownCopies) { s.Outputs = make([][]record.Output, job.MaxRank+1) },
		"many outputs": func(s *record.ShownCopies) { s.Outputs[0] = make([]record.Output, job.MaxOutputs+1) },
		"no outputs":   func(s *record.ShownCopies) { s.Outputs = [][]record.Output{{}} },
		"bad output":   func(s *record.ShownCopies) { s.Outputs = [][]record.Output{{{Path: "/out"}}} },
	} {
		s := good
		s.Copies, s.Outputs = slices.Clone(s.Copies), slices.Clone(s.Outputs)
		change(&s)
		if err := w.Import(t.Context(), s); !errors.Is(err, record.ErrRefused) {
			t.Errorf("%s: %v, want ErrRefused", name, err)
		}
	}
	for name, change := range map[string]func(*record.ShownCopies){
		"another key": func(s *record.ShownCopies) { s.Key = "AGE-SECRET-KEY-1X" },
		"another output": func(s *record.ShownCopies) {
			s.Outputs = [][]record.Output{{{Path: "/out", Blob: record.Blob{CID: blob.Sum([]byte("other")).String()}}}}
		},
		"no keepers":     func(s *record.ShownCopies) { s.Copies = nil },
		"another keeper": func(s *record.ShownCopies) { s.Copies = s.Copies[1:] },
		"a smaller pack": func(s *record.ShownCopies) { s.Pack = &record.Blob{CID: s.Pack.CID, Size: s.Pack.Size - 1} },
	} {
		w.lose()
		s := good
		s.Copies = slices.Clone(s.Copies)
		change(&s)
		if err := w.Import(t.Context(), s); err == nil || w.content(good) != "" {
			t.Errorf("%s: %q, %v", name, w.content(good), err)
		}
	}
	w.lose()
	if err := w.Import(t.Context(), good); err != nil || w.content(good) != result {
		t.Errorf("the good one: %q, %v", w.content(good), err)
	}
}
