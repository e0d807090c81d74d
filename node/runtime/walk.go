package runtime

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// maxWalkDepth bounds the nesting of directories in a walk: each access costs a step for each directory above, so that
// an endless chain would keep the walker busy forever.
const maxWalkDepth = 256

// ErrDeep means that directories lie deeper in each other than they are walked.
var ErrDeep = errors.New("directories too deep in each other")

// Walk calls fn for every entry below root, a directory before its entries and otherwise in no order. It stops at the
// first error of fn and returns it; fs.SkipAll ends it without an error. It is meant for trees that a job changes
// during the walk: links are not followed, and entries that vanish or cannot be read are skipped. Any name is accepted;
// fs.WalkDir refuses names that are not UTF-8. One directory is open at a time. Walk returns ErrDeep below 256 levels.
func Walk(root *os.Root, fn func(name string, info fs.FileInfo) error) error {
	type dir struct {
		name string
		info fs.FileInfo // nil for root itself
	}
	dirs := []dir{{name: "."}}
	for len(dirs) > 0 {
		d := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		err := walkDir(root, d.name, d.info, func(name string, info fs.FileInfo) error {
			if info.IsDir() {
				dirs = append(dirs, dir{name, info})
			}
			return fn(name, info)
		})
		if errors.Is(err, fs.SkipAll) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walkDir calls fn with the entries of one directory, unless another directory has its name now.
func walkDir(root *os.Root, name string, was fs.FileInfo, fn func(string, fs.FileInfo) error) error {
	if strings.Count(name, "/") >= maxWalkDepth {
		return fmt.Errorf("%w: more than %d", ErrDeep, maxWalkDepth)
	}
	at, err := root.OpenRoot(name)
	if err != nil {
		return ignoreGone(err)
	}
	defer at.Close()
	if is, err := at.Stat("."); err != nil || was != nil && !os.SameFile(was, is) {
		return ignoreGone(err)
	}
	list, err := at.Open(".")
	if err != nil {
		return ignoreGone(err)
	}
	defer list.Close()
	for {
		entries, err := list.ReadDir(1024)
		for _, e := range entries {
			info, err := at.Lstat(e.Name())
			if err == nil {
				err = fn(path.Join(name, e.Name()), info)
			}
			if err := ignoreGone(err); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return ignoreGone(err)
		}
	}
}

// ignoreGone ignores the errors that a program may cause by changing its files during a walk.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}
