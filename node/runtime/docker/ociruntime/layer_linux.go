package ociruntime

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// layer is the directory for the files that a container writes.
type layer struct {
	dir  *os.File
	base uint32 // first user of the range
}

// openLayer opens the directory that the peer made, and refuses any other.
func openLayer(path string) (*layer, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", path, err)
	}
	l := &layer{dir: os.NewFile(uintptr(fd), path)}
	if err := l.check(); err != nil {
		_ = l.dir.Close()
		return nil, fmt.Errorf("layer %s: %w", path, err)
	}
	return l, nil
}

func (l *layer) check() error {
	var s unix.Stat_t
	if err := unix.Fstat(int(l.dir.Fd()), &s); err != nil {
		return err
	}
	if !isBase(s.Uid) || s.Gid != s.Uid {
		return fmt.Errorf("owner: got %d:%d, want the first user and group of a range from %d to %d",
			s.Uid, s.Gid, FirstBase, uint32(lastBase))
	}
	if s.Mode&0o077 != 0 {
		return fmt.Errorf("mode: got %#o, want no rights for group and others", s.Mode&0o777)
	}
	if names, err := l.dir.Readdirnames(1); !errors.Is(err, io.EOF) {
		return fmt.Errorf("content: got %q, %v, want none", names, err)
	}
	l.base = s.Uid
	return nil
}

// fill makes the directories of an overlay in the layer. The upper one is the root of the container, and has mode and
// owner of the image's.
func (l *layer) fill(image string) error {
	var root unix.Stat_t
	if err := unix.Stat(image, &root); err != nil {
		return fmt.Errorf("looking at the root of the image: %w", err)
	}
	at := int(l.dir.Fd())
	err := errors.Join(unix.Mkdirat(at, "upper", 0o700), unix.Mkdirat(at, "work", 0o700))
	if err != nil {
		return fmt.Errorf("making layer: %w", err)
	}
	fd, err := unix.Openat(at, "upper", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("making layer: %w", err)
	}
	defer unix.Close(fd)
	err = errors.Join(unix.Fchown(fd, l.inRange(root.Uid), l.inRange(root.Gid)), unix.Fchmod(fd, root.Mode&0o7777))
	if err != nil {
		return fmt.Errorf("making layer: %w", err)
	}
	return nil
}

// inRange returns the user of this machine that an image's user is mapped to.
func (l *layer) inRange(id uint32) int {
	if id >= RangeSize {
		id = 0
	}
	return int(l.base + id)
}
