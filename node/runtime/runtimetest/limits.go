package runtimetest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

func testHello(t *testing.T, b *bench) {
	h := b.run(t, b.spec(t, "hello", "big", "world"), 0, runtime.ReasonNone)
	if out := b.log(t, h, runtime.Stdout); out != "hello big world\n" {
		t.Errorf("stdout %q", out)
	}
	if out := b.log(t, h, runtime.Stderr); out != "err\n" {
		t.Errorf("stderr %q", out)
	}
	if e := b.wait(t, h); !e.OK() || e != b.wait(t, h) {
		t.Error("a second wait returned another end")
	}
}

func testEnviron(t *testing.T, b *bench) {
	s := b.spec(t, "environ")
	s.Env = map[string]string{"STARLING_RANK": "3", "EMPTY": ""}
	h := b.run(t, s, 0, runtime.ReasonNone)
	b.environ(t, b.log(t, h, runtime.Stdout), "EMPTY=\nSTARLING_RANK=3\n")
}

func testExitCodes(t *testing.T, b *bench) {
	for _, code := range []string{"0", "1", "77"} {
		want := map[string]int{"0": 0, "1": 1, "77": 77}[code]
		b.run(t, b.spec(t, "exit", code), want, runtime.ReasonNone)
	}
}

func testMounts(t *testing.T, b *bench) {
	s := b.spec(t, "copy", "/in/a", "/out/b")
	must(t, os.WriteFile(filepath.Join(s.Mounts[0].Host, "a"), []byte("carried"), 0o644))
	b.run(t, s, 0, runtime.ReasonNone)
	got, err := os.ReadFile(filepath.Join(s.Mounts[1].Host, "b"))
	must(t, err)
	if string(got) != "carried" {
		t.Errorf("copied %q", got)
	}
	s = b.spec(t, "write", "/in/c")
	b.run(t, s, 1, runtime.ReasonNone)
	if _, err := os.Stat(filepath.Join(s.Mounts[0].Host, "c")); err == nil {
		t.Error("wrote into a read-only mount")
	}
}

func testEscape(t *testing.T, b *bench) {
	secret := filepath.Join(b.dir, "secret")
	must(t, os.MkdirAll(secret, 0o755))
	must(t, os.WriteFile(filepath.Join(secret, "key"), []byte("secret"), 0o644))
	s := b.spec(t, "escape", secret+"/key", "/out/file", "/out/dir/key", "/in/file", "/in/dir/key",
		"/out/up/secret/key", "/out/../../secret/key", "/out/chain/key", "/etc/passwd", "/out/new")
	for _, m := range s.Mounts {
		must(t, os.Symlink(filepath.Join(secret, "key"), filepath.Join(m.Host, "file")))
		must(t, os.Symlink(secret, filepath.Join(m.Host, "dir")))
		must(t, os.Symlink("../..", filepath.Join(m.Host, "up")))
		must(t, os.Symlink("dir", filepath.Join(m.Host, "chain")))
		must(t, os.Symlink(filepath.Join(secret, "new"), filepath.Join(m.Host, "new")))
	}
	b.run(t, s, 0, runtime.ReasonNone)
	entries, err := os.ReadDir(secret)
	must(t, err)
	if got, _ := os.ReadFile(filepath.Join(secret, "key")); string(got) != "secret" || len(entries) != 1 {
		t.Errorf("outside of the mounts: %q, %v", got, entries)
	}
}

func sizeOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		n += info.Size()
	}
	return n
}

func testDisk(t *testing.T, b *bench) {
	s := b.spec(t, "fill", "/out/big")
	// A name that is not UTF-8 must not stop the counting.
	must(t, os.Mkdir(filepath.Join(s.Mounts[1].Host, "\xff"), 0o755))
	if b.DiskKills {
		if e := b.wait(t, b.start(t, s)); e.Reason != runtime.ReasonDisk || e.OK() {
			t.Errorf("ended with %+v, want reason disk", e)
		}
		return
	}
	b.run(t, s, guest.CodeNoSpace, runtime.ReasonNone)
	if n := sizeOf(t, s.Mounts[1].Host); n > 1<<20 || n < 1<<19 {
		t.Errorf("a limit of 1 MiB left %d bytes", n)
	}
}

// A mount with a room of its own is limited by it alone, and may be full at the start. For a container, the room has to
// be a file system.
func testRoom(t *testing.T, b *bench) {
	s := b.spec(t, "fill", "/kept/big")
	kept := filepath.Join(filepath.Dir(s.Mounts[0].Host), "kept")
	must(t, os.Mkdir(kept, 0o755))
	s.Mounts = append(s.Mounts, runtime.Mount{Host: kept, Guest: "/kept", RoomMiB: 3})
	if b.Images {
		_, err := b.Runtime.Start(t.Context(), s)
		wantErr(t, "start with a room that is not bounded", err, runtime.ErrBadMount)
		return
	}
	b.run(t, s, guest.CodeNoSpace, runtime.ReasonNone)
	if n := sizeOf(t, kept); n > 3<<20 || n < 2<<20 {
		t.Errorf("a room of 3 MiB has %d bytes", n)
	}
	must(t, os.WriteFile(filepath.Join(kept, "old"), make([]byte, 4<<20), 0o644))
	for program, code := range map[string]int{"/out/big": guest.CodeNoSpace, "/kept/big": guest.CodeNoSpace} {
		s := b.spec(t, "fill", program)
		s.Mounts = append(s.Mounts, runtime.Mount{Host: kept, Guest: "/kept", RoomMiB: 3})
		b.run(t, s, code, runtime.ReasonNone)
		if n := sizeOf(t, s.Mounts[1].Host); program == "/out/big" && n < 1<<19 {
			t.Errorf("beside a full room, a limit of 1 MiB left %d bytes", n)
		}
	}
}

func testRefill(t *testing.T, b *bench) {
	s := b.spec(t, "refill", "/out/big", "3")
	s.Limits.DiskMiB = 4
	b.run(t, s, 0, runtime.ReasonNone)
}

func testDiskFullAtStart(t *testing.T, b *bench) {
	s := b.spec(t, "hello")
	must(t, os.WriteFile(filepath.Join(s.Mounts[1].Host, "old"), make([]byte, 2<<20), 0o644))
	_, err := b.Runtime.Start(t.Context(), s)
	wantErr(t, "start on a full mount", err, runtime.ErrBadMount)
}

func testMemory(t *testing.T, b *bench) {
	s := b.spec(t, "hog")
	h := b.start(t, s)
	if e := b.wait(t, h); e.Reason != runtime.ReasonOOM || e.Code == 0 {
		t.Fatalf("ended with %+v, want reason oom", e)
	}
}

func testWallTime(t *testing.T, b *bench) {
	s := b.spec(t, "spin")
	s.Limits.WallTime = 300 * time.Millisecond
	b.run(t, s, runtime.CodeTimeout, runtime.ReasonTimeout)
}
