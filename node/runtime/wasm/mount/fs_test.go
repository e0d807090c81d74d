package mount

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
	"golang.org/x/sys/unix"
)

const create = experimentalsys.O_RDWR | experimentalsys.O_CREAT

func newMount(t *testing.T, limit int64) (*FS, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return &FS{root: root, quota: &Quota{limit: limit, roots: []*os.Root{root}, writing: map[*file]struct{}{}}}, dir
}

func open(t *testing.T, m *FS, name string, flag experimentalsys.Oflag) experimentalsys.File {
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

// Two runs see the same metadata: inodes by the order in which they are seen, one time, one link, and sizes of files alone.
func TestSame(t *testing.T) {
	const epoch = 1_640_995_200_000_000_000
	view := func(names ...string) string {
		dir := t.TempDir()
		for i, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
				t.Fatal(err)
			}
			when := time.Unix(int64(i+1), 0)
			if err := os.Chtimes(filepath.Join(dir, name), when, when); err != nil {
				t.Fatal(err)
			}
		}
		q := NewQuota(1<<20, nil)
		q.Same(epoch)
		m, err := q.Open(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, name := range []string{"a", "b", "", "a"} {
			st, e := m.Stat(name)
			wantErrno(t, name, e, 0)
			fmt.Fprintln(&text, name, st.Dev, st.Ino, st.Nlink, st.Atim, st.Mtim, st.Ctim, st.Size)
		}
		return text.String()
	}
	first, second := view("a", "b"), view("b", "a")
	if first != second || !strings.Contains(first, "a 1 1 1 1640995200000000000 1640995200000000000 1640995200000000000 1") {
		t.Errorf("one run shows\n%sthe other\n%s", first, second)
	}
}

// A quota knows what was in its mounts before, and what was removed while it is open; its call-back comes once.
func TestQuotaOfSeveralMounts(t *testing.T) {
	hits := 0
	q := NewQuota(5*block, func() { hits++ })
	var mounts []*FS
	for range 2 {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "old"), make([]byte, 1), 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := q.Open(dir, false)
		if err != nil {
			t.Fatal(err)
		}
		mounts = append(mounts, m)
	}
	if _, err := q.Open(filepath.Join(t.TempDir(), "none"), true); err == nil {
		t.Error("a directory that is not there is opened")
	}
	if over, err := q.Over(); over != -block || err != nil { // each file is its content and a block
		t.Fatalf("%d bytes over, %v", over, err)
	}
	f := open(t, mounts[0], "new", create)
	_, e := f.Write(make([]byte, 1))
	if wantErrno(t, "a byte too many", e, experimentalsys.EIO); !q.Full() || hits != 1 {
		t.Errorf("full %v, %d calls", q.Full(), hits)
	}
	q.Begin()
	if _, e = f.Write(make([]byte, 1)); e == 0 || !q.Full() || hits != 1 {
		t.Errorf("%v, full %v, %d calls", e, q.Full(), hits)
	}
	wantErrno(t, "removing", mounts[1].Unlink("old"), 0)
	q.Begin()
	_, e = f.Write(make([]byte, 1))
	if wantErrno(t, "writing into the room of a removed file", e, 0); q.Full() {
		t.Error("it is full still")
	}
	wantErrno(t, "removing the open file", mounts[0].Unlink("new"), 0)
	if over, err := q.Over(); over != -block || err != nil {
		t.Errorf("%d bytes over with a removed file open, %v", over, err)
	}
	wantErrno(t, "closing", f.Close(), 0)
	if over, err := q.Over(); over != -3*block || err != nil {
		t.Errorf("%d bytes over after closing, %v", over, err)
	}
}

// TestAttackOffsets: sizes and offsets at the end of their range neither pass the quota nor overflow its sum.
func TestAttackOffsets(t *testing.T) {
	m, dir := newMount(t, 4*block)
	f := open(t, m, "f", create)
	for _, at := range []int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 62, 1<<62 - 1, 1 << 40} {
		if e := f.Truncate(at); e == 0 {
			t.Errorf("a file of %d bytes is made", at)
		}
		if n, e := f.Pwrite([]byte("xy"), at); e == 0 || n > 0 {
			t.Errorf("%d bytes are written at %d", n, at)
		}
		if _, e := f.Seek(at, io.SeekStart); e == 0 {
			if n, e := f.Write([]byte("xy")); e == 0 || n > 0 {
				t.Errorf("%d bytes are written after seeking to %d", n, at)
			}
		}
	}
	for _, at := range []int64{-1, math.MinInt64} {
		if e := f.Truncate(at); e == 0 {
			t.Errorf("a file of %d bytes is made", at)
		}
		if _, e := f.Pwrite([]byte("xy"), at); e == 0 {
			t.Errorf("written at %d", at)
		}
		if _, e := f.Seek(at, io.SeekStart); e == 0 {
			t.Errorf("seeks to %d", at)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "f")); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info, err)
	}
	if m.quota.used != block {
		t.Errorf("%d bytes are counted for an empty file", m.quota.used)
	}
}
