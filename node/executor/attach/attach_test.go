package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/p2p/stream"
)

// bench is an execution that runs until it is asked to stop.
func bench(t *testing.T, wrap func(runtime.Runtime) runtime.Runtime) (*executortest.Bench, *executor.Execution) {
	t.Helper()
	b := executortest.New(t)
	rt := wrap(runtimetest.NewFake("wasm", map[string]guest.Program{"wait": executortest.Wait}))
	b.Runtimes = map[string]runtime.Runtime{"wasm": rt}
	b.Hooks = []executor.Hook{hooks.Program{Blobs: b.Blobs, From: b.Files}, hooks.Files{Blobs: b.Blobs, From: b.Files}}
	b.Start()
	w := &nodepb.Workload{Runtime: "wasm", Module: b.Module("wait"), Outputs: []string{"/out"}}
	e := b.Must(market.LeaseID{1}, 1, w)
	synctest.Wait()
	return b, e
}

// mute is a runtime without the abilities that others have.
type mute struct{ runtime.Runtime }

func silent(rt runtime.Runtime) runtime.Runtime { return mute{rt} }
func same(rt runtime.Runtime) runtime.Runtime   { return rt }

func refuse(t *testing.T) Accept {
	return func(*nodepb.LiveReply) (*stream.Conn, error) {
		t.Error("a stream was accepted")
		return nil, io.EOF
	}
}

// A runtime without an ability has its requests refused, and so has a paused program.
func TestCannot(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(runtime.Runtime) runtime.Runtime{"mute": silent, "paused": same} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, e := bench(t, wrap)
				want := []string{"use cp or logs", "no ports to connect", "cannot compute"}
				if name == "paused" {
					want = []string{"resume it first", "resume it first", "resume it first"}
					if err := executor.SetPaused(t.Context(), e, true); err != nil {
						t.Fatal(err)
					}
				}
				_, h, _ := e.Snapshot()
				program := &nodepb.LiveRequest_Attach{Args: []string{"x"}}
				for i, err := range []error{
					Serve(t.Context(), e, *h, program, refuse(t)),
					Forward(t.Context(), e, *h, 80, refuse(t)),
					hooks.Probes{Log: b.Log}.Serve(t.Context(), executortest.Owner.Key(), e, *h, refuse(t)),
				} {
					var no *stream.Refused
					if !errors.As(err, &no) || !strings.Contains(no.Reason, want[i]) {
						t.Errorf("%v, want a refusal with %q", err, want[i])
					}
				}
				b.End(market.LeaseID{1}, 0)
			})
		})
	}
}

// Programs, ports and paths out of bounds are refused before a stream is accepted.
func TestRefusesMalformed(t *testing.T) {
	t.Parallel()
	for what, a := range map[string]*nodepb.LiveRequest_Attach{
		"nothing":            nil,
		"no program":         {Args: []string{""}},
		"a NUL":              {Args: []string{"a\x00"}},
		"no text":            {Args: []string{"\xff"}},
		"an empty variable":  {Args: []string{"a"}, Env: map[string]string{"": "x"}},
		"a variable with =":  {Args: []string{"a"}, Env: map[string]string{"a=b": "x"}},
		"too many arguments": {Args: strings.Split(strings.Repeat("a ", MaxArgs+1), " ")},
		"too many bytes":     {Args: []string{strings.Repeat("a", maxBytes+1)}},
		"a long directory":   {Args: []string{"a"}, WorkDir: strings.Repeat("a", maxPath+1)},
		"a wide terminal":    {Args: []string{"a"}, Cols: 1 << 16},
	} {
		if err := Check(a); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	if err := Check(&nodepb.LiveRequest_Attach{Args: []string{"a"}, Env: map[string]string{"A": "="}, Rows: 24}); err != nil {
		t.Error(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b, e := bench(t, same)
		_, h, _ := e.Snapshot()
		for what, err := range map[string]error{
			"port 0":            Forward(t.Context(), e, *h, 0, refuse(t)),
			"port 65536":        Forward(t.Context(), e, *h, 65536, refuse(t)),
			"a closed port":     Forward(t.Context(), e, *h, 81, refuse(t)),
			"a missing file":    CopyOut(t.Context(), e, "/out/none", refuse(t)),
			"a file elsewhere":  CopyOut(t.Context(), e, "/etc/passwd", refuse(t)),
			"a way up":          CopyOut(t.Context(), e, "/out/../../x", refuse(t)),
			"a copy elsewhere":  CopyIn(t.Context(), e, &nodepb.LiveRequest_CopyIn{Path: "/etc"}, refuse(t)),
			"a missing parent":  CopyIn(t.Context(), e, &nodepb.LiveRequest_CopyIn{Path: "/out/a/b"}, take),
			"no directory here": CopyIn(t.Context(), e, &nodepb.LiveRequest_CopyIn{Path: "/out/f", Directory: true}, refuse(t)),
		} {
			if err == nil || strings.Contains(err.Error(), b.Dir) {
				t.Errorf("%s: %v", what, err)
			}
		}
		b.End(market.LeaseID{1}, 0)
	})
}

// What a program answered before its end is passed on after it; a connection that stays open is closed soon.
func TestLastAnswer(t *testing.T) {
	t.Parallel()
	for what, open := range map[string]bool{"ended": false, "stays open": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				alive, die := context.WithCancel(t.Context())
				ours, program := net.Pipe()
				caller, theirs := net.Pipe()
				over := make(chan error, 1)
				go func() { over <- splice(t.Context(), alive, ours, theirs) }()
				synctest.Wait()
				die()
				synctest.Wait()
				go func() {
					_, _ = io.WriteString(program, "the last answer")
					if !open {
						_ = program.Close()
					}
				}()
				start := time.Now()
				if got, err := io.ReadAll(caller); err != nil || string(got) != "the last answer" {
					t.Errorf("%q, %v", got, err)
				}
				if took := time.Since(start); took > answerTime {
					t.Errorf("closed after %v", took)
				}
				if err := <-over; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// take accepts no stream, because its peer is gone.
func take(*nodepb.LiveReply) (*stream.Conn, error) { return nil, io.ErrClosedPipe }

// A copy goes below a directory, or becomes a new file of that name, and never below a file.
func TestTarget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, e := bench(t, same)
		out := filepath.Join(e.Stage().Dir, "disk", "out")
		if err := errors.Join(os.Mkdir(filepath.Join(out, "dir"), 0o755), os.WriteFile(filepath.Join(out, "file"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		for guest, want := range map[string]struct {
			dir, as string
			refused bool
		}{
			"/out/dir": {"dir", "", false}, "/out/new": {".", "new", false}, "/out/dir/new": {"dir", "new", false},
			"/out/file": {".", "file", false}, "/out/file/x": {"", "", true},
		} {
			at, err := e.Stage().Open(e.Work, guest, true)
			if err != nil {
				t.Fatalf("%s: %v", guest, err)
			}
			dir, as, err := target(at, false)
			if (err != nil) != want.refused || err == nil && (dir != want.dir || as != want.as) {
				t.Errorf("%s: %q, %q, %v", guest, dir, as, err)
			}
			_ = at.Root.Close()
		}
		if left, err := room(e); err != nil || left > int64(e.Limits.DiskMiB)<<20 || left <= 0 {
			t.Errorf("%d bytes are left: %v", left, err)
		}
		b.End(market.LeaseID{1}, 0)
	})
}

// Errors of files name no place of this machine.
func TestErrorsOfFilesNameNoPlace(t *testing.T) {
	t.Parallel()
	inside := &fs.PathError{Op: "open", Path: "/home/operator/exec/1", Err: fs.ErrPermission}
	for _, err := range []error{inside, fmt.Errorf("opening: %w", inside), fmt.Errorf("%w: %w", fs.ErrNotExist, inside)} {
		if text := refusePath("/out/x", err).Error(); strings.Contains(text, "operator") || !strings.Contains(text, "/out/x") {
			t.Errorf("%q of %v", text, err)
		}
	}
	no := stream.Refuse("path", "it is not a directory")
	if err := refusePath("/out/x", no); !errors.Is(err, no) {
		t.Errorf("a refusal became %v", err)
	}
	if text := copyText(&fs.PathError{Op: "read", Path: "a/b", Err: fs.ErrPermission}); text != "copying a/b: permission denied" {
		t.Error(text)
	}
}
