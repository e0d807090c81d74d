package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
)

// window is the time that a test watches for an event that must not happen. A shorter time could miss a fault, never
// find a false one.
const window = 100 * time.Millisecond

func testSecrets(t *testing.T, b *bench) {
	s := b.spec(t, "environ")
	s.Env = map[string]string{"A": "plain", "TOKEN": "covered"}
	s.SecretEnv = map[string]string{"TOKEN": "hush-variable"}
	s.Secrets = map[string][]byte{"key.pem": []byte("hush-file\n")}
	if !b.Secrets {
		_, err := b.Runtime.Start(t.Context(), s)
		wantErr(t, "secrets that would not be kept", err, runtime.ErrInvalidSpec)
		return
	}
	h := b.run(t, s, 0, runtime.ReasonNone)
	b.environ(t, b.log(t, h, runtime.Stdout), "A=plain\nTOKEN=hush-variable\n")
	raw, err := h.Marshal()
	must(t, err)
	show := b.spec(t, "show", runtime.SecretsDir+"/key.pem")
	show.Secrets = s.Secrets
	if out := b.log(t, b.run(t, show, 0, runtime.ReasonNone), runtime.Stdout); out != "hush-file\n" {
		t.Errorf("secret file %q", out)
	}
	change := b.spec(t, "escape", runtime.SecretsDir+"/none")
	change.Secrets = s.Secrets
	b.run(t, change, 0, runtime.ReasonNone)
	kept := map[string][]byte{"handle": raw}
	must(t, filepath.WalkDir(s.Dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(p, ".log") { // the program printed it
			kept[p], err = os.ReadFile(p)
		}
		return err
	}))
	for where, b := range kept {
		if bytes.Contains(b, []byte("hush")) {
			t.Errorf("a secret is in the %s", where)
		}
	}
}

func testPause(t *testing.T, b *bench) {
	p, ok := b.Runtime.(runtime.Pauser)
	if !ok {
		t.Skip("this runtime cannot pause")
	}
	s := b.spec(t, "gate", "/in/go")
	h := b.start(t, s)
	for range 2 {
		must(t, p.Pause(t.Context(), h))
	}
	before, err := b.Runtime.Stats(t.Context(), h)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(s.Mounts[0].Host, "go"), nil, 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), window)
	defer cancel()
	_, err = b.Runtime.Wait(ctx, h)
	wantErr(t, "waiting for a paused execution", err, context.DeadlineExceeded)
	after, err := b.Runtime.Stats(t.Context(), h)
	must(t, err)
	if after.CPUMillis > before.CPUMillis+20 {
		t.Errorf("while it was paused it used %d ms of CPU", after.CPUMillis-before.CPUMillis)
	}
	must(t, p.Resume(t.Context(), h))
	if err := p.Resume(t.Context(), h); err != nil && !errors.Is(err, runtime.ErrEnded) {
		t.Error(err)
	}
	if e := b.wait(t, h); !e.OK() {
		t.Errorf("ended with %+v", e)
	}
	if out := b.log(t, h, runtime.Stdout); out != "first\nsecond\n" {
		t.Errorf("stdout %q", out)
	}
	wantErr(t, "pausing an ended execution", p.Pause(t.Context(), h), runtime.ErrEnded)
	wantErr(t, "resuming an ended execution", p.Resume(t.Context(), h), runtime.ErrEnded)
	h.ID = "never"
	wantErr(t, "pausing an unknown execution", p.Pause(t.Context(), h), runtime.ErrNotFound)
}

func testPauseEnd(t *testing.T, b *bench) {
	p, ok := b.Runtime.(runtime.Pauser)
	if !ok {
		t.Skip("this runtime cannot pause")
	}
	paused := func(s runtime.Spec) runtime.Handle {
		h := b.start(t, s)
		must(t, p.Pause(t.Context(), h))
		return h
	}
	h := paused(b.spec(t, "spin"))
	must(t, b.Runtime.Stop(t.Context(), h, 0))
	if e := b.wait(t, h); e.Reason != runtime.ReasonKilled {
		t.Errorf("stopped: ended with %+v", e)
	}
	h = paused(b.spec(t, "polite"))
	must(t, b.Runtime.Stop(t.Context(), h, time.Hour))
	if e := b.wait(t, h); e.Code != 3 || e.Reason != runtime.ReasonNone {
		t.Errorf("asked to stop: ended with %+v", e)
	}
	s := b.spec(t, "spin")
	s.Limits.WallTime = 700 * time.Millisecond
	h = b.start(t, s)
	if err := p.Pause(t.Context(), h); err != nil && !errors.Is(err, runtime.ErrEnded) { // on a slow machine
		t.Fatal(err)
	}
	if e := b.wait(t, h); e.Reason != runtime.ReasonTimeout || e.Code != runtime.CodeTimeout {
		t.Errorf("at its wall-time limit: ended with %+v", e)
	}
	h = paused(b.spec(t, "spin"))
	must(t, b.Runtime.Destroy(t.Context(), h))
	h = paused(b.spec(t, "polite"))
	b.restart(t)
	must(t, b.Runtime.Recover(t.Context(), h)) // a pause ends with the peer that made it
	must(t, b.Runtime.Stop(t.Context(), h, time.Hour))
	if e := b.wait(t, h); e.Code != 3 {
		t.Errorf("recovered: ended with %+v", e)
	}
}

func testAttach(t *testing.T, b *bench) {
	a, ok := b.Runtime.(runtime.Attacher)
	if !ok {
		t.Skip("this runtime cannot attach")
	}
	s := b.spec(t, "gate", "/in/go")
	s.Env = map[string]string{"A": "1", "B": "2"}
	h := b.start(t, s)
	attach := func(code int, stdin string, env map[string]string, args ...string) (string, string) {
		t.Helper()
		var out, errs bytes.Buffer
		p := runtime.Process{Args: append([]string{b.Command}, args...), Env: env, Stdout: &out, Stderr: &errs}
		if stdin != "" {
			p.Stdin = strings.NewReader(stdin)
		}
		if got, err := a.Attach(t.Context(), h, p); err != nil || got != code {
			t.Errorf("%v: code %d, %v; want %d", args, got, err, code)
		}
		return out.String(), errs.String()
	}
	if out, errs := attach(0, "", nil, "hello", "you"); out != "hello you\n" || errs != "err\n" {
		t.Errorf("%q, %q", out, errs)
	}
	attach(7, "", nil, "exit", "7")
	out, _ := attach(0, "", map[string]string{"B": "3", "C": "4"}, "environ")
	b.environ(t, out, "A=1\nB=3\nC=4\n")
	if out, _ := attach(0, strings.Repeat("carried ", 10_000), nil, "cat"); out != strings.Repeat("carried ", 10_000) {
		t.Errorf("%d bytes came back", len(out))
	}
	attach(0, "", nil, "cat")
	_, err := a.Attach(t.Context(), h, runtime.Process{Args: []string{"/no/such/program"}})
	if err == nil || errors.Is(err, runtime.ErrEnded) {
		t.Errorf("a program that is not there: %v", err)
	}
	if _, err := a.Attach(t.Context(), h, runtime.Process{}); err == nil {
		t.Error("no program could be attached")
	}
	must(t, os.WriteFile(filepath.Join(s.Mounts[0].Host, "go"), nil, 0o644))
	if e := b.wait(t, h); !e.OK() {
		t.Errorf("ended with %+v", e)
	}
	_, err = a.Attach(t.Context(), h, runtime.Process{Args: []string{b.Command, "hello"}})
	wantErr(t, "attaching to an ended execution", err, runtime.ErrEnded)
}

func testAttachCancelled(t *testing.T, b *bench) {
	a, ok := b.Runtime.(runtime.Attacher)
	if !ok {
		t.Skip("this runtime cannot attach")
	}
	h := b.start(t, b.spec(t, "polite"))
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() {
		_, err := a.Attach(ctx, h, runtime.Process{Args: []string{b.Command, "gate", "/in/never"}, Stdout: w})
		result <- err
	}()
	if _, err := io.ReadFull(r, make([]byte, len("first\n"))); err != nil {
		t.Fatal(err)
	}
	cancel()
	wantErr(t, "attached", <-result, context.Canceled)
	must(t, b.Runtime.Stop(t.Context(), h, time.Hour))
	if e := b.wait(t, h); e.Code != 3 {
		t.Errorf("the program itself ended with %+v", e)
	}

	// The end of the execution ends attached programs.
	h = b.start(t, b.spec(t, "polite"))
	r, w = io.Pipe()
	go func() {
		_, err := a.Attach(t.Context(), h, runtime.Process{Args: []string{b.Command, "gate", "/in/never"}, Stdout: w})
		result <- err
	}()
	if _, err := io.ReadFull(r, make([]byte, len("first\n"))); err != nil {
		t.Fatal(err)
	}
	must(t, b.Runtime.Stop(t.Context(), h, 0))
	if err := <-result; err != nil && !errors.Is(err, runtime.ErrEnded) {
		t.Error(err)
	}
}

func testDial(t *testing.T, b *bench) {
	d, ok := b.Runtime.(runtime.Dialer)
	if !ok {
		t.Skip("this runtime cannot dial")
	}
	h := b.start(t, b.spec(t, "serve", "8080"))
	for i := range 3 {
		c := Dial(t, d, h, 8080)
		text := strings.Repeat("x", i*1000+1)
		half, ok := c.(interface{ CloseWrite() error })
		if !ok {
			t.Fatalf("one half of a %T cannot be closed", c)
		}
		go func() {
			_, _ = io.WriteString(c, text)
			_ = half.CloseWrite()
		}()
		if back, err := io.ReadAll(c); err != nil || string(back) != text {
			t.Errorf("%q, %v", back, err)
		}
		must(t, c.Close())
	}
	if _, err := d.Dial(t.Context(), h, 8081); err == nil || errors.Is(err, runtime.ErrEnded) {
		t.Errorf("a port without a listener: %v", err)
	}
	must(t, b.Runtime.Stop(t.Context(), h, 0))
	b.wait(t, h)
	_, err := d.Dial(t.Context(), h, 8080)
	wantErr(t, "dialling an ended execution", err, runtime.ErrEnded)
}

// Dial connects to a port of a program, once it listens there.
func Dial(t testing.TB, d runtime.Dialer, h runtime.Handle, port uint16) net.Conn {
	t.Helper()
	for {
		c, err := d.Dial(t.Context(), h, port)
		if err == nil {
			return c
		}
		if errors.Is(err, runtime.ErrEnded) || t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// A computation in a program's place gives correct results, and the program continues unchanged.
func testGauge(t *testing.T, b *bench) {
	p, ok := b.Runtime.(runtime.Gauger)
	if !ok {
		t.Skip("this runtime cannot gauge")
	}
	s := b.spec(t, "gate", "/in/go")
	s.Limits.MilliCPU = 700
	h := b.start(t, s)
	g, err := p.Gauge(t.Context(), h)
	must(t, err)
	defer g.Close()
	kind := exclusive.CPU
	if g.GPU() {
		kind = exclusive.GPU
	}
	shape := exclusive.Fit(kind, 0)
	for i := range 2 {
		seed := sign.Hash{byte(i)}
		var tiles []sign.Hash
		must(t, g.Multiply(t.Context(), []sign.Hash{seed}, shape, func(_ int, got []sign.Hash) error {
			tiles = got
			return nil
		}))
		c, err := challenge.Commit(shape, tiles)
		must(t, err)
		leaves := challenge.Draw(sign.Hash{1}, shape.Leaves(), exclusive.Openings)
		o, err := c.Open(seed, leaves) // ErrFault for a tile that differs from the committed one
		must(t, err)
		must(t, o.Check(seed, shape, c.Root(), leaves, func(i int) int { return i }))
	}
	must(t, os.WriteFile(filepath.Join(s.Mounts[0].Host, "go"), nil, 0o644))
	if e := b.wait(t, h); !e.OK() {
		t.Errorf("ended with %+v", e)
	}
	if out := b.log(t, h, runtime.Stdout); out != "first\nsecond\n" {
		t.Errorf("stdout %q", out)
	}
	none := func(int, []sign.Hash) error { return nil }
	if err := g.Multiply(t.Context(), make([]sign.Hash, 1), shape, none); err == nil {
		t.Error("computed for an ended execution")
	}
	_, err = p.Gauge(t.Context(), h)
	wantErr(t, "gauging an ended execution", err, runtime.ErrEnded)
	h.ID = "never"
	_, err = p.Gauge(t.Context(), h)
	wantErr(t, "gauging an unknown execution", err, runtime.ErrNotFound)
}
