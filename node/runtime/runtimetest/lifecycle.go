package runtimetest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

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
		b.setProgram(&s, module)
		want := runtime.ErrBadModule
		if b.Images {
			want = runtime.ErrBadImage
		}
		_, err := b.Runtime.Start(t.Context(), s)
		wantErr(t, name, err, want)
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
	if after.Code != 9 || after.Reason != runtime.ReasonNone ||
		!after.Started.Equal(before.Started) || !after.Ended.Equal(before.Ended) {
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
	s := b.spec(t, "polite")
	s.Seed = 7
	h := b.start(t, s)
	must(t, b.Runtime.Stop(t.Context(), h, time.Hour))
	if e := b.wait(t, h); e.Reason != runtime.ReasonKilled {
		t.Errorf("a seeded program that was asked to stop ended with %+v", e)
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
