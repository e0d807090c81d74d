package wasm

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"golang.org/x/sys/unix"
)

// breakoutEnv makes the test binary a child whose guest has broken out of its sandbox: it enters its box and tries what
// it can.
const breakoutEnv = "STARLING_TEST_BREAKOUT"

// breakout is what it is told, and what it got.
type breakout struct {
	Secret, Outside, Allowed, Address string
	Peer                              int
	Confined                          Confined
	Got                               map[string]bool
}

func init() {
	if task := os.Getenv(breakoutEnv); task != "" {
		breakoutMain(task)
	}
}

func breakoutMain(task string) {
	var b breakout
	if err := json.Unmarshal([]byte(task), &b); err != nil {
		panic(err)
	}
	var err error
	if b.Confined, err = enterBox(); err != nil {
		panic(err)
	}
	ok := func(_ any, err error) bool { return err == nil }
	b.Got = map[string]bool{
		"own file":     ok(nil, os.WriteFile(filepath.Join(b.Allowed, "x"), []byte("x"), 0o600)),
		"another name": ok(nil, os.Rename(filepath.Join(b.Allowed, "x"), filepath.Join(b.Allowed, "d", "x"))),
		"secret":       ok(os.ReadFile(b.Secret)),
		"outside":      ok(nil, os.WriteFile(b.Outside, nil, 0o600)),
		"environment":  ok(os.ReadFile("/proc/" + strconv.Itoa(b.Peer) + "/environ")),
		"program":      ok(nil, exec.Command("/bin/true").Run()),
		"TCP":          ok(net.Dial("tcp", b.Address)),
		"UDP":          ok(net.ListenPacket("udp", "127.0.0.1:0")),
		"unix socket":  ok(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)),
		"signal":       unix.Kill(b.Peer, 0) == nil,
		"trace":        unix.PtraceAttach(b.Peer) == nil,
		"namespace":    unix.Unshare(unix.CLONE_NEWUSER) == nil,
		"mount":        unix.Mount("none", b.Allowed, "tmpfs", 0, "") == nil,
	}
	if err := json.NewEncoder(os.Stdout).Encode(b); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// TestAttackBreakout: what a guest gets that broke out of its sandbox, with the rights of the child.
func TestAttackBreakout(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	task := breakout{Secret: write(t, "identity.json", []byte("secret")), Outside: filepath.Join(dir, "outside"),
		Allowed: filepath.Join(dir, "allowed"), Address: l.Addr().String(), Peer: os.Getpid()}
	if err := os.MkdirAll(filepath.Join(task.Allowed, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{breakoutEnv + "=" + string(text), box{Write: []string{task.Allowed}}.env()}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var b breakout
	if err := json.Unmarshal(out, &b); err != nil {
		t.Fatal(err)
	}
	t.Logf("confined by Landlock ABI %d, seccomp %v", b.Confined.Landlock, b.Confined.Seccomp)
	if !b.Confined.Seccomp {
		t.Skip("no list of system calls for this processor")
	}
	for what, got := range b.Got {
		files := what == "secret" || what == "outside" || what == "environment"
		if files && b.Confined.Landlock == 0 {
			continue // this kernel has no Landlock
		}
		if want := what == "own file" || what == "another name"; got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
}

// TestAttackUnconfined: the child of an execution runs in its box, each of its threads.
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

// TestAttackModuleMemory: a module of 60 bytes with 2^31 locals makes the compiler allocate 16 GiB, and one with a
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
