// Package wholefile replaces files as a whole, so that a reader sees the old or the new content at any moment, and so
// does a process that starts after this one crashed.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces a file, or makes it, with these permissions. It writes a temporary file beside it first, which it
// removes if it fails. The content is not synced to the disk: after a loss of power the file may have either content or
// none.
func Write(path string, b []byte, perm fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(perm), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
