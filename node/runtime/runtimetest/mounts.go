package runtimetest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/starling-network/starling/node/runtime"
)

const block = 4096

// mount is one mount of a Fake's execution. os.Root keeps every path, symlinks included, inside the host directory.
type mount struct {
	runtime.Mount
	root *os.Root
}

type mounts []mount

func openMounts(specs []runtime.Mount) (mounts, error) {
	var ms mounts
	for _, s := range specs {
		root, err := os.OpenRoot(s.Host)
		if err != nil {
			ms.close()
			return nil, fmt.Errorf("%w: %w", runtime.ErrBadMount, err)
		}
		ms = append(ms, mount{s, root})
	}
	return ms, nil
}

func (ms mounts) close() {
	for _, m := range ms {
		_ = m.root.Close()
	}
}

func (ms mounts) resolve(op, name string) (mount, string, error) {
	name = path.Clean(name)
	for _, m := range ms {
		if name == m.Guest {
			return m, ".", nil
		}
		if rel, ok := strings.CutPrefix(name, m.Guest+"/"); ok {
			return m, rel, nil
		}
	}
	return mount{}, "", &fs.PathError{Op: op, Path: name, Err: syscall.ENOENT}
}

// used is the size of the writable mounts in bytes: whole blocks for each file, one for each directory.
func (ms mounts) used() int64 {
	var n int64
	for _, m := range ms {
		if m.ReadOnly {
			continue
		}
		_ = fs.WalkDir(m.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || name == "." {
				return nil
			}
			n += block
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
				n += (info.Size() + block - 1) / block * block
			}
			return nil
		})
	}
	return n
}
