package runtimetest_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

func write(t *testing.T, dir, name string, b []byte) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.WriteFile(p, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFake(t *testing.T) {
	t.Parallel()
	runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
		dir := t.TempDir()
		f := runtimetest.NewFake("fake", map[string]guest.Program{"conformance": guest.Conformance})
		return runtimetest.Subject{
			Runtime:       f,
			Restart:       func(*testing.T) runtime.Runtime { f = f.Restart(); return f },
			Program:       write(t, dir, "program", runtimetest.FakeModule("conformance")),
			Bad:           map[string]string{"missing": filepath.Join(dir, "none"), "junk": write(t, dir, "junk", []byte("junk")), "unknown": write(t, dir, "unknown", runtimetest.FakeModule("unknown"))},
			Command:       "conformance",
			Secrets:       true,
			Deterministic: true,
		}
	})
}

func TestStopFileIsTheSame(t *testing.T) {
	t.Parallel()
	if guest.StopFile != runtime.StopFile {
		t.Fatalf("%s and %s", guest.StopFile, runtime.StopFile)
	}
}

// An execution whose peer does not come back within the grace is lost; one that is recovered in time is not.
func TestFakeGraceInABubble(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	module := write(t, dir, "program", runtimetest.FakeModule("conformance"))
	synctest.Test(t, func(t *testing.T) {
		f := runtimetest.NewFake("fake", map[string]guest.Program{"conformance": guest.Conformance})
		start := func(id string) runtime.Handle {
			h, err := f.Start(t.Context(), runtime.Spec{ID: id, Module: module, Args: []string{"spin"}, Dir: filepath.Join(dir, id)})
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		kept, lost := start("kept"), start("lost")
		f = f.Restart()
		time.Sleep(runtimetest.FakeGrace / 2)
		if err := f.Recover(t.Context(), kept); err != nil {
			t.Fatal(err)
		}
		time.Sleep(runtimetest.FakeGrace)
		if n := f.Running(); n != 1 {
			t.Errorf("%d running, want 1", n)
		}
		if err := f.Recover(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		if e, err := f.Wait(t.Context(), lost); err != nil || e.Reason != runtime.ReasonLost || e.Code != runtime.CodeLost {
			t.Errorf("%+v, %v", e, err)
		}
		if err := f.Stop(t.Context(), kept, 0); err != nil {
			t.Fatal(err)
		}
	})
}
