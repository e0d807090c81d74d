package guard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// passwdFiles are the files of an image with a user, and a directory to give to it.
var passwdFiles = map[string]string{
	"etc/passwd": "root:x:0:0::/root:\nml:x:1234:55::/home/ml:\n",
	"etc/group":  "ml:x:55:\nextra:x:77:ml\n",
	"vol/":       "",
	"vol/in":     "x",
}

// A program has the user, groups and home of the image's files, and owns what is made for it.
func TestIdentity(t *testing.T) {
	t.Parallel()
	for user, want := range map[string][]string{
		"ml": {
			"user 1234 55 [77] /home/ml\n", "at /run/secrets dr-x------ 1234 55\n", "at /run/secrets/key -r-------- 1234 55\n", "at /tmp dtrwxrwxrwx 0 0\n",
			"at /vol drwxr-xr-x 1234 55\n", "at /vol/in -rwxr-xr-x 1234 55\n", "at /made/deep drwxr-xr-x 0 0\n", "at /etc/passwd -rwxr-xr-x 0 0\n", "key its own <nil>\n",
		},
		"ml:0":      {"user 1234 0 [] /home/ml\n", "at /vol drwxr-xr-x 1234 0\n"},
		"4321:1111": {"user 4321 1111 [] /\n", "at /run/secrets dr-x------ 4321 1111\n"},
		"":          {"user 0 0 [] /root\n", "at /vol drwxr-xr-x 0 0\n", "key its own <nil>\n"},
	} {
		t.Run("user "+user, func(t *testing.T) {
			t.Parallel()
			b := started(t, layout{Files: passwdFiles}, func(o *Order) {
				o.Identity = &Identity{User: user, Directories: []string{"/made/deep", "/vol"}}
				o.Writable, o.DiskBytes = []string{"/vol"}, 1<<20
				o.Secrets = map[string][]byte{"key": []byte("its own")}
			}, "self")
			if r := b.end(); r.Code != 0 {
				t.Errorf("report %+v", r)
			}
			for _, line := range want {
				if out := b.output("stdout"); !strings.Contains(out, line) {
					t.Errorf("no %q in\n%s", line, out)
				}
			}
		})
	}
}

// The home of an order has precedence over the image's.
func TestHome(t *testing.T) {
	t.Parallel()
	b := started(t, layout{Files: passwdFiles}, func(o *Order) {
		o.Command.Env, o.Identity = []string{"HOME=/elsewhere"}, &Identity{User: "ml"}
	}, "self")
	if out := b.prints("stdout", "key"); !strings.Contains(out, "user 1234 55 [77] /elsewhere\n") {
		t.Errorf("it printed %s", out)
	}
}

// The files of an image neither block the guard, nor make it read without end, nor give a user beyond the range.
func TestAttackIdentity(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		user  string
		files map[string]string
	}{
		"no entry":         {"ml", map[string]string{"etc/passwd": "root:x:0:0::/:"}},
		"a pipe":           {"ml", map[string]string{"etc/passwd": "pipe"}},
		"a pipe of groups": {"ml", map[string]string{"etc/passwd": passwdFiles["etc/passwd"], "etc/group": "pipe"}},
		"a directory":      {"ml", map[string]string{"etc/passwd/": ""}},
		"a long line":      {"ml", map[string]string{"etc/passwd": strings.Repeat("x", 1<<17) + "\n" + passwdFiles["etc/passwd"]}},
		"too large a user": {"ml", map[string]string{"etc/passwd": "ml:x:65536:0::/:"}},
		"the largest":      {"4294967295", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, layout{Files: test.files})
			a := b.run(func(o *Order) { o.Identity = &Identity{User: test.user} }, "self")
			if !a.BadUser || !strings.Contains(a.Error, "the image's user cannot be used: ") {
				t.Errorf("answer %+v", a)
			}
		})
	}
}

// The image's name for a directory is not followed out of a mount: a link in it is given, not its target.
func TestAttackGivesLinks(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to give files away")
	}
	outside, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	must(t, errors.Join(os.WriteFile(secret, nil, 0o600), os.MkdirAll(filepath.Join(dir, "a/b"), 0o700), os.WriteFile(filepath.Join(dir, "a/b/f"), nil, 0o600),
		os.Symlink(secret, filepath.Join(dir, "a/link")), os.Symlink(outside, filepath.Join(dir, "dir")), os.Symlink("/none", filepath.Join(dir, "broken"))))
	must(t, give(dir, 7, 8))
	for name, want := range map[string]uint32{secret: 0, outside: 0, dir: 7, dir + "/a": 7, dir + "/a/b": 7, dir + "/a/b/f": 7, dir + "/a/link": 7, dir + "/dir": 7, dir + "/broken": 7} {
		info, err := os.Lstat(name)
		must(t, err)
		stat := info.Sys().(*syscall.Stat_t)
		if stat.Uid != want || want != 0 && stat.Gid != 8 {
			t.Errorf("%s belongs to %d:%d, want user %d", name, stat.Uid, stat.Gid, want)
		}
	}
	must(t, give(dir, 0, 0)) // as the peer made it: nothing changes
	if info, err := os.Stat(dir); err != nil || info.Sys().(*syscall.Stat_t).Uid != 7 {
		t.Errorf("a directory is given to root, %v", err)
	}
	if err := give(filepath.Join(dir, "none"), 7, 8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("giving nothing: %v", err)
	}
}

// A directory for temporary files is made for all users, and one of the image is left as it is.
func TestOpenToAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made, there, link := filepath.Join(dir, "made"), filepath.Join(dir, "there"), filepath.Join(dir, "link")
	must(t, errors.Join(os.Mkdir(there, 0o700), os.Symlink("nowhere", link)))
	for _, name := range []string{made, there, link} {
		must(t, openToAll(name))
	}
	for name, want := range map[string]fs.FileMode{made: fs.ModeDir | fs.ModeSticky | 0o777, there: fs.ModeDir | 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("the target of a link is made")
	}
	if err := openToAll(filepath.Join(dir, "none/made")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
}

// Opening a file of a container does not wait for another process.
func TestContainerOpens(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	f, err := container{}.Open(strings.TrimPrefix(pipe, "/"))
	must(t, err)
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("%v, %v", info, err)
	}
}
