package wasm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"golang.org/x/sys/unix"
)

// The child of an execution is confined, each of its threads.
func TestAttackUnconfined(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, 0)
	h := start(t, r, spin(t))
	s, err := readStatus(h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(s.Pid) + "/task/*/status")
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads: %v", len(threads), err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		for _, want := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no line %q", thread, want)
			}
		}
	}
	if err := r.Stop(t.Context(), h, 0); err != nil {
		t.Error(err)
	}
}

// A module of 60 bytes with 2^31 locals makes the compiler allocate 16 GiB, and one with a
// segment of 2^31 elements 64 GiB.
func TestAttackModuleMemory(t *testing.T) {
	r := newRuntime(t, time.Minute)
	command := header + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x07\x0a\x01\x06_start\x00\x00"
	for name, m := range map[string]string{
		"locals":   command + "\x0a\x0a\x01\x08\x01\x80\x80\x80\x80\x08\x7e\x0b",
		"elements": command + "\x09\x0a\x01\x01\x00\x80\x80\x80\x80\x08\x00\x00" + "\x0a\x04\x01\x02\x00\x0b",
	} {
		_, err := r.Start(t.Context(), runtime.Spec{ID: "attack", Dir: filepath.Join(t.TempDir(), "run"), Module: write(t, name, []byte(m))})
		if !errors.Is(err, runtime.ErrBadModule) || !strings.Contains(err.Error(), "memory") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil || u.Maxrss > (childMemory+256<<20)>>10 {
		t.Errorf("a child had %d MiB: %v", u.Maxrss>>10, err)
	}
}

// The code of a start section, too, is stopped when it is ahead of its CPU share.
func TestAttackStartSectionShare(t *testing.T) {
	t.Parallel()
	m := module{entry: true, bodies: []body{{code: endless}}}
	s, _, _ := mounted(t, m.bytes())
	s.Limits.MilliCPU, s.Limits.WallTime = 1, time.Minute // a busy machine gives it more than this share
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stopped := func() bool {
		st, err := readStatus(s.Dir)
		if err != nil {
			return false
		}
		b, err := os.ReadFile("/proc/" + strconv.Itoa(st.Pid) + "/stat")
		_, state, _ := strings.Cut(string(b), ") ")
		return err == nil && strings.HasPrefix(state, "T")
	}
	go func() {
		for ctx.Err() == nil && !stopped() {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := newRuntime(t, time.Minute).Start(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("it was never stopped: %v", err)
	}
	checkNames(t, filepath.Dir(s.Dir))
}
