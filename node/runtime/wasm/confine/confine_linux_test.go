package confine

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// breakoutEnv makes the test binary a child whose guest has broken out of its sandbox: it enters its box and tries
// everything that it must not do.
const breakoutEnv = "STARLING_TEST_BREAKOUT"

// breakout is the task of that child, and its success by attempt.
type breakout struct {
	Secret, Outside, Allowed, Cache, Address string
	Peer                                     int
	Confined                                 Confinement
	Got                                      map[string]bool
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
	confined, box, err := Enter()
	if err != nil {
		panic(err)
	}
	ok := func(_ any, err error) bool { return err == nil }
	entry := filepath.Join(b.Cache, "wazero-1", "entry")
	compiled := ok(nil, os.WriteFile(entry, []byte("code"), 0o600))
	if b.Confined, err = box.Narrow(confined); err != nil {
		panic(err)
	}
	b.Got = map[string]bool{
		"compile":       compiled,
		"poison cache":  ok(nil, os.WriteFile(entry, []byte("poison"), 0o600)),
		"replace entry": ok(nil, os.Rename(filepath.Join(b.Allowed, "entry"), entry)),
		"read cache":    ok(os.ReadFile(entry)),
		"own file":      ok(nil, os.WriteFile(filepath.Join(b.Allowed, "x"), []byte("x"), 0o600)),
		"another name":  ok(nil, os.Rename(filepath.Join(b.Allowed, "x"), filepath.Join(b.Allowed, "d", "x"))),
		"secret":        ok(os.ReadFile(b.Secret)),
		"outside":       ok(nil, os.WriteFile(b.Outside, nil, 0o600)),
		"environment":   ok(os.ReadFile("/proc/" + strconv.Itoa(b.Peer) + "/environ")),
		"program":       ok(nil, exec.Command("/bin/true").Run()),
		"TCP":           ok(net.Dial("tcp", b.Address)),
		"UDP":           ok(net.ListenPacket("udp", "127.0.0.1:0")),
		"unix socket":   ok(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)),
		"signal":        unix.Kill(b.Peer, 0) == nil,
		"trace":         unix.PtraceAttach(b.Peer) == nil,
		"namespace":     unix.Unshare(unix.CLONE_NEWUSER) == nil,
		"mount":         unix.Mount("none", b.Allowed, "tmpfs", 0, "") == nil,
	}
	if err := json.NewEncoder(os.Stdout).Encode(b); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// A guest that broke out of its sandbox has the rights of the child: its own files and nothing else. It can neither
// read nor change the compiled programs of others.
func TestAttackBreakout(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	secret := filepath.Join(dir, "identity.json")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	task := breakout{Secret: secret, Outside: filepath.Join(dir, "outside"),
		Allowed: filepath.Join(dir, "allowed"), Cache: filepath.Join(dir, "cache"), Address: l.Addr().String(), Peer: os.Getpid()}
	for _, d := range []string{filepath.Join(task.Allowed, "d"), filepath.Join(task.Cache, "wazero-1")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(task.Allowed, "entry"), []byte("poison"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{breakoutEnv + "=" + string(text), Box{Write: []string{task.Allowed}, Until: []string{task.Cache}}.Env()}
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
	if b.Confined.Narrowed != (b.Confined.Landlock > 0) {
		t.Errorf("the confinement is narrowed: %v", b.Confined.Narrowed)
	}
	files := []string{"secret", "outside", "environment", "poison cache", "replace entry", "read cache"}
	allowed := []string{"own file", "another name", "compile"}
	for attempt, got := range b.Got {
		if slices.Contains(files, attempt) && b.Confined.Landlock == 0 {
			continue // this kernel has no Landlock
		}
		if want := slices.Contains(allowed, attempt); got != want {
			t.Errorf("%s: %v, want %v", attempt, got, want)
		}
	}
}
