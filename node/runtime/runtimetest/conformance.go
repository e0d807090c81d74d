package runtimetest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/runtime"
)

// Subject is a runtime under test.
type Subject struct {
	Runtime runtime.Runtime
	// Restart plays the death and return of the peer: the runtime it returns owns nothing yet. Nil: a fresh subject
	// cannot.
	Restart func(t *testing.T) runtime.Runtime
	// Program is the module of guest.Conformance.
	Program string
	// Bad are modules that Start must refuse with ErrBadModule, by a name for each.
	Bad map[string]string
	// Images means that Program and Bad are container images, refused with ErrBadImage, and Seed means nothing.
	Images bool
	// Command is the program's name for Attach in the sandbox.
	Command string
	// Secrets means that Spec.Secrets and SecretEnv are honoured; otherwise Start refuses them.
	Secrets bool
	// DiskKills means that the disk limit is held by ending the program with ReasonDisk, not by refusing it room.
	DiskKills bool
	// Home reports that programs have HOME and HOSTNAME as an engine sets them, "/" and "starling"; otherwise they have
	// neither.
	Home bool
	// Deterministic means that Spec.Seed is honoured.
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
		"a mount with a room of its own":     testRoom,
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
		"recover running":                    testRecoverRunning,
		"recover ended":                      testRecoverEnded,
		"a recovered execution can be ended": testRecoverDestroy,
		"recover unknown":                    testRecoverUnknown,
		"stats":                              testStats,
		"no network":                         testNetwork,
		"determinism":                        testDeterminism,
		"secrets":                            testSecrets,
		"paused and resumed":                 testPause,
		"paused can be ended":                testPauseEnd,
		"attached programs":                  testAttach,
		"an attached program is cancelled":   testAttachCancelled,
		"dialled":                            testDial,
		"gauged":                             testGauge,
		"an overlay":                         testOverlay,
		"invalid overlays":                   testInvalidOverlay,
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
	s := runtime.Spec{ID: "test-" + string(rune('a'+b.n)), Args: args, Dir: filepath.Join(dir, "run"),
		Mounts: []runtime.Mount{
			{Host: filepath.Join(dir, "in"), Guest: "/in", ReadOnly: true},
			{Host: filepath.Join(dir, "out"), Guest: "/out"},
		},
		Limits: runtime.Limits{MemoryMiB: 128, DiskMiB: 1, LogMiB: 1}}
	b.setProgram(&s, b.Program)
	return s
}

func (b *bench) setProgram(s *runtime.Spec, program string) {
	if b.Images {
		s.Image = program
	} else {
		s.Module = program
	}
}

func (b *bench) start(t *testing.T, s runtime.Spec) runtime.Handle {
	t.Helper()
	h, err := b.Runtime.Start(t.Context(), s)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		err := b.Runtime.Destroy(context.WithoutCancel(t.Context()), h)
		if err != nil && !errors.Is(err, runtime.ErrClosed) {
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

// environ holds a program's environment, a variable a line, to the spec's.
func (b *bench) environ(t *testing.T, got, want string) {
	t.Helper()
	if b.Home {
		lines := strings.Split(want+"HOME=/\nHOSTNAME=starling\n", "\n")
		slices.Sort(lines[:len(lines)-1])
		want = strings.Join(lines, "\n")
	}
	if got != want {
		t.Errorf("environment %q, want %q", got, want)
	}
}

// run starts a program, waits for it and checks how it ended.
func (b *bench) run(t *testing.T, s runtime.Spec, code int, reason runtime.Reason) runtime.Handle {
	t.Helper()
	h := b.start(t, s)
	if e := b.wait(t, h); e.Code != code || e.Reason != reason {
		t.Fatalf("%v ended with code %d, reason %q; want %d, %q\nstdout: %s\nstderr: %s",
			s.Args, e.Code, e.Reason, code, reason, b.log(t, h, runtime.Stdout), b.log(t, h, runtime.Stderr))
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
