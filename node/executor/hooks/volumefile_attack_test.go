package hooks_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime/storage"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
)

// keeping returns a volume that keeps a file.
func (s *shelf) keeping(size int) (*nodepb.Workload, cid.Cid) {
	s.T.Helper()
	c, n, err := s.Blobs.Put(s.T.Context(), bytes.NewReader(make([]byte, size)))
	if err != nil {
		s.T.Fatal(err)
	}
	file := &nodepb.Blob{Cid: c.Bytes(), Size: uint64(n)}
	return &nodepb.Workload{Runtime: storage.Name, Inputs: []*nodepb.Input{{Blob: file, Path: "/copy/pack"}}}, c
}

func (s *shelf) keep(w *nodepb.Workload) (*executor.Execution, error) {
	return s.Executor.Start(s.T.Context(), executortest.Buyer, disk(volumeLease, executortest.Owner.Key()), 1, w)
}

// A volume keeps its file while it runs, for the peer that commands it, after a crash, too. Its directory has the rest
// of the disk.
func TestVolumeFile(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	w, c := s.keeping(3 << 18)
	e, err := s.keep(w)
	if err != nil {
		t.Fatal(err)
	}
	s.Running(e)
	for range 2 {
		if got := s.Files.Granted(c); got != executortest.Buyer {
			t.Errorf("granted to %q", got)
		}
		if !hooks.Needed(s.All())[c] {
			t.Error("the file may be removed")
		}
		s.crash()
	}
	s.End(volumeLease, 0)
	if hooks.Needed(s.All())[c] {
		t.Error("the file of an ended volume is needed")
	}
}

// The owner that a volume names may fetch its file: a volume with guardians is commanded by others.
func TestVolumeFileOfOwner(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	owner := sign.NewPrivate([32]byte{77}).Key()
	w, c := s.keeping(10)
	w.VolumeOwner = owner[:]
	e, err := s.keep(w)
	if err != nil {
		t.Fatal(err)
	}
	s.Running(e)
	want, err := p2p.PeerIDFromKey(owner)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Files.Granted(c); got != want {
		t.Errorf("granted to %q, want %q", got, want)
	}
}

// A volume whose file is lost ends, so that its buyer does not pay for nothing.
func TestVolumeFileLost(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	w, c := s.keeping(10)
	e, err := s.keep(w)
	if err != nil {
		t.Fatal(err)
	}
	s.Running(e)
	if err := s.Blobs.Remove(c); err != nil {
		t.Fatal(err)
	}
	s.crash()
	again, ok := s.Find(e.Key)
	if !ok {
		t.Fatal("the volume is forgotten")
	}
	s.Await(again)
}

// A volume takes no second file, no folder, and none that fills its disk.
func TestAttackVolumeFiles(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	two, _ := s.keeping(10)
	two.Inputs = append(two.Inputs, &nodepb.Input{Blob: two.Inputs[0].Blob, Path: "/copy/second"})
	tree, _ := s.keeping(11)
	tree.Inputs[0].Blob.Tree = true
	for name, w := range map[string]*nodepb.Workload{"two files": two, "a folder": tree} {
		if _, err := s.keep(w); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), "at most one") {
			t.Errorf("%s: %v", name, err)
		}
	}
	owner, c := s.keeping(12)
	owner.VolumeOwner = make([]byte, 32) // no key: its commander alone reads it
	e, err := s.keep(owner)
	if err != nil {
		t.Fatal(err)
	}
	if s.Running(e); s.Files.Granted(c) != executortest.Buyer {
		t.Errorf("granted to %q", s.Files.Granted(c))
	}
	large, _ := s.keeping(1 << 19)
	large.DiskMib = 1
	other := disk(market.LeaseID{2}, executortest.Owner.Key())
	e, err = s.Executor.Start(t.Context(), executortest.Buyer, other, 1, large)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Await(e); got.State != nodepb.ExecState_EXEC_STATE_FAILED || !strings.Contains(got.Message, "no room") {
		t.Errorf("a file that fills the disk: %v", got)
	}
}
