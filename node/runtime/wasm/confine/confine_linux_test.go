package confine

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// breakoutEnv makes the test binary a child whose guest has broken out of its sandbox: it enters its box and tries
// everything that it must not do.
const breakoutEnv = "STARLING_TEST_BREAKOUT"

// breakout is the task of that child, and its success by attempt.
type breakout struct {
	Secret, Outside, Allowed, Address string
	Peer                              int
	Confined                          Confinement
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
	if b.Confined, err = Enter(); err != nil {
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

// A guest that broke out of its sandbox has the rights of the child: its own files and nothing else.
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
		Allowed: filepath.Join(dir, "allowed"), Address: l.Addr().String(), Peer: os.Getpid()}
	if err := os.MkdirAll(filepath.Join(task.Allowed, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{breakoutEnv + "=" + string(text), Box{Write: []string{task.Allowed}}.Env()}
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
	for attempt, got := range b.Got {
		files := attempt == "secret" || attempt == "outside" || attempt == "environment"
		if files && b.Confined.Landlock == 0 {
			continue // this kernel has no Landlock
		}
		if want := attempt == "own file" || attempt == "another name"; got != want {
			t.Errorf("%s: %v, want %v", attempt, got, want)
		}
	}
}
