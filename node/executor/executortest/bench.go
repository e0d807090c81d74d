// Package executortest has an executor on a fake runtime, for tests of hooks.
package executortest

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// Buyer is the peer that commands the executions of a bench.
var Buyer, _ = peer.IDFromPrivateKey(p2ptest.Key(1))

// Owner is the key that signed the leases of a bench.
var Owner = sign.NewPrivate([32]byte{21})

// Limits are those of a lease.
var Limits = runtime.Limits{MemoryMiB: 64, MilliCPU: 1000, DiskMiB: 16}

// Files are executor.Files that fetch nothing: a test puts its files into the store of blobs.
type Files struct {
	mu      sync.Mutex
	granted map[cid.Cid]peer.ID
	dropped map[cid.Cid]int
	joined  int
}

// Obtain implements executor.Files.
func (f *Files) Obtain(context.Context, workload.Places, cid.Cid, int64) error { return nil }

// Grant implements executor.Files.
func (f *Files) Grant(to peer.ID, c cid.Cid) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.granted[c] = to
}

// Join implements executor.Files.
func (f *Files) Join(_ peer.ID, fellows []peer.ID, files []cid.Cid) (leave func()) {
	change := func(by int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.joined += by * len(fellows) * len(files)
	}
	change(1)
	return func() { change(-1) }
}

// Joined returns the number of rights of fellows to files.
func (f *Files) Joined() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.joined
}

// Drop implements executor.Files.
func (f *Files) Drop(all ...cid.Cid) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range all {
		f.dropped[c]++
	}
}

// Granted returns the peer that may fetch a file.
func (f *Files) Granted(c cid.Cid) peer.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.granted[c]
}

// Dropped returns how often each file was dropped.
func (f *Files) Dropped() map[cid.Cid]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[cid.Cid]int{}
	for c, n := range f.dropped {
		out[c] = n
	}
	return out
}

// Bench is an executor in a process that can be stopped and begun anew.
type Bench struct {
	*executor.Executor
	T     *testing.T
	Store store.Store
	Blobs *blob.Store
	Files *Files
	Dir   string
	Log   *slog.Logger

	Runtimes map[string]runtime.Runtime // of the next process
	Hooks    []executor.Hook            // likewise
	stop     func()
}

// New returns a bench without an executor: Start begins the first process, when Runtimes and Hooks are set.
func New(t *testing.T) *Bench {
	t.Helper()
	blobs, err := blob.OpenStore(filepath.Join(t.TempDir(), "blobs"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	b := &Bench{
		T: t, Store: store.NewMemory(), Blobs: blobs, Dir: filepath.Join(t.TempDir(), "exec"), stop: func() {},
		Files: &Files{granted: map[cid.Cid]peer.ID{}, dropped: map[cid.Cid]int{}}, Log: slog.New(slog.DiscardHandler),
	}
	t.Cleanup(func() { b.stop() })
	return b
}

// Start begins a process on an earlier one's files.
func (b *Bench) Start() {
	b.T.Helper()
	if err := b.Try(); err != nil {
		b.T.Fatal(err)
	}
}

// Try is Start that returns the error of the journal.
func (b *Bench) Try() error {
	ctx, cancel := context.WithCancel(context.Background())
	x := executor.New(executor.Config{
		Dir: b.Dir, Store: b.Store, Files: b.Files, Runtimes: b.Runtimes, Log: b.Log,
	}, b.Hooks...)
	b.Executor = x
	b.stop = sync.OnceFunc(func() {
		cancel()
		x.Wait()
	})
	return x.Restore(ctx)
}

// Stop ends the process and leaves its programs alone.
func (b *Bench) Stop() { b.stop() }

// Restart is Stop and Start.
func (b *Bench) Restart() {
	b.T.Helper()
	b.Stop()
	b.Start()
}

// Module puts the module of a program of a runtimetest.Fake into the store of blobs.
func (b *Bench) Module(name string) *nodepb.Blob {
	b.T.Helper()
	c, n, err := b.Blobs.Put(b.T.Context(), strings.NewReader(string(runtimetest.FakeModule(name))))
	if err != nil {
		b.T.Fatal(err)
	}
	return &nodepb.Blob{Cid: c.Bytes(), Size: uint64(n)}
}

// Lease returns a lease of the bench's buyer.
func Lease(l market.LeaseID) executor.Lease {
	return executor.Lease{First: l, Buyer: Owner.Key(), Limits: Limits}
}

// Do starts a workload.
func (b *Bench) Do(l market.LeaseID, seq uint64, w *nodepb.Workload) (*executor.Execution, error) {
	return b.Executor.Start(b.T.Context(), Buyer, Lease(l), seq, w)
}

// Must is Do that ends the test if the workload is refused.
func (b *Bench) Must(l market.LeaseID, seq uint64, w *nodepb.Workload) *executor.Execution {
	b.T.Helper()
	e, err := b.Do(l, seq, w)
	if err != nil {
		b.T.Fatal(err)
	}
	return e
}

// Await returns the state of an execution once it has ended.
func (b *Bench) Await(e *executor.Execution) *nodepb.Execution {
	b.T.Helper()
	for {
		s, _, wake := e.Snapshot()
		if s.State.Ended() {
			return s
		}
		select {
		case <-wake:
		case <-b.T.Context().Done():
			b.T.Fatalf("the execution did not end: %v", s)
		}
	}
}

// Running returns the state of an execution once its program runs.
func (b *Bench) Running(e *executor.Execution) *nodepb.Execution {
	b.T.Helper()
	for {
		s, h, wake := e.Snapshot()
		if s.State.Ended() {
			b.T.Fatalf("the execution ended before it ran: %v", s)
		}
		if h != nil {
			return s
		}
		<-wake
	}
}

// End stops the executions of a lease.
func (b *Bench) End(l market.LeaseID, grace time.Duration) {
	b.T.Helper()
	if err := b.Executor.End(b.T.Context(), l, grace); err != nil {
		b.T.Fatal(err)
	}
}

// Wait is a program that runs until its end is requested, and exits with code 3.
func Wait(p guest.Process) int {
	for !guest.Exists(p, guest.StopFile) {
		p.Burn()
	}
	return 3
}
