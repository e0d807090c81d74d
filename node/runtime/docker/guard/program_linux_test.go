package guard

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A name without a slash is found in the PATH of the command, else in the usual one; directories of it are absolute.
func TestLookPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a/tool": 0o755, "b/tool": 0o755, "a/data": 0o644, "b/data": 0o755} {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, mode))
		must(t, os.Chmod(path, mode))
	}
	both := "PATH=" + dir + "/a:" + dir + "/b"
	for _, test := range []struct {
		name string
		env  []string
		want string
	}{
		{"tool", []string{both}, dir + "/a/tool"},
		{"data", []string{both}, dir + "/b/data"},
		{"tool", []string{"PATH=" + dir + "/a", "PATH=" + dir + "/b"}, dir + "/b/tool"},
		{"tool", []string{"PATH=" + strings.TrimPrefix(dir, "/") + "/b"}, dir + "/b/tool"},
		{"/x/y", nil, "/x/y"},
		{"./y", nil, "/work/y"},
		{"../y", nil, "/y"},
		{"none", []string{both}, ""},
		{"tool", []string{"PATH="}, ""},
		{"tool", nil, ""},
		{"..", []string{both}, ""},
		{"a", []string{"PATH=" + dir}, ""},
	} {
		got, err := lookPath(Command{Argv: []string{test.name}, Env: test.env, Dir: "/work"})
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s with %q: %q, %v; want %q", test.name, test.env, got, err, test.want)
		}
	}
	if got, err := lookPath(Command{Argv: []string{"env"}, Dir: "/"}); err != nil || filepath.Base(got) != "env" {
		t.Errorf("in the usual directories: %q, %v", got, err)
	}
}

// A control group's files have a number, or lines of a name and a number.
func TestNumberIn(t *testing.T) {
	t.Parallel()
	const stat = "usage_usec 12\nuser_usec 7\nnr 18446744073709551615\nbad x\nlast 3"
	for _, test := range []struct {
		text, key string
		want      uint64
		ok        bool
	}{
		{stat, "usage_usec", 12, true},
		{stat, "user_usec", 7, true},
		{stat, "nr", math.MaxUint64, true},
		{stat, "last", 3, true},
		{stat, "usage", 0, false},
		{stat, "bad", 0, false},
		{stat, "", 0, false},
		{"4096\n", "", 4096, true},
		{"max\n", "", 0, false},
		{"-1\n", "", 0, false},
		{"18446744073709551616", "", 0, false},
		{"", "", 0, false},
	} {
		if got, ok := numberIn([]byte(test.text), test.key); ok != test.ok || ok && got != test.want {
			t.Errorf("%q of %q: %d, %v; want %d, %v", test.key, test.text, got, ok, test.want, test.ok)
		}
	}
}

func FuzzNumberIn(f *testing.F) {
	f.Add([]byte("usage_usec 12\nuser_usec 7"), "usage_usec")
	f.Add([]byte("4096\n"), "")
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		if n, ok := numberIn(text, key); ok && (len(text) == 0 || !strings.Contains(string(text), key)) {
			t.Errorf("%q of %q is %d", key, text, n)
		}
	})
}

// A volume is known by its size.
func TestCheckVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var s unix.Statfs_t
	must(t, unix.Statfs(dir, &s))
	o := Order{Writable: []string{dir}, Volume: Volume{Blocks: s.Blocks, Files: s.Files}}
	must(t, o.checkVolumes())
	for _, wrong := range []Volume{{s.Blocks + 1, s.Files}, {s.Blocks, s.Files + 1}} {
		o.Volume = wrong
		if err := o.checkVolumes(); err == nil {
			t.Errorf("a volume of %+v is taken for %+v", s, wrong)
		}
	}
	o.Volume = Volume{}
	must(t, o.checkVolumes())
	right := Volume{Blocks: s.Blocks, Files: s.Files}
	o.Rooms = []Room{{Dir: dir, Volume: right}}
	must(t, o.checkVolumes())
	o.Rooms = append(o.Rooms, Room{Dir: dir, Volume: Volume{Blocks: s.Blocks, Files: s.Files + 1}})
	if err := o.checkVolumes(); err == nil {
		t.Error("a mount with a limit of its own is in another volume")
	}
}
