package provider

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/runtime/volume"
)

var _ runtime.Volumer = (*boxes)(nil)

// MakeVolume makes volumes as the docker runtime does.
func (b *boxes) MakeVolume(ctx context.Context, dir string, bytes int64) error {
	if !b.volumes {
		return runtime.ErrNoVolume
	}
	return volume.Make(ctx, dir, bytes)
}

// Leases whose names begin alike have different users while their programs run, and a lease has one.
func TestAttackLeasesOfOneUser(t *testing.T) {
	t.Parallel()
	x := &executor{exec: map[string]*execution{}}
	add := func(l market.LeaseID, seq uint64, state nodepb.ExecState) uint32 {
		t.Helper()
		u, err := x.userLocked(l)
		if err != nil {
			t.Fatal(err)
		}
		x.exec[execKey(l, seq)] = &execution{rec: execRecord{Lease: l, User: u}, state: &nodepb.Execution{State: state}}
		return u
	}
	seen := map[uint32]bool{}
	for i := range 100 {
		u := add(market.LeaseID{255, 255, byte(i)}, 1, nodepb.ExecState_EXEC_STATE_RUNNING)
		if u == 0 || u > runtime.MaxUser || seen[u] {
			t.Fatalf("user %d", u)
		}
		seen[u] = true
	}
	first := x.exec[execKey(market.LeaseID{255, 255}, 1)]
	if u := add(market.LeaseID{255, 255}, 2, nodepb.ExecState_EXEC_STATE_RUNNING); u != first.rec.User {
		t.Errorf("the same lease has user %d, then %d", first.rec.User, u)
	}
	ended := add(market.LeaseID{7, 7, 1}, 1, nodepb.ExecState_EXEC_STATE_EXITED)
	if u := add(market.LeaseID{7, 7, 2}, 1, nodepb.ExecState_EXEC_STATE_RUNNING); u != ended {
		t.Errorf("a user that nobody has any more is not given again: %d, %d", ended, u)
	}
}

// A program's outputs are in a volume from before its inputs are laid out until they are stored. Whatever a peer that was killed has left
// mounted is gone after the start of the next, but for what goes on.
func TestAttackVolumesAreLeftMounted(t *testing.T) {
	t.Parallel()
	if err := volume.Try(t.Context(), t.TempDir(), os.Getpid()); errors.Is(err, volume.ErrUnavailable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	x, b, start := newBoxes(t, map[string]guest.Program{"train": func(p guest.Process) int {
		for !guest.Exists(p, guest.StopFile) {
			p.Burn()
			time.Sleep(time.Millisecond)
		}
		if err := guest.WriteFile(p, "/out/result", []byte("x")); err != nil {
			return 1
		}
		return 0
	}})
	b.volumes = true
	var die context.CancelFunc
	x.ctx, die = context.WithCancel(t.Context())
	defer die()
	t.Cleanup(func() {
		if err := volume.Release(x.dir); err != nil {
			t.Error(err)
		}
	})
	mounted := func(want ...string) {
		t.Helper()
		got, err := volume.Mounted(x.dir)
		if err != nil || len(got) != len(want) || len(want) == 1 && got[0] != want[0] {
			t.Errorf("mounted are %v, %v; want %v", got, err, want)
		}
	}
	e, err := start(market.LeaseID{1}, &nodepb.Workload{Outputs: []string{"/out"}})
	if err != nil {
		t.Fatal(err)
	}
	for { // until it runs
		s, h, wake := e.snapshot()
		if s.State.Ended() {
			t.Fatal(s)
		}
		if h != nil {
			break
		}
		<-wake
	}
	own := filepath.Join(x.stage(e).Dir, "disk")
	mounted(own)

	// The peer dies, and others died before it: while they made the volume of an earlier attempt, and of a lease of which nothing is known.
	for _, dir := range []string{filepath.Join(e.dir, "a7", "disk"), filepath.Join(x.dir, "0badcafe", "1", "a0", "disk")} {
		if err := volume.Make(t.Context(), dir, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	die()
	x.wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	y, by, _ := newBoxes(t, nil)
	by.Fake = b.Fake.Restart()
	y.store, y.dir, y.blobs, y.ctx = x.store, x.dir, x.blobs, ctx
	defer func() { cancel(); y.wg.Wait() }()
	if err := y.restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	mounted(own)

	y.stopLease(t.Context(), market.LeaseID{1}, time.Minute)
	if err := y.idle(t.Context(), market.LeaseID{1}); err != nil {
		t.Fatal(err)
	}
	e, _ = y.find(market.LeaseID{1}, 1)
	if s, _, _ := e.snapshot(); s.State != nodepb.ExecState_EXEC_STATE_EXITED || s.ExitCode != 0 || len(s.Outputs) != 1 {
		t.Errorf("ended as %v", s)
	}
	y.wg.Wait() // what the program saw is removed after its end was told
	mounted()
	if err := y.forget(t.Context(), market.LeaseID{1}); err != nil {
		t.Error(err)
	}
}
