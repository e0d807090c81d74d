package docker

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/sandbox"
	testengine "github.com/starling-network/starling/testnet/engine"
)

// hoard starts a program that takes all inotify instances of its user, and returns what it got.
func hoard(t *testing.T, r *Runtime, ref string, user uint32) (n int) {
	t.Helper()
	s := probe(t, ref, "hoard")
	s.User = user
	h := start(t, r, s)
	log, err := r.Logs(t.Context(), h, runtime.Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	line, err := bufio.NewReader(log).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &n); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return n
}

// What the kernel gives to each user, one tenant may use up and another has all the same.
func TestAttackOneUserForAll(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	if err := r.sandbox.NoUsers(); err != nil {
		t.Skip(err)
	}
	ref := pulled(t, r, "plain", nil)
	base := uint32(os.Getpid()) % (runtime.MaxUser / 2) * 2
	all := hoard(t, r, ref, base+1)
	if again := hoard(t, r, ref, base+1); all == 0 || again != 0 {
		t.Fatalf("one user had %d and then %d: nothing is shown", all, again)
	}
	if other := hoard(t, r, ref, base+2); other != all {
		t.Errorf("another user has %d of %d", other, all)
	}
}

// A user of a number reads what is given to it to read, whoever has it, writes what is given to it to write, and what it writes is collected.
func TestUserOfASpec(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	if err := r.sandbox.NoUsers(); err != nil {
		t.Skip(err)
	}
	places := []testengine.File{{Path: "/run/own", Text: "there"}, {Path: "/tmp/own", Text: "there"}, {Path: "/data/own", Text: "there"}}
	ref := pulled(t, r, "places", func(c *v1.ConfigFile) { c.Config.Volumes = map[string]struct{}{"/data": {}} }, places...)
	in, out := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(in, "f"), []byte("read"), 0o400); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{in, out} {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := probe(t, ref, "owned", "/in", "/out")
	s.User, s.Secrets = 7, map[string][]byte{"key": []byte("value")}
	s.Mounts = []runtime.Mount{{Host: in, Guest: "/in", ReadOnly: true}, {Host: out, Guest: "/out"}}
	if got := strings.TrimSpace(run(t, r, s)); got != fmt.Sprint(sandbox.FirstUser+7, " /tmp job") {
		t.Errorf("it says %q", got)
	}
	if b, err := os.ReadFile(filepath.Join(out, "f")); err != nil || string(b) != "read" {
		t.Errorf("%q, %v", b, err)
	}
	info, err := os.Stat(filepath.Join(out, "f"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != sandbox.FirstUser+7 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, place := range []string{"/run", "/tmp", "/data"} { // of the image, which has them as root's
		s := probe(t, ref, "owned", "/in", place)
		s.User, s.Mounts = 7, []runtime.Mount{{Host: in, Guest: "/in", ReadOnly: true}}
		if got := strings.TrimSpace(run(t, r, s)); got != fmt.Sprint(sandbox.FirstUser+7, " /tmp job") {
			t.Errorf("in %s it says %q", place, got)
		}
	}
	if info, err := os.Stat(filepath.Join(in, "f")); err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
		t.Errorf("what is only read was given away: %+v, %v", info, err)
	}
}
