package runtimetest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// Subject is a runtime under test.
type Subject struct {
	Runtime runtime.Runtime
	// Restart plays the death and return of the peer: the runtime it returns owns nothing yet. Nil: a fresh subject cannot.
	Restart func(t *testing.T) runtime.Runtime
	// Program is the module of guest.Conformance.
	Program string
	// Bad are modules that Start must refuse with ErrBadModule, by a name for each.
	Bad map[string]string
	// Deterministic says that Spec.Seed is honoured.
	Deterministic bool
}

// Run holds the runtime to the contract of package runtime. fresh is called once for each test, which run in parallel.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	for name, test := range map[string]func(*testing.T, *bench){
		"a program runs":                     testHello,
		"nothing of the peer is passed on":   testEnviron,
		"exit codes":                         testExitCodes,
		"mounts":                             testMounts,
		"no way out of a mount":              testEscape,
		"disk limit holds while running":     testDisk,
		"room that is freed can be used":     testRefill,
		"files there already count":          testDiskFullAtStart,
		"memory limit":                       testMemory,
		"wall time limit":                    testWallTime,
		"stop kills":                         testStopKills,
		"stop lets a program finish":         testStopPolite,
		"a long log is cut":                  testLogCut,
		"logs are followed":                  testLogFollow,
		"waiting can be given up":            testWaitCancelled,
		"destroy removes all":                testDestroy,
		"invalid specs":                      testInvalidSpec,
		"bad modules":                        testBadModule,
		"bad mounts":                         testBadMount,
		"one execution to a directory":       testExists,
		"handles of others":                  testForeignHandle,
		"recover what runs":                  testRecoverRunning,
		"recover what ended":                 testRecoverEnded,
		"a recovered execution can be ended": testRecoverDestroy,
		"recover what never was":             testRecoverUnknown,
		"stats":                              testStats,
		"no network":                         testNetwork,
		"determinism":                        testDeterminism,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &bench{Subject: fresh(t), dir: t.TempDir()})
		})
	}
}

// bench is one test's runtime and directories.
type bench struct {
	Subject
	dir string
	n   int
}

// spec makes a valid spec for the command, with /in (read-only) and /out mounted.
func (b *bench) spec(t *testing.T, args ...string) runtime.Spec {
	t.Helper()
	b.n++
	dir := filepath.Join(b.dir, string(rune('a'+b.n)))
	for _, d := range []string{"in", "out"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	return runtime.Spec{ID: "test-" + string(rune('a'+b.n)), Module: b.Program, Args: args, Dir: filepath.Join(dir, "run"),
		Mounts: []runtime.Mount{{Host: filepath.Join(dir, "in"), Guest: "/in", ReadOnly: true}, {Host: filepath.Join(dir, "out"), Guest: "/out"}},
		Limits: runtime.Limits{MemoryMiB: 128, DiskMiB: 1, LogMiB: 1}}
}

func (b *bench) start(t *testing.T, s runtime.Spec) runtime.Handle {
	t.Helper()
	h, err := b.Runtime.Start(t.Context(), s)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Runtime.Destroy(context.WithoutCancel(t.Context()), h); err != nil && !errors.Is(err, runtime.ErrClosed) {
			t.Errorf("destroying %s: %v", h.ID, err)
		}
	})
	return h
}

func (b *bench) wait(t *testing.T, h runtime.Handle) runtime.Exit {
	t.Helper()
	e, err := b.Runtime.Wait(t.Context(), h)
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	if e.Started.IsZero() || e.Ended.Before(e.Started) {
		t.Errorf("started %v, ended %v", e.Started, e.Ended)
	}
	return e
}

func (b *bench) log(t *testing.T, h runtime.Handle, s runtime.Stream) string {
	t.Helper()
	l, ok := b.Runtime.(runtime.Logger)
	if !ok {
		t.Skip("this runtime has no logs")
	}
	r, err := l.Logs(t.Context(), h, s, 0)
	must(t, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	must(t, err)
	return string(text)
}

// run starts, waits and wants this end.
func (b *bench) run(t *testing.T, s runtime.Spec, code int, reason runtime.Reason) runtime.Handle {
	t.Helper()
	h := b.start(t, s)
	if e := b.wait(t, h); e.Code != code || e.Reason != reason {
		t.Fatalf("%v ended with code %d, reason %q; want %d, %q\nstdout: %s\nstderr: %s", s.Args, e.Code, e.Reason, code, reason,
			b.log(t, h, runtime.Stdout), b.log(t, h, runtime.Stderr))
	}
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v\n%s", err, debug.Stack())
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func testHello(t *testing.T, b *bench) {
	h := b.run(t, b.spec(t, "hello", "big", "world"), 0, runtime.ReasonNone)
	if out := b.log(t, h, runtime.Stdout); out != "hello big world\n" {
		t.Errorf("stdout %q", out)
	}
	if out := b.log(t, h, runtime.Stderr); out != "err\n" {
		t.Errorf("stderr %q", out)
	}
	if e := b.wait(t, h); !e.OK() || e != b.wait(t, h) {
		t.Error("a second wait says something else")
	}
}

func testEnviron(t *testing.T, b *bench) {
	s := b.spec(t, "environ")
	s.Env = map[string]string{"STARLING_RANK": "3", "EMPTY": ""}
	h := b.run(t, s, 0, runtime.ReasonNone)
	if out := b.log(t, h, runtime.Stdout); out != "EMPTY=\nSTARLING_RANK=3\n" {
		t.Errorf("environment %q", out)
	}
}

func testExitCodes(t *testing.T, b *bench) {
	for _, code := range []string{"0", "1", "77"} {
		want := map[string]int{"0": 0, "1": 1, "77": 77}[code]
		b.run(t, b.spec(t, "exit", code), want, runtime.ReasonNone)
	}
}

func testMounts(t *testing.T, b *bench) {
	s := b.spec(t, "copy", "/in/a", "/out/b")
	must(t, os.WriteFile(filepath.Join(s.Mounts[0].Host, "a"), []byte("carried"), 0o644))
	b.run(t, s, 0, runtime.ReasonNone)
	got, err := os.ReadFile(filepath.Join(s.Mounts[1].Host, "b"))
	must(t, err)
	if string(got) != "carried" {
		t.Errorf("copied %q", got)
	}
	s = b.spec(t, "write", "/in/c")
	b.run(t, s, 1, runtime.ReasonNone)
	if _, err := os.Stat(filepath.Join(s.Mounts[0].Host, "c")); err == nil {
		t.Error("wrote into a read-only mount")
	}
}

func testEscape(t *testing.T, b *bench) {
	secret := filepath.Join(b.dir, "secret")
	must(t, os.MkdirAll(secret, 0o755))
	must(t, os.WriteFile(filepath.Join(secret, "key"), []byte("secret"), 0o644))
	s := b.spec(t, "escape", secret+"/key", "/out/file", "/out/dir/key", "/in/file", "/in/dir/key", "/out/up/secret/key",
		"/out/../../secret/key", "/out/chain/key", "/etc/passwd", "/out/new")
	for _, m := range s.Mounts {
		must(t, os.Symlink(filepath.Join(secret, "key"), filepath.Join(m.Host, "file")))
		must(t, os.Symlink(secret, filepath.Join(m.Host, "dir")))
		must(t, os.Symlink("../..", filepath.Join(m.Host, "up")))
		must(t, os.Symlink("dir", filepath.Join(m.Host, "chain")))
		must(t, os.Symlink(filepath.Join(secret, "new"), filepath.Join(m.Host, "new")))
	}
	b.run(t, s, 0, runtime.ReasonNone)
	entries, err := os.ReadDir(secret)
	must(t, err)
	if got, _ := os.ReadFile(filepath.Join(secret, "key")); string(got) != "secret" || len(entries) != 1 {
		t.Errorf("outside of the mounts: %q, %v", got, entries)
	}
}

func sizeOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		n += info.Size()
	}
	return n
}

func testDisk(t *testing.T, b *bench) {
	s := b.spec(t, "fill", "/out/big")
	b.run(t, s, guest.CodeNoSpace, runtime.ReasonNone)
	if n := sizeOf(t, s.Mounts[1].Host); n > 1<<20 || n < 1<<19 {
		t.Errorf("a limit of 1 MiB left %d bytes", n)
	}
}

func testRefill(t *testing.T, b *bench) {
	s := b.spec(t, "refill", "/out/big", "3")
	s.Limits.DiskMiB = 4
	b.run(t, s, 0, runtime.ReasonNone)
}

func testDiskFullAtStart(t *testing.T, b *bench) {
	s := b.spec(t, "hello")
	must(t, os.WriteFile(filepath.Join(s.Mounts[1].Host, "old"), make([]byte, 2<<20), 0o644))
	_, err := b.Runtime.Start(t.Context(), s)
	wantErr(t, "start on a full mount", err, runtime.ErrBadMount)
}

func testMemory(t *testing.T, b *bench) {
	s := b.spec(t, "hog")
	h := b.start(t, s)
	if e := b.wait(t, h); e.Reason != runtime.ReasonOOM || e.Code == 0 {
		t.Fatalf("ended with %+v, want reason oom", e)
	}
}

func testWallTime(t *testing.T, b *bench) {
	s := b.spec(t, "spin")
	s.Limits.WallTime = 300 * time.Millisecond
	b.run(t, s, runtime.CodeTimeout, runtime.ReasonTimeout)
}

func testStopKills(t *testing.T, b *bench) {
	h := b.start(t, b.spec(t, "spin"))
	must(t, b.Runtime.Stop(t.Context(), h, 0))
	if e := b.wait(t, h); e.Code != runtime.CodeKilled || e.Reason != runtime.ReasonKilled {
		t.Errorf("ended with %+v", e)
	}
	must(t, b.Runtime.Stop(t.Context(), h, time.Hour))

	h = b.start(t, b.spec(t, "spin"))
	must(t, b.Runtime.Stop(t.Context(), h, 50*time.Millisecond))
	if e := b.wait(t, h); e.Code != runtime.CodeKilled || e.Reason != runtime.ReasonKilled {
		t.Errorf("after the grace: ended with %+v", e)
	}
}

func testStopPolite(t *testing.T, b *bench) {
	h := b.start(t, b.spec(t, "polite"))
	must(t, b.Runtime.Stop(t.Context(), h, time.Hour))
	if e := b.wait(t, h); e.Code != 3 || e.Reason != runtime.ReasonNone {
		t.Errorf("ended with %+v", e)
	}
	if out := b.log(t, h, runtime.Stdout); out != "bye\n" {
		t.Errorf("stdout %q", out)
	}
}

func testLogCut(t *testing.T, b *bench) {
	h := b.run(t, b.spec(t, "log", "3"), 0, runtime.ReasonNone)
	out := b.log(t, h, runtime.Stdout)
	if len(out) < 1<<20 || len(out) > 1<<20+200 || !strings.Contains(out[len(out)-200:], runtime.LogCutMarker) {
		t.Errorf("a 3 MiB log with a limit of 1 MiB has %d bytes and ends in %q", len(out), out[max(0, len(out)-100):])
	}
}

func testLogFollow(t *testing.T, b *bench) {
	l, ok := b.Runtime.(runtime.Logger)
	if !ok {
		t.Skip("this runtime has no logs")
	}
	s := b.spec(t, "gate", "/in/go")
	h := b.start(t, s)
	r, err := l.Logs(t.Context(), h, runtime.Stdout, 0)
	must(t, err)
	defer r.Close()
	in := bufio.NewReader(r)
	line, err := in.ReadString('\n')
	if line != "first\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	must(t, os.WriteFile(filepath.Join(s.Mounts[0].Host, "go"), nil, 0o644))
	rest, err := io.ReadAll(in)
	if string(rest) != "second\n" || err != nil {
		t.Fatalf("%q, %v", rest, err)
	}
	r, err = l.Logs(t.Context(), h, runtime.Stdout, 3)
	must(t, err)
	defer r.Close()
	if got, err := io.ReadAll(r); string(got) != "st\nsecond\n" || err != nil {
		t.Errorf("from offset 3: %q, %v", got, err)
	}
	if _, err := l.Logs(t.Context(), h, "stdlog", 0); err == nil {
		t.Error("a third stream exists")
	}
}

func testWaitCancelled(t *testing.T, b *bench) {
	h := b.start(t, b.spec(t, "spin"))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			_, err := b.Runtime.Wait(ctx, h)
			wantErr(t, "wait given up", err, context.Canceled)
		})
	}
	cancel()
	wg.Wait()
	if _, err := b.Runtime.Stats(t.Context(), h); err != nil {
		t.Error(err)
	}
	wg.Go(func() {
		if e, err := b.Runtime.Wait(t.Context(), h); err != nil || e.Reason != runtime.ReasonKilled {
			t.Errorf("%+v, %v", e, err)
		}
	})
	must(t, b.Runtime.Stop(t.Context(), h, 0))
	wg.Wait()
}

func testDestroy(t *testing.T, b *bench) {
	s := b.spec(t, "spin")
	h := b.start(t, s)
	must(t, b.Runtime.Destroy(t.Context(), h))
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
	if _, err := os.Stat(s.Mounts[1].Host); err != nil {
		t.Errorf("a mount is gone: %v", err)
	}
	must(t, b.Runtime.Destroy(t.Context(), h))
	_, err := b.Runtime.Wait(t.Context(), h)
	wantErr(t, "wait", err, runtime.ErrNotFound)
	wantErr(t, "stop", b.Runtime.Stop(t.Context(), h, 0), runtime.ErrNotFound)
	wantErr(t, "recover", b.Runtime.Recover(t.Context(), h), runtime.ErrNotFound)
	_, err = b.Runtime.Stats(t.Context(), h)
	wantErr(t, "stats", err, runtime.ErrNotFound)
	s.Args = []string{"hello"}
	b.run(t, s, 0, runtime.ReasonNone) // the directory can be used again
}

func testInvalidSpec(t *testing.T, b *bench) {
	s := b.spec(t, "hello")
	s.ID = "../x"
	_, err := b.Runtime.Start(t.Context(), s)
	wantErr(t, "id", err, runtime.ErrInvalidSpec)
	s = b.spec(t, "hello")
	s.Mounts[0].Guest = "/in/../../etc"
	_, err = b.Runtime.Start(t.Context(), s)
	wantErr(t, "guest path", err, runtime.ErrInvalidSpec)
	if _, err := os.Stat(s.Dir); err == nil {
		t.Error("a refused spec left its directory")
	}
}

func testBadModule(t *testing.T, b *bench) {
	for name, module := range b.Bad {
		s := b.spec(t, "hello")
		s.Module = module
		_, err := b.Runtime.Start(t.Context(), s)
		wantErr(t, name, err, runtime.ErrBadModule)
		if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: left its directory", name)
		}
	}
}

func testBadMount(t *testing.T, b *bench) {
	s := b.spec(t, "hello")
	must(t, os.Remove(s.Mounts[0].Host))
	_, err := b.Runtime.Start(t.Context(), s)
	wantErr(t, "missing directory", err, runtime.ErrBadMount)
	must(t, os.WriteFile(s.Mounts[0].Host, nil, 0o644))
	_, err = b.Runtime.Start(t.Context(), s)
	wantErr(t, "not a directory", err, runtime.ErrBadMount)
}

func testExists(t *testing.T, b *bench) {
	s := b.spec(t, "hello")
	b.run(t, s, 0, runtime.ReasonNone)
	_, err := b.Runtime.Start(t.Context(), s)
	wantErr(t, "second start", err, runtime.ErrExists)
}

func testForeignHandle(t *testing.T, b *bench) {
	h := runtime.Handle{Runtime: "other", ID: "a", Dir: filepath.Join(b.dir, "x")}
	wantErr(t, "recover", b.Runtime.Recover(t.Context(), h), runtime.ErrBadHandle)
	wantErr(t, "destroy", b.Runtime.Destroy(t.Context(), h), runtime.ErrBadHandle)
	h.Runtime, h.Dir = b.Runtime.Name(), "relative"
	wantErr(t, "relative directory", b.Runtime.Destroy(t.Context(), h), runtime.ErrBadHandle)
	_, err := b.Runtime.Wait(t.Context(), h)
	wantErr(t, "wait", err, runtime.ErrBadHandle)
}

func (b *bench) restart(t *testing.T) {
	t.Helper()
	if b.Restart == nil {
		t.Skip("this runtime cannot be restarted here")
	}
	b.Runtime = b.Restart(t)
}

// journalled sends a handle the way through the journal.
func journalled(t *testing.T, h runtime.Handle) runtime.Handle {
	t.Helper()
	raw, err := h.Marshal()
	must(t, err)
	h, err = runtime.UnmarshalHandle(raw)
	must(t, err)
	return h
}

func testRecoverRunning(t *testing.T, b *bench) {
	h := journalled(t, b.start(t, b.spec(t, "polite")))
	b.restart(t)
	_, err := b.Runtime.Wait(t.Context(), h)
	wantErr(t, "wait before recover", err, runtime.ErrNotFound)
	must(t, b.Runtime.Recover(t.Context(), h))
	must(t, b.Runtime.Recover(t.Context(), h))
	b.restart(t)
	must(t, b.Runtime.Recover(t.Context(), h))
	must(t, b.Runtime.Stop(t.Context(), h, time.Hour))
	if e := b.wait(t, h); e.Code != 3 || e.Reason != runtime.ReasonNone {
		t.Errorf("ended with %+v", e)
	}
	if out := b.log(t, h, runtime.Stdout); out != "bye\n" {
		t.Errorf("stdout %q", out)
	}
}

func testRecoverEnded(t *testing.T, b *bench) {
	h := b.run(t, b.spec(t, "exit", "9"), 9, runtime.ReasonNone)
	before := b.wait(t, h)
	b.restart(t)
	must(t, b.Runtime.Recover(t.Context(), h))
	after := b.wait(t, h)
	if after.Code != 9 || after.Reason != runtime.ReasonNone || !after.Started.Equal(before.Started) || !after.Ended.Equal(before.Ended) {
		t.Errorf("before the restart %+v, after it %+v", before, after)
	}
}

func testRecoverDestroy(t *testing.T, b *bench) {
	s := b.spec(t, "spin")
	h := b.start(t, s)
	b.restart(t)
	must(t, b.Runtime.Recover(t.Context(), h))
	must(t, b.Runtime.Stop(t.Context(), h, 0))
	if e := b.wait(t, h); e.Code != runtime.CodeKilled || e.Reason != runtime.ReasonKilled {
		t.Errorf("ended with %+v", e)
	}
	must(t, b.Runtime.Destroy(t.Context(), h))
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
}

func testRecoverUnknown(t *testing.T, b *bench) {
	h := runtime.Handle{Runtime: b.Runtime.Name(), ID: "never", Dir: filepath.Join(b.dir, "never")}
	wantErr(t, "recover", b.Runtime.Recover(t.Context(), h), runtime.ErrNotFound)
	must(t, b.Runtime.Destroy(t.Context(), h))
}

func testStats(t *testing.T, b *bench) {
	h := b.run(t, b.spec(t, "burn", "100"), 0, runtime.ReasonNone)
	s, err := b.Runtime.Stats(t.Context(), h)
	must(t, err)
	if s.CPUMillis == 0 {
		t.Error("a program that computed used no CPU")
	}
	again, err := b.Runtime.Stats(t.Context(), h)
	if must(t, err); again != s {
		t.Errorf("%+v, then %+v after the end", s, again)
	}
}

func testNetwork(t *testing.T, b *bench) {
	l := listen(t)
	b.run(t, b.spec(t, "dial", l), 0, runtime.ReasonNone)
}

func testDeterminism(t *testing.T, b *bench) {
	if !b.Deterministic {
		t.Skip("this runtime is not deterministic")
	}
	outs := map[string]int{}
	for _, seed := range []uint64{7, 7, 8, 0, 0} {
		s := b.spec(t, "random", "/in")
		s.Seed = seed
		for _, f := range []string{"c", "a", "b"} {
			must(t, os.WriteFile(filepath.Join(s.Mounts[0].Host, f), nil, 0o644))
		}
		outs[b.log(t, b.run(t, s, 0, runtime.ReasonNone), runtime.Stdout)]++
	}
	if len(outs) != 4 {
		t.Errorf("seeds 7, 7, 8, 0, 0 should give four outputs, one twice: %v", outs)
	}
}

// listen opens a port of this machine that answers.
func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
