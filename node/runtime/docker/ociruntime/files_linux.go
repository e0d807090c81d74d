package ociruntime

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ownFiles are the files that an engine mounts into every container, from its own disk or from the peer's. The
// container gets them in its layer, where it may change and replace them.
var ownFiles = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}

// maxOwnFile bounds each of ownFiles, in bytes.
const maxOwnFile = 1 << 20

// readFiles reads files of this machine, by their place in the container.
func readFiles(sources map[string]string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for target, source := range sources {
		f, err := os.OpenFile(source, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, fmt.Errorf("reading %s for %s: %w", source, target, err)
		}
		b, err := io.ReadAll(io.LimitReader(f, maxOwnFile+1))
		_ = f.Close()
		if err == nil && len(b) > maxOwnFile {
			err = fmt.Errorf("too long: want at most %d bytes", maxOwnFile)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s for %s: %w", source, target, err)
		}
		files[target] = b
	}
	return files, nil
}

// fillRoot writes the container's own files into its root and mounts /run on itself. Otherwise root of the container
// could replace /run, and with it the guard's directory.
func (b *builder) fillRoot(cfg *config, root string, base uint32) error {
	dir, err := os.OpenFile(root, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("opening root: %w", err)
	}
	defer dir.Close()
	r := tree{int(dir.Fd()), int(base)}
	for name, content := range b.files {
		if err := r.put(name, content); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	if err := r.ownDir("run"); err != nil {
		return fmt.Errorf("making /run: %w", err)
	}
	c, err := cloneTree(filepath.Join(root, "run"), false, unix.MountAttr{})
	if err != nil {
		return err
	}
	defer c.tree.Close()
	at, err := b.attach(c, "run")
	if err != nil {
		return err
	}
	run := mount{Destination: "/run", Type: "bind", Source: at, Options: []string{"rbind", "rprivate"}}
	cfg.mounts = slices.Insert(cfg.mounts, 0, run)
	return nil
}

// tree is a container's root, in which a stranger's image may have links to anywhere.
type tree struct {
	fd   int
	base int // root of the container
}

// put writes a file of the container's root, in place of the image's.
func (t tree) put(name string, content []byte) error {
	parent, err := t.open(path.Dir(name))
	if errors.Is(err, unix.ENOENT) {
		if err := t.ownDir(strings.TrimPrefix(path.Dir(name), "/")); err != nil {
			return err
		}
		parent, err = t.open(path.Dir(name))
	}
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	base := path.Base(name)
	if err := unix.Unlinkat(parent, base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("replacing the image's: %w", err)
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(parent, base, flags, 0o644)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	return errors.Join(err, f.Chown(t.base, t.base), f.Chmod(0o644), f.Close())
}

// open opens a directory as the container would: a link leads nowhere outside.
func (t tree) open(dir string) (int, error) {
	return unix.Openat2(t.fd, strings.TrimPrefix(dir, "/"), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// ownDir makes a directory at the top of the root, unless the image has one. A link or a file there is replaced.
func (t tree) ownDir(name string) error {
	var s unix.Stat_t
	err := unix.Fstatat(t.fd, name, &s, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && s.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	if err == nil {
		err = unix.Unlinkat(t.fd, name, 0)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := unix.Mkdirat(t.fd, name, 0o755); err != nil {
		return err
	}
	return errors.Join(unix.Fchownat(t.fd, name, t.base, t.base, unix.AT_SYMLINK_NOFOLLOW),
		unix.Fchmodat(t.fd, name, 0o755, 0))
}
