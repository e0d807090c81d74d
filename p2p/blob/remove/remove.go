// Package remove removes directories that a hostile program filled.
package remove

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
)

// All removes dir and its content. A missing dir is not an error. os.RemoveAll holds a descriptor for each level and
// stops at a directory without permissions. All moves every non-empty directory up beneath dir, empties it there, and
// holds at most three descriptors. A later call finishes an interrupted one.
func All(dir string) error {
	err := os.Remove(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !filled(err) {
		return err
	}
	_ = os.Chmod(dir, 0o700)
	if err := Empty(dir); err != nil {
		return err
	}
	return os.Remove(dir)
}

// Empty removes the content of dir.
func Empty(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	err = Contents(root)
	if err = errors.Join(err, root.Close()); err != nil {
		return fmt.Errorf("emptying %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// Contents removes the content of root.
func Contents(root *os.Root) error {
	// A program that filled root could not know these names, so they are never in use.
	up := remover{root: root, prefix: fmt.Sprintf("rm-%016x-", rand.Uint64())}
	for {
		removed, err := eachName(root, func(name string) error {
			err := root.Remove(name)
			if !filled(err) {
				return err
			}
			// The last directory that came up is next: a chain of them is taken link by link.
			for err = nil; err == nil && name != ""; {
				name, err = up.flatten(name)
			}
			return err
		})
		if err != nil || removed == 0 {
			return err
		}
	}
}

// filled reports whether a directory could not be removed because something is in it.
func filled(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

// remover moves directories up beneath root.
type remover struct {
	root   *os.Root
	prefix string
	moved  int
}

// flatten removes a directory beneath root. Its entries are removed, or moved up if they are directories that are not
// empty. last is the new name of the last one moved, "" for none.
func (u *remover) flatten(dir string) (last string, err error) {
	_ = u.root.Chmod(dir, 0o700) // without it a directory can be neither listed nor moved
	at, err := u.root.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer at.Close()
	for {
		removed, err := eachName(at, func(name string) error {
			err := at.Remove(name)
			if !filled(err) {
				return err
			}
			_ = at.Chmod(name, 0o700)
			last = fmt.Sprint(u.prefix, u.moved)
			u.moved++
			return u.root.Rename(filepath.Join(dir, name), last)
		})
		if err != nil {
			return "", err
		}
		if removed > 0 {
			continue // while a directory changes, a look at it may miss a name
		}
		return last, u.root.Remove(dir)
	}
}

// eachName calls remove with the name of each entry of root and returns how many of them are gone.
func eachName(root *os.Root, remove func(name string) error) (gone int, err error) {
	d, err := root.Open(".")
	if err != nil {
		return 0, err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			err := remove(name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return gone, err
			}
			if err == nil {
				gone++
			}
		}
		if errors.Is(err, io.EOF) {
			return gone, nil
		}
		if err != nil {
			return gone, err
		}
	}
}
