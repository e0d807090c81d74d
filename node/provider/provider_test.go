package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

var testBuyer, _ = peer.IDFromPrivateKey(p2ptest.Key(1))

// newTestExecutor makes an executor on a Fake and a workload that runs until it is
// asked to stop. Stop ends the executor and leaves the program alone.
func newTestExecutor(t *testing.T) (x *executor, w *nodepb.Workload, stop func()) {
	t.Helper()
	blobs, err := blob.OpenStore(filepath.Join(t.TempDir(), "blobs"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	fake := runtimetest.NewFake("wasm", map[string]guest.Program{"wait": func(p guest.Process) int {
		for !guest.Exists(p, guest.StopFile) {
			p.Burn()
		}
		return 3
	}, "/bin/sh": func(p guest.Process) int { // says what it was told and where it is
		fmt.Fprintf(p.Stdout(), "%s %s:", strings.Join(p.Args(), " "), strings.Join(slices.DeleteFunc(p.Environ(), func(kv string) bool {
			return !strings.HasPrefix(kv, "OMPI_MCA_") && !strings.HasPrefix(kv, "NODE_RANK=")
		}), ","))
		_, _ = io.Copy(p.Stdout(), p.Stdin())
		return 5
	}})
	c, n, err := blobs.Put(t.Context(), strings.NewReader(string(runtimetest.FakeModule("wait"))))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x = &executor{
		dir: filepath.Join(t.TempDir(), "exec"), store: store.NewMemory(), blobs: blobs, grant: func(peer.ID, cid.Cid) {},
		fetch:    func(context.Context, peer.ID, cid.Cid, int64) error { return nil },
		runtimes: map[string]runtime.Runtime{"wasm": fake}, log: slog.New(slog.DiscardHandler),
		exec: map[string]*execution{}, over: map[market.LeaseID]time.Time{}, closed: map[market.LeaseID]bool{}, ctx: ctx,
	}
	stop = func() {
		cancel()
		x.wg.Wait()
	}
	t.Cleanup(stop)
	return x, &nodepb.Workload{Runtime: "wasm", Module: &nodepb.Blob{Cid: c.Bytes(), Size: uint64(n)}}, stop
}

var limits = runtime.Limits{MemoryMiB: 64, MilliCPU: 1000, DiskMiB: 16}

// A lease runs one program at a time, the same start is one execution, and nothing begins under a lease that ends.
func TestExecutor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, w, _ := newTestExecutor(t)
		l := market.LeaseID{1}
		e, err := x.start(t.Context(), request{lease: l, seq: 1, buyer: testBuyer, limits: limits, work: w})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if again, err := x.start(t.Context(), request{lease: l, seq: 1, buyer: testBuyer, limits: limits, work: w}); err != nil || again != e {
			t.Errorf("the same start again: %v", err)
		}
		if _, err := x.start(t.Context(), request{lease: l, seq: 2, buyer: testBuyer, limits: limits, work: w}); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), "still runs") {
			t.Errorf("a second one: %v", err)
		}
		x.shut(l)
		x.stopLease(t.Context(), l, time.Second)
		if err := x.idle(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if s, _, _ := e.snapshot(); s.State != nodepb.ExecState_EXEC_STATE_EXITED || s.ExitCode != 3 {
			t.Errorf("ended as %v", s)
		}
		if _, err := x.start(t.Context(), request{lease: l, seq: 2, buyer: testBuyer, limits: limits, work: w}); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), "ending") {
			t.Errorf("under a lease that ends: %v", err)
		}
		if again, err := x.start(t.Context(), request{lease: l, seq: 1, buyer: testBuyer, limits: limits, work: w}); err != nil || again != e {
			t.Errorf("the one that ended: %v", err)
		}
		if err := x.forget(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if len(x.of(l)) != 0 || len(x.closed) != 0 {
			t.Error("something of the lease is left")
		}
	})
}

// A program runs on without its peer and is taken over by the next process; one that is gone is lost.
func TestRestoreExecutions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, w, stop := newTestExecutor(t)
		l := market.LeaseID{1}
		if _, err := x.start(t.Context(), request{lease: l, seq: 1, buyer: testBuyer, limits: limits, work: w}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// The peer dies; its program runs on and is taken over by the next process.
		stop()
		y, _, _ := newTestExecutor(t)
		y.store, y.dir, y.blobs = x.store, x.dir, x.blobs
		y.runtimes = map[string]runtime.Runtime{"wasm": x.runtimes["wasm"].(*runtimetest.Fake).Restart()}
		if err := y.restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		y.stopLease(t.Context(), l, time.Second)
		if err := y.idle(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		e, ok := y.find(l, 1)
		if !ok {
			t.Fatal("the execution is forgotten")
		}
		if s, _, _ := e.snapshot(); s.ExitCode != 3 {
			t.Errorf("ended as %v", s)
		}
		// On a machine that knows nothing of it, it is lost, and says so.
		z, _, _ := newTestExecutor(t)
		z.store, z.dir = store.NewMemory(), x.dir
		e.state.State = nodepb.ExecState_EXEC_STATE_RUNNING
		if err := (&executor{store: z.store}).persist(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if err := z.restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		lost, _ := z.find(l, 1)
		if s, _, _ := lost.snapshot(); s.State != nodepb.ExecState_EXEC_STATE_FAILED || s.Reason != "lost" {
			t.Errorf("on another machine: %v", s)
		}
	})
}

// Whoever sees that a program has ended may fetch what it left, however little later: also while the journal still writes the end.
func TestOutputsAreGrantedWithTheEnd(t *testing.T) {
	t.Parallel()
	x, _, _ := newTestExecutor(t)
	granted := false
	x.grant = func(to peer.ID, _ cid.Cid) { granted = to == testBuyer }
	c, n, err := x.blobs.(*blob.Store).Put(t.Context(), strings.NewReader("result"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := x.newExecution(request{lease: market.LeaseID{1}, seq: 1, buyer: testBuyer, limits: limits, work: &nodepb.Workload{Runtime: "wasm"}})
	if err != nil {
		t.Fatal(err)
	}
	x.store = watched{x.store, func() {
		if s, _, _ := e.snapshot(); !s.State.Ended() || !granted {
			t.Errorf("while its end is written: %v, granted: %v", s.State, granted)
		}
	}}
	x.finish(e, nodepb.ExecState_EXEC_STATE_EXITED, 0, "", "", []*nodepb.Output{{Path: "/out", Blob: &nodepb.Blob{Cid: c.Bytes(), Size: uint64(n)}}})
}

// watched is a journal that says when it is written.
type watched struct {
	store.Store
	writes func()
}

func (w watched) Write(ctx context.Context, puts ...store.Put) error {
	w.writes()
	return w.Store.Write(ctx, puts...)
}

// No slot is billed twice, though the view of the current one went back with a restart.
func TestMetered(t *testing.T) {
	t.Parallel()
	units := []market.UnitID{{1}, {2}, {3}}
	fresh := func(s store.Store) *Provider {
		return &Provider{cfg: Config{Store: s}, until: map[market.UnitID]market.Slot{}}
	}
	p := fresh(store.NewMemory())
	if err := p.loadMetered(t.Context()); err != nil || p.notMetered(5, units) != 5 {
		t.Fatalf("a new provider: %v", err)
	}
	for _, slot := range []market.Slot{10, 30, 20} {
		if err := p.cfg.Store.Write(t.Context(), p.metered(slot, 0, units[:1])); err != nil {
			t.Fatal(err)
		}
	}
	next := fresh(p.cfg.Store)
	if err := next.loadMetered(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := next.notMetered(25, units); got != 30 {
		t.Errorf("slot 25 after slot 30 was metered: %d", got)
	}
	if got := next.notMetered(31, units); got != 31 {
		t.Errorf("slot 31: %d", got)
	}
	// The slot in which work ended is sold to its end, of these units.
	if err := p.cfg.Store.Write(t.Context(), next.metered(40, 41, units[:2])); err != nil {
		t.Fatal(err)
	}
	if a, b := next.notMetered(40, units), next.notMetered(40, units[2:]); a != 41 || b != 40 {
		t.Errorf("after a lease until slot 41 its units are billed from slot %d and another from %d", a, b)
	}
	again := fresh(p.cfg.Store)
	if err := again.loadMetered(t.Context()); err != nil || again.notMetered(40, units[:1]) != 41 {
		t.Errorf("after a restart they are billed from slot %d: %v", again.notMetered(40, units[:1]), err)
	}
	if err := p.cfg.Store.Write(t.Context(), store.Put{Kind: kindMetered, Key: "slot", Value: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	if err := next.loadMetered(t.Context()); err == nil {
		t.Error("a slot of one byte was read")
	}
}

// Right after a restart a lease that is still active is not refused: it is asked for again.
func TestTaken(t *testing.T) {
	t.Parallel()
	p := &Provider{sales: map[market.LeaseID]*sale{}}
	var no *stream.Refused
	if err := p.taken(lease.Record{State: lease.Active}); !errors.As(err, &no) || no.Code != stream.CodeBusy {
		t.Errorf("an active lease: %v", err)
	}
	if err := p.taken(lease.Record{State: lease.Ended, EndReason: "its end"}); !errors.As(err, &no) || no.Code != "lease" || !strings.Contains(no.Reason, "its end") {
		t.Errorf("an ended lease: %v", err)
	}
	p.sales[market.LeaseID{1}] = &sale{}
	if err := p.taken(lease.Record{State: lease.Active, Lease: market.LeaseID{1}}); err != nil {
		t.Error(err)
	}
}
