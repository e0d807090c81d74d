//go:build unix

package live

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// give makes the files unpacked at name, and the directories made for them below dir, belong to the owner of root: a
// program with its own user needs access. Only a process of the machine's root can do so, and only it needs to.
func give(root *os.Root, dir, name string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	to := info.Sys().(*syscall.Stat_t) // os.Root gives nothing else
	for ; name != "." && name != dir; name = path.Dir(name) {
		if err := root.Lchown(name, int(to.Uid), int(to.Gid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
