package hooks_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/runtime/storage"
	"github.com/starling-network/starling/node/workload"
)

// shelf is a bench whose provider keeps volumes.
type shelf struct {
	*executortest.Bench
	fake *runtimetest.Fake
}

var shelfPrograms = map[string]guest.Program{
	"wait": executortest.Wait,
	"put": func(p guest.Process) int { // text at a path
		if guest.WriteFile(p, p.Args()[0], []byte(p.Args()[1])) != nil {
			return 1
		}
		return 0
	},
	"get": func(p guest.Process) int { // whether a path has a text
		b, err := guest.ReadFile(p, p.Args()[0], 1<<20)
		if err != nil || string(b) != p.Args()[1] {
			return 1
		}
		return 0
	},
	"fill": func(p guest.Process) int { // until a write fails
		for {
			if err := guest.WriteFile(p, p.Args()[0], make([]byte, 64<<20)); err != nil {
				return guest.CodeNoSpace
			}
		}
	},
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{executortest.New(t), runtimetest.NewFake("wasm", shelfPrograms)}
	s.furnish()
	s.Start()
	return s
}

// furnish makes the runtimes and hooks of the next process.
func (s *shelf) furnish() {
	kept := storage.New(storage.Config{Unbounded: true, Log: s.Log})
	s.Runtimes = map[string]runtime.Runtime{"wasm": s.fake, storage.Name: kept}
	host := workload.Host{Runtimes: s.Runtimes}
	s.Hooks = []executor.Hook{
		hooks.Admission{Host: host, Network: noNetworks{}}, hooks.Program{Blobs: s.Blobs, From: s.Files},
		hooks.Files{Blobs: s.Blobs, From: s.Files}, &hooks.Volumes{Storer: kept, Log: s.Log},
	}
}

// crash ends the process as a power cut does; programs run on.
func (s *shelf) crash() {
	s.T.Helper()
	s.Stop()
	s.fake = s.fake.Restart()
	s.furnish()
	s.Start()
}

// disk returns a lease of disk.
func disk(l market.LeaseID, buyer sign.Key) executor.Lease {
	return executor.Lease{First: l, Buyer: buyer, Storage: true, Limits: runtime.Limits{DiskMiB: 16}}
}

// volume makes a volume under a lease, and returns its directory.
func (s *shelf) volume(l market.LeaseID) (*executor.Execution, string) {
	s.T.Helper()
	e, err := s.Executor.Start(s.T.Context(), executortest.Buyer, disk(l, executortest.Owner.Key()), 1,
		&nodepb.Workload{Runtime: storage.Name})
	if err != nil {
		s.T.Fatal(err)
	}
	s.Running(e)
	return e, filepath.Join(e.Stage().Run(), "data")
}

// mounts returns a workload with a volume at /data.
func (s *shelf) mounts(l market.LeaseID, readOnly bool, program string, args ...string) *nodepb.Workload {
	return &nodepb.Workload{
		Runtime: "wasm", Module: s.Module(program), Args: args,
		Volumes: []*nodepb.VolumeMount{{Lease: l[:], Path: "/data", ReadOnly: readOnly}},
	}
}

func (s *shelf) code(e *executor.Execution) int32 {
	s.T.Helper()
	return s.Await(e).ExitCode
}

func gone(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v, want none", filepath.Base(dir), err)
	}
}

var volumeLease = market.LeaseID{1}

// A second program of the same buyer reads the file of the first one, until the lease of the volume ends.
func TestVolume(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	_, dir := s.volume(volumeLease)
	if code := s.code(s.Must(market.LeaseID{2}, 1, s.mounts(volumeLease, false, "put", "/data/f", "text"))); code != 0 {
		t.Errorf("writing: exit %d", code)
	}
	if code := s.code(s.Must(market.LeaseID{3}, 1, s.mounts(volumeLease, true, "get", "/data/f", "text"))); code != 0 {
		t.Errorf("reading: exit %d", code)
	}
	if code := s.code(s.Must(market.LeaseID{4}, 1, s.mounts(volumeLease, true, "put", "/data/f", "more"))); code == 0 {
		t.Error("a read-only volume was written")
	}
	user := s.Must(market.LeaseID{5}, 1, s.mounts(volumeLease, false, "wait"))
	s.Running(user)
	s.End(volumeLease, 0)
	if got := s.Await(user); !strings.Contains(got.Message, "paid time of volume /data has ended") {
		t.Errorf("a program with a volume that ended: %v", got)
	}
	gone(t, dir)
	_, err := s.Do(market.LeaseID{6}, 1, s.mounts(volumeLease, true, "wait"))
	if !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), "no such volume") {
		t.Errorf("an ended volume: %v", err)
	}
}

// Another buyer's key gets no volume by the lease that names it, and learns nothing from the answer.
func TestAttackForeignVolume(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.volume(volumeLease)
	theirs := executortest.Lease(market.LeaseID{2})
	theirs.Buyer = sign.NewPrivate([32]byte{22}).Key()
	var answers []string
	for i, l := range []market.LeaseID{volumeLease, {99}} {
		_, err := s.Executor.Start(t.Context(), executortest.Buyer, theirs, uint64(i+1), s.mounts(l, true, "wait"))
		if !errors.Is(err, workload.ErrWorkload) {
			t.Fatalf("lease %s: %v", l.Short(), err)
		}
		answers = append(answers, err.Error())
	}
	if answers[0] != answers[1] {
		t.Errorf("a foreign volume and none are told apart: %q", answers)
	}
	// Nor is a program's own lease, or that of a program, a volume.
	s.Running(s.Must(market.LeaseID{3}, 1, &nodepb.Workload{Runtime: "wasm", Module: s.Module("wait")}))
	if _, err := s.Do(market.LeaseID{4}, 1, s.mounts(market.LeaseID{3}, true, "wait")); err == nil {
		t.Error("a program was mounted")
	}
}

// A volume whose lease another key signed, as that of a job with guardians, is its named owner's alone.
func TestVolumeOwner(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	signer := sign.NewPrivate([32]byte{23}).Key()
	owner := executortest.Owner.Key()
	w := &nodepb.Workload{Runtime: storage.Name, VolumeOwner: owner[:]}
	e, err := s.Executor.Start(t.Context(), executortest.Buyer, disk(volumeLease, signer), 1, w)
	if err != nil {
		t.Fatal(err)
	}
	s.Running(e)
	theirs := executortest.Lease(market.LeaseID{2})
	theirs.Buyer = signer
	if _, err := s.Executor.Start(t.Context(), executortest.Buyer, theirs, 1, s.mounts(volumeLease, true, "wait")); err == nil {
		t.Error("the key that signed the lease has the volume of another owner")
	}
	if code := s.code(s.Must(market.LeaseID{3}, 1, s.mounts(volumeLease, false, "put", "/data/f", "x"))); code != 0 {
		t.Errorf("the owner: exit %d", code)
	}
	for _, bad := range []*nodepb.Workload{
		{Runtime: storage.Name, VolumeOwner: owner[:31]},
		{Runtime: "wasm", Module: s.Module("wait"), VolumeOwner: owner[:]},
	} {
		l := disk(market.LeaseID{4}, signer)
		if l.Storage = bad.Module == nil; !l.Storage {
			l.Limits = executortest.Limits
		}
		if _, err := s.Executor.Start(t.Context(), executortest.Buyer, l, 1, bad); !errors.Is(err, workload.ErrWorkload) {
			t.Errorf("an owner of %d bytes on %s: %v", len(bad.VolumeOwner), bad.Runtime, err)
		}
	}
}

// A lease of disk runs no program, which would have no limit on processors, and other leases keep no volume.
func TestAttackProgramOnDisk(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	l := disk(volumeLease, executortest.Owner.Key())
	program := &nodepb.Workload{Runtime: "wasm", Module: s.Module("wait")}
	if _, err := s.Executor.Start(t.Context(), executortest.Buyer, l, 1, program); !errors.Is(err, workload.ErrWorkload) {
		t.Errorf("a program: %v", err)
	}
	with := &nodepb.Workload{Runtime: storage.Name, Module: s.Module("wait")}
	if _, err := s.Executor.Start(t.Context(), executortest.Buyer, l, 1, with); !errors.Is(err, workload.ErrWorkload) {
		t.Errorf("a volume with a program: %v", err)
	}
	if _, err := s.Do(market.LeaseID{2}, 1, &nodepb.Workload{Runtime: storage.Name}); !errors.Is(err, workload.ErrWorkload) {
		t.Errorf("a volume on another lease: %v", err)
	}
}

// A volume has one program that writes, also of two that start at once; any number read.
func TestAttackTwoWriters(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.volume(volumeLease)
	var running, failed int
	var all []*executor.Execution
	for i := range byte(8) {
		e, err := s.Do(market.LeaseID{10 + i}, 1, s.mounts(volumeLease, false, "wait"))
		if err != nil {
			failed++
			continue
		}
		all = append(all, e)
	}
	var writer *executor.Execution
	for _, e := range all {
		for st, h, wake := e.Snapshot(); ; st, h, wake = e.Snapshot() {
			if st.State.Ended() {
				failed++
			} else if h != nil {
				running, writer = running+1, e
			} else {
				<-wake
				continue
			}
			break
		}
	}
	if running != 1 || failed != 7 {
		t.Fatalf("%d programs write, %d were refused", running, failed)
	}
	_, err := s.Do(market.LeaseID{30}, 1, s.mounts(volumeLease, false, "wait"))
	if err == nil || !strings.Contains(err.Error(), "in use by another program") {
		t.Errorf("a second writer: %v", err)
	}
	for i := range byte(2) {
		s.Running(s.Must(market.LeaseID{40 + i}, 1, s.mounts(volumeLease, true, "wait")))
	}
	s.End(writer.Lease, 0)
	if code := s.code(s.Must(market.LeaseID{50}, 1, s.mounts(volumeLease, false, "put", "/data/f", "text"))); code != 0 {
		t.Errorf("a writer after the first: exit %d", code)
	}
}

// A program fills its volume to its own limit, whatever the limit of its lease, and never beyond it.
func TestAttackFilledVolume(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	_, dir := s.volume(volumeLease)
	code := s.code(s.Must(market.LeaseID{2}, 1, s.mounts(volumeLease, false, "fill", "/data/f")))
	if used := workload.DiskUse(dir); code != guest.CodeNoSpace || used > 16<<20 {
		t.Errorf("exit %d, %d bytes of 16 MiB", code, used)
	}
	if code := s.code(s.Must(market.LeaseID{3}, 1, s.mounts(volumeLease, true, "get", "/data/f", ""))); code > 1 {
		t.Errorf("a full volume cannot be read: exit %d", code)
	}
}

// A link in a volume leads nowhere, neither for a later program nor for the removal.
func TestAttackLinkInVolume(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	_, dir := s.volume(volumeLease)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"file": secret, "dir": outside} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for i, path := range []string{"/data/file", "/data/dir/secret", "/data/../secret"} {
		if code := s.code(s.Must(market.LeaseID{10 + byte(i)}, 1, s.mounts(volumeLease, true, "get", path, "secret"))); code == 0 {
			t.Errorf("%s was read", path)
		}
		if code := s.code(s.Must(market.LeaseID{20 + byte(i)}, 1, s.mounts(volumeLease, false, "put", path, "x"))); code == 0 {
			t.Errorf("%s was written", path)
		}
	}
	s.End(volumeLease, 0)
	gone(t, dir)
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("a file outside: %q, %v", b, err)
	}
}

// A volume, and a program that has it, outlive a crash of the peer: the content stays, a second writer is refused, and
// the end of the volume ends the program.
func TestVolumeAfterCrash(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	_, dir := s.volume(volumeLease)
	if code := s.code(s.Must(market.LeaseID{2}, 1, s.mounts(volumeLease, false, "put", "/data/f", "text"))); code != 0 {
		t.Fatalf("exit %d", code)
	}
	s.Running(s.Must(market.LeaseID{3}, 1, s.mounts(volumeLease, false, "wait")))
	s.crash()
	if _, err := s.Do(market.LeaseID{4}, 1, s.mounts(volumeLease, false, "wait")); err == nil {
		t.Error("a second writer after a crash")
	}
	if code := s.code(s.Must(market.LeaseID{5}, 1, s.mounts(volumeLease, true, "get", "/data/f", "text"))); code != 0 {
		t.Errorf("reading after a crash: exit %d", code)
	}
	user := s.Under(market.LeaseID{3})[0]
	s.End(volumeLease, 0)
	if got := s.Await(user); !strings.Contains(got.Message, "paid time") {
		t.Errorf("the program: %v", got)
	}
	gone(t, dir)
	s.crash()
	if got := s.Await(s.Under(volumeLease)[0]); got.State != nodepb.ExecState_EXEC_STATE_EXITED || got.ExitCode != 0 {
		t.Errorf("the volume: %v", got)
	}
}

// A crash in the middle of a removal, and one in the middle of a creation, leave no directory.
func TestAttackCrashInVolume(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	e, dir := s.volume(volumeLease)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := e.Stage().Run()
	s.Stop()
	ended := `{"code":0,"started":"2026-01-01T00:00:00Z","ended":"2026-01-01T01:00:00Z"}`
	if err := os.WriteFile(filepath.Join(run, "ended.json"), []byte(ended), 0o600); err != nil {
		t.Fatal(err)
	}
	s.fake = s.fake.Restart()
	s.furnish()
	s.Start()
	if got := s.Await(s.Under(volumeLease)[0]); got.ExitCode != 0 {
		t.Errorf("a volume whose removal was interrupted: %v", got)
	}
	gone(t, dir)

	kept := storage.New(storage.Config{Unbounded: true, Log: s.Log})
	spec := runtime.Spec{ID: "v", Dir: filepath.Join(t.TempDir(), "run"), Limits: runtime.Limits{DiskMiB: 1}}
	h, err := kept.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(spec.Dir, "started")); err != nil { // as before its last step
		t.Fatal(err)
	}
	if err := storage.New(storage.Config{Unbounded: true, Log: s.Log}).Recover(t.Context(), h); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("a volume that was not complete: %v", err)
	}
	if err := storage.Remove(spec.Dir); err != nil {
		t.Error(err)
	}
	gone(t, filepath.Join(spec.Dir, "data"))
}

// The removal of a volume waits for its holders, and a holder that never leaves delays only it.
func TestVolumeWaitsForHolders(t *testing.T) {
	t.Parallel()
	kept := storage.New(storage.Config{Unbounded: true})
	spec := runtime.Spec{ID: "v", Dir: filepath.Join(t.TempDir(), "run"), Limits: runtime.Limits{DiskMiB: 1}}
	h, err := kept.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	told, leave := kept.Hold(h)
	done := make(chan error, 1)
	go func() { done <- kept.Stop(t.Context(), h, time.Hour) }()
	<-told
	if _, err := os.Stat(filepath.Join(spec.Dir, "data")); err != nil {
		t.Errorf("removed under a holder: %v", err)
	}
	leave()
	leave()
	if err := <-done; err != nil {
		t.Error(err)
	}
	gone(t, filepath.Join(spec.Dir, "data"))
	if _, err := kept.Directory(h); !errors.Is(err, runtime.ErrEnded) {
		t.Errorf("the directory of an ended volume: %v", err)
	}
	if err := kept.Destroy(t.Context(), h); err != nil {
		t.Error(err)
	}
	gone(t, spec.Dir)
}
