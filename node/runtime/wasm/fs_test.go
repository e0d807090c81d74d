package wasm

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
	"golang.org/x/sys/unix"
)

const create = experimentalsys.O_RDWR | experimentalsys.O_CREAT

func newMount(t *testing.T, limit int64) (*mountFS, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return &mountFS{root: root, quota: &quota{limit: limit, roots: []*os.Root{root}, writing: map[*file]struct{}{}}}, dir
}

func open(t *testing.T, m *mountFS, name string, flag experimentalsys.Oflag) experimentalsys.File {
	t.Helper()
	f, e := m.OpenFile(name, flag, 0o600)
	if e != 0 {
		t.Fatalf("opening %s: %v", name, e)
	}
	return f
}

func wantErrno(t *testing.T, what string, got, want experimentalsys.Errno) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestFileOperations(t *testing.T) {
	t.Parallel()
	m, dir := newMount(t, 1<<20)
	wantErrno(t, "mkdir", m.Mkdir("d", 0), 0)
	f := open(t, m, "d/f", create)
	if n, e := f.Write([]byte("hello world")); n != 11 || e != 0 {
		t.Fatal(n, e)
	}
	_, e := f.Pwrite([]byte("J"), 0)
	wantErrno(t, "pwrite", e, 0)
	b := make([]byte, 5)
	_, e = f.Pread(b, 0)
	if wantErrno(t, "pread", e, 0); string(b) != "Jello" {
		t.Errorf("%q", b)
	}
	n, e := f.Seek(-5, io.SeekEnd)
	if wantErrno(t, "seek", e, 0); n != 6 {
		t.Errorf("at %d", n)
	}
	_, _ = f.Read(b)
	if n, e := f.Read(b); n != 0 || e != 0 {
		t.Errorf("at the end: %d, %v", n, e)
	}
	wantErrno(t, "truncate", f.Truncate(5), 0)
	wantErrno(t, "append", f.SetAppend(true), 0)
	_, _ = f.Seek(0, io.SeekStart)
	_, _ = f.Write([]byte("y"))
	wantErrno(t, "utimens", f.Utimens(1e9, experimentalsys.UTIME_OMIT), 0)
	wantErrno(t, "sync", f.Sync(), 0)
	wantErrno(t, "close", f.Close(), 0)
	if got, _ := os.ReadFile(filepath.Join(dir, "d", "f")); string(got) != "Jelloy" {
		t.Errorf("%q", got)
	}
	wantErrno(t, "rename", m.Rename("d/f", "g"), 0)
	wantErrno(t, "unlink of a directory", m.Unlink("d"), experimentalsys.EISDIR)
	wantErrno(t, "rmdir of a file", m.Rmdir("g"), experimentalsys.ENOTDIR)
	wantErrno(t, "rmdir", m.Rmdir("d/"), 0)
	wantErrno(t, "chmod", m.Chmod("g", 0), 0)
	if info, _ := os.Stat(filepath.Join(dir, "g")); info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", info.Mode())
	}
	wantErrno(t, "unlink", m.Unlink("g"), 0)
	_, e = m.OpenFile("g", experimentalsys.O_RDONLY, 0)
	wantErrno(t, "open of nothing", e, experimentalsys.ENOENT)
}

func TestReaddirIsSorted(t *testing.T) {
	t.Parallel()
	m, _ := newMount(t, 1<<20)
	for _, n := range []string{"c", "a", "b"} {
		_ = open(t, m, n, create).Close()
	}
	d := open(t, m, ".", experimentalsys.O_RDONLY)
	defer d.Close()
	for range 2 {
		var names []string
		for {
			entries, e := d.Readdir(2)
			wantErrno(t, "readdir", e, 0)
			if len(entries) == 0 {
				break
			}
			for _, x := range entries {
				names = append(names, x.Name)
			}
		}
		if !reflect.DeepEqual(names, []string{"a", "b", "c"}) {
			t.Errorf("%v", names)
		}
		_, e := d.Seek(0, io.SeekStart)
		wantErrno(t, "rewind", e, 0)
	}
}

func TestReadOnlyMount(t *testing.T) {
	t.Parallel()
	m, dir := newMount(t, 1<<20)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	m.readOnly = true
	for what, e := range map[string]experimentalsys.Errno{
		"mkdir": m.Mkdir("d", 0), "rename": m.Rename("f", "g"), "unlink": m.Unlink("f"), "rmdir": m.Rmdir("f"), "chmod": m.Chmod("f", 0),
		"utimens": m.Utimens("f", 0, 0),
	} {
		wantErrno(t, what, e, experimentalsys.EROFS)
	}
	for _, flag := range []experimentalsys.Oflag{create, experimentalsys.O_RDWR, experimentalsys.O_WRONLY, experimentalsys.O_RDONLY | experimentalsys.O_TRUNC} {
		_, e := m.OpenFile("f", flag, 0)
		wantErrno(t, "open", e, experimentalsys.EROFS)
	}
	f := open(t, m, "f", experimentalsys.O_RDONLY)
	defer f.Close()
	_, e := f.Write([]byte("y"))
	wantErrno(t, "write", e, experimentalsys.EBADF)
	wantErrno(t, "truncate", f.Truncate(0), experimentalsys.EBADF)
	wantErrno(t, "futimens", f.Utimens(0, 0), experimentalsys.EROFS)
}

func TestLinksAndDevices(t *testing.T) {
	t.Parallel()
	m, dir := newMount(t, 1<<20)
	wantErrno(t, "symlink", m.Symlink("/etc/passwd", "l"), experimentalsys.EPERM)
	wantErrno(t, "link", m.Link("a", "b"), experimentalsys.EPERM)
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, e := m.OpenFile("fifo", experimentalsys.O_RDONLY, 0)
	wantErrno(t, "a fifo", e, experimentalsys.EACCES)
	outside := t.TempDir()
	for link, target := range map[string]string{"abs": outside, "rel": "../" + filepath.Base(outside), "self": ".", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"abs/x", "rel/x", "self/../x/../../x", "../x", "loop/x"} {
		if _, e := m.OpenFile(p, create, 0o600); e == 0 {
			t.Errorf("%s was opened", p)
		}
		for what, e := range map[string]experimentalsys.Errno{"mkdir": m.Mkdir(p, 0), "unlink": m.Unlink(p), "rename": m.Rename("fifo", p), "chmod": m.Chmod(p, 0)} {
			if e == 0 {
				t.Errorf("%s of %s worked", what, p)
			}
		}
	}
	f := open(t, m, "self/inside", create) // a link that stays inside may be followed
	_ = f.Close()
	_, e = m.OpenFile("self", experimentalsys.O_RDONLY|experimentalsys.O_NOFOLLOW, 0)
	wantErrno(t, "nofollow", e, experimentalsys.ELOOP)
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("outside: %v", left)
	}
}

func TestQuota(t *testing.T) {
	t.Parallel()
	m, _ := newMount(t, 10*block)
	hits := 0
	m.quota.onHit = func() { hits++ }
	f := open(t, m, "f", create)
	_, e := f.Write(make([]byte, 9*block))
	wantErrno(t, "all there is", e, 0)
	_, e = f.Write([]byte("x"))
	if wantErrno(t, "one byte more", e, experimentalsys.EIO); !m.quota.full {
		t.Error("not marked as full")
	}
	_, e = f.Pwrite([]byte("x"), 8*block)
	wantErrno(t, "writing over what is there", e, 0)
	wantErrno(t, "growing by truncate", f.Truncate(1<<40), experimentalsys.EIO)
	wantErrno(t, "absurd truncate", f.Truncate(1<<62), experimentalsys.EINVAL)
	wantErrno(t, "mkdir", m.Mkdir("d", 0), experimentalsys.EIO)
	wantErrno(t, "unlink", m.Unlink("f"), 0)
	wantErrno(t, "mkdir while the removed file is open", m.Mkdir("d", 0), experimentalsys.EIO)
	wantErrno(t, "close", f.Close(), 0)
	wantErrno(t, "mkdir then", m.Mkdir("d", 0), 0)
	if hits != 1 {
		t.Errorf("told %d times", hits)
	}
	made := 1
	for ; ; made++ {
		f, e := m.OpenFile("d/"+string(rune('a'+made)), create, 0)
		if e != 0 {
			break
		}
		_ = f.Close()
	}
	if made != 10 {
		t.Errorf("%d empty files and directories in 10 blocks", made)
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	t.Parallel()
	m, _ := newMount(t, 1<<20)
	var files []experimentalsys.File
	for range maxOpen {
		files = append(files, open(t, m, "f", create))
	}
	_, e := m.OpenFile("f", create, 0)
	wantErrno(t, "one too many", e, experimentalsys.EAGAIN)
	for _, f := range files {
		wantErrno(t, "close", f.Close(), 0)
		_ = f.Close()
	}
	if m.quota.open != 0 || len(m.quota.writing) != 0 {
		t.Errorf("%d open, %d of them for writing", m.quota.open, len(m.quota.writing))
	}
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"phase":"ended","pid":7,"cpu_millis":5,"memory_mib":3,"exit":{"code":1,"reason":"oom","started":"2022-01-01T00:00:00Z","ended":"2022-01-01T00:00:01Z"}}`))
	f.Add([]byte(`{"phase":"running","pid":1}`))
	f.Add([]byte(`{"phase":"gone","pid":1}{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeStatus(b)
		if err != nil {
			return
		}
		dir := t.TempDir()
		if err := writeState(dir, statusFile, s); err != nil {
			t.Skip() // a time zone that JSON cannot say
		}
		again, err := readStatus(dir)
		if err != nil || again.Phase != s.Phase || again.Pid != s.Pid || again.Exit.Code != s.Exit.Code || !again.Exit.Ended.Equal(s.Exit.Ended) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}

func FuzzSpec(f *testing.F) {
	f.Add([]byte(`{"spec":{"id":"a","module":"/m","limits":{"memory_mib":1},"dir":"/x/run","mounts":[{"host":"/x/in","guest":"/in"}]},"cache_dir":"/c","grace":1000}`))
	f.Add([]byte(`{"spec":{"id":"../a"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSpec(b)
		if err != nil {
			return
		}
		dir := t.TempDir()
		if err := writeState(dir, specFile, s); err != nil {
			t.Fatal(err)
		}
		again, err := readSpec(dir)
		if err != nil || again.Spec.ID != s.Spec.ID || len(again.Spec.Mounts) != len(s.Spec.Mounts) || again.Grace != s.Grace {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}

// A crash while a state file is written leaves the old one.
func TestStateIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := status{Phase: phaseRunning, Pid: 1, Exit: runtime.Exit{Started: time.Unix(1, 0).UTC()}}
	if err := writeState(dir, statusFile, first); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "."+statusFile+".99"), []byte(`{"phase":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readStatus(dir); err != nil || got.Pid != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, statusFile), make([]byte, maxStateFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readStatus(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a huge status was read: %v", err)
	}
}
