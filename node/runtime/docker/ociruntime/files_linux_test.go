package ociruntime

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// imageRoot makes a root in which paths that end with a slash are directories, those with "> " links, and others files.
func imageRoot(t *testing.T, entries map[string]string) (dir string, r tree) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to give files to another user")
	}
	dir = filepath.Join(t.TempDir(), "root")
	err := os.Mkdir(dir, 0o755)
	for name, content := range entries {
		at := filepath.Join(dir, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o750))
		if target, link := strings.CutPrefix(content, "> "); link {
			err = errors.Join(err, os.Symlink(target, at))
		} else if strings.HasSuffix(name, "/") {
			err = errors.Join(err, os.MkdirAll(at, 0o750))
		} else {
			err = errors.Join(err, os.WriteFile(at, []byte(content), 0o600))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return dir, tree{int(f.Fd()), Base(1)}
}

// A file of the container is written within its root, whatever links the image has.
func TestPut(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		image map[string]string
		at    string // of the file, in the root; "" is a refusal
	}{
		"no directory":                  {nil, "etc/hosts"},
		"no file":                       {map[string]string{"etc/": ""}, "etc/hosts"},
		"a file":                        {map[string]string{"etc/hosts": "the image's"}, "etc/hosts"},
		"a link to a file outside":      {map[string]string{"etc/hosts": "> " + outside}, "etc/hosts"},
		"a link to nothing":             {map[string]string{"etc/hosts": "> ../run/none"}, "etc/hosts"},
		"a directory by a link":         {map[string]string{"etc": "> usr/etc", "usr/etc/": ""}, "usr/etc/hosts"},
		"an absolute link":              {map[string]string{"etc": "> /usr/etc", "usr/etc/": ""}, "usr/etc/hosts"},
		"a link above the root":         {map[string]string{"etc": "> ../../../usr/etc", "usr/etc/": ""}, "usr/etc/hosts"},
		"a link to a directory of none": {map[string]string{"etc": "> " + filepath.Dir(outside)}, "etc/hosts"},
		"a circle of links":             {map[string]string{"etc": "> usr", "usr": "> etc"}, ""},
		"a directory for the file":      {map[string]string{"etc/hosts/": ""}, ""},
		"a file for the directory":      {map[string]string{"etc": "x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, r := imageRoot(t, test.image)
			err := r.put("/etc/hosts", []byte("text"))
			if (err != nil) != (test.at == "") {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(outside); err != nil || string(b) != "kept" {
				t.Errorf("the file outside is %q, %v", b, err)
			}
			if err != nil {
				return
			}
			var s unix.Stat_t
			at := filepath.Join(dir, test.at)
			if err := unix.Lstat(at, &s); err != nil || s.Mode != unix.S_IFREG|0o644 || s.Uid != uint32(Base(1)) || s.Gid != s.Uid {
				t.Errorf("%+v, %v", s, err)
			}
			if b, err := os.ReadFile(at); err != nil || string(b) != "text" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}

// A directory at the top of the root is one afterwards; the image's stays as it is.
func TestOwnDir(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		image map[string]string
		mode  uint32
		user  uint32
	}{
		"none":        {nil, 0o755, uint32(Base(1))},
		"a directory": {map[string]string{"run/app/": ""}, 0o750, 0},
		"a link":      {map[string]string{"run": "> /var/run", "var/run/": ""}, 0o755, uint32(Base(1))},
		"a file":      {map[string]string{"run": "x"}, 0o755, uint32(Base(1))},
	} {
		dir, r := imageRoot(t, test.image)
		if err := r.ownDir("run"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var s unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, "run"), &s); err != nil || s.Mode != unix.S_IFDIR|test.mode || s.Uid != test.user {
			t.Errorf("%s: %o of %d, %v", name, s.Mode, s.Uid, err)
		}
	}
}

func TestReadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, long := filepath.Join(dir, "good"), filepath.Join(dir, "long")
	if err := errors.Join(os.WriteFile(good, []byte("x"), 0o600), os.WriteFile(long, make([]byte, maxOwnFile+1), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := readFiles(map[string]string{"/etc/hosts": good}); err != nil || string(got["/etc/hosts"]) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{long, dir, filepath.Join(dir, "none")} {
		if got, err := readFiles(map[string]string{"/etc/hosts": bad}); err == nil {
			t.Errorf("%s is read: %d bytes", bad, len(got["/etc/hosts"]))
		}
	}
}
