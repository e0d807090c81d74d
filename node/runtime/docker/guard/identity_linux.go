package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/passwd"
)

// errUser means that the image's user cannot run programs.
var errUser = errors.New("the image's user cannot be used")

// assume finds the user of programs, and gives it the directories of the order. Without an Identity programs have the
// guard's own user.
func (g *guard) assume() error {
	want := g.order.Identity
	if want == nil {
		return nil
	}
	found, err := passwd.Find(container{}, want.User)
	if err != nil {
		return fmt.Errorf("%w: %w", errUser, err)
	}
	g.account = &found
	g.setDefault("HOME", found.Home)
	if name, err := os.Hostname(); err == nil {
		g.setDefault("HOSTNAME", name)
	}
	for _, dir := range want.Directories {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making the volume %s of the image: %w", dir, err)
		}
	}
	if err := openToAll("/tmp"); err != nil {
		return err
	}
	writable := slices.Clone(g.order.Writable)
	for _, r := range g.order.Rooms {
		writable = append(writable, r.Dir)
	}
	for _, dir := range writable {
		if err := give(dir, int(found.UID), int(found.GID)); err != nil {
			return fmt.Errorf("giving the mount %s to the program's user: %w", dir, err)
		}
	}
	return nil
}

// setDefault sets a variable of programs, unless the image or the order has it.
func (g *guard) setDefault(name, value string) {
	env := &g.order.Command.Env
	if !slices.ContainsFunc(*env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
		*env = append(*env, name+"="+value)
	}
}

// own makes a pipe or terminal of a program its user's, so that the program can open it by name, as /dev/stdout.
func (g *guard) own(f *os.File) error {
	if g.account == nil {
		return nil
	}
	if err := f.Chown(int(g.account.UID), -1); err != nil {
		return fmt.Errorf("giving a %s to the program's user: %w", f.Name(), err)
	}
	return nil
}

// openToAll makes a directory for temporary files, unless the image or a mount has it.
func openToAll(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = os.Chmod(dir, 0o777|fs.ModeSticky)
	}
	if err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	return nil
}

// give makes a directory and all that is in it a user's. Links are not followed.
func give(dir string, uid, gid int) error {
	if uid == 0 && gid == 0 { // as the peer made it
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Lchown(".", uid, gid); err != nil {
		return err
	}
	return runtime.Walk(root, func(name string, _ fs.FileInfo) error { return root.Lchown(name, uid, gid) })
}

// credential is the user that a program starts with; nil is the guard's own.
func (g *guard) credential() *syscall.Credential {
	if g.account == nil {
		return nil
	}
	return &syscall.Credential{Uid: g.account.UID, Gid: g.account.GID, Groups: g.account.Groups}
}

// container is the container's file system. Opening a file never blocks.
type container struct{}

// Open implements fs.FS.
func (container) Open(name string) (fs.File, error) {
	return os.OpenFile("/"+name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}
