package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	loopControl = "/dev/loop-control"
	// loopTries bounds the devices that others take first.
	loopTries = 64
)

// Make makes dir, which must be absent or empty, a volume with room for the given bytes and Files(bytes) files. The
// volume belongs to root. It returns ErrUnavailable or ErrNoRoom.
func Make(ctx context.Context, dir string, bytes int64) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making volume: %w", err)
	}
	file, err := unnamed(filepath.Dir(dir))
	if err == nil {
		defer file.Close()
		err = install(ctx, file, dir, Size(bytes), Files(bytes), false)
	}
	if err != nil {
		return fmt.Errorf("making volume: %w", err)
	}
	return nil
}

// Keep is Make of a volume that survives a restart of the machine in a file, which must be absent. Whoever removes the
// file calls Release before. After an error there is no file.
func Keep(ctx context.Context, dir, path string, bytes int64) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making volume: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("making volume: %w", err)
	}
	defer file.Close()
	if err := install(ctx, file, dir, KeptSize(bytes), Files(bytes), true); err != nil {
		return errors.Join(fmt.Errorf("making volume: %w", err), os.Remove(path))
	}
	return nil
}

// Remount mounts a volume of Keep at its directory, unless it is mounted there.
func Remount(dir, path string) error {
	if mounted, err := Mounted(dir); err != nil || len(mounted) > 0 {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("mounting volume: %w", err)
	}
	defer file.Close()
	if err := mount(file, dir); err != nil {
		return fmt.Errorf("mounting volume: %w", err)
	}
	return nil
}

// install makes file a file system of size bytes and mounts it at dir.
func install(ctx context.Context, file *os.File, dir string, size, files int64, journaled bool) error {
	if err := allocate(file, filepath.Dir(dir), size); err != nil {
		return err
	}
	if err := format(ctx, file, files, journaled); err != nil {
		return err
	}
	if err := mount(file, dir); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, "lost+found")); err != nil {
		return errors.Join(err, Release(dir))
	}
	return nil
}

// mount mounts the file system in file at dir.
func mount(file *os.File, dir string) error {
	device, err := attach(file)
	if err != nil {
		return err
	}
	defer device.Close() // the mount keeps it
	// Tables that were never written read as zeros, and freed blocks stay allocated.
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
	if err := unix.Mount(device.Name(), dir, "ext4", flags, "noinit_itable,nodiscard"); err != nil {
		return fmt.Errorf("%w: mounting %s: %w", ErrUnavailable, device.Name(), err)
	}
	return nil
}

// unnamed makes a file without a name.
func unnamed(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: its disk has no files without names: %w", ErrUnavailable, err)
	}
	return os.NewFile(uintptr(fd), "volume"), nil
}

// allocate gives a file on the disk of dir all its blocks.
func allocate(file *os.File, dir string, size int64) error {
	var free unix.Statfs_t
	if err := unix.Statfs(dir, &free); err != nil {
		return fmt.Errorf("looking at the disk: %w", err)
	}
	if room := int64(free.Bavail)*int64(free.Bsize) - Reserve; room < size {
		return fmt.Errorf("%w: %d MiB free, of which %d MiB are reserved, need %d MiB",
			ErrNoRoom, max(room, 0)>>20, Reserve>>20, size>>20)
	}
	err := unix.Fallocate(int(file.Fd()), 0, 0, size)
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	case err != nil:
		return fmt.Errorf("%w: its disk cannot allocate a file before it is written: %w", ErrUnavailable, err)
	}
	return nil
}

// format makes a file system for this many files.
func format(ctx context.Context, file *os.File, files int64, journaled bool) error {
	const seen = "/proc/self/fd/3" // the first of ExtraFiles
	own := []string{"-O", "^has_journal,^resize_inode,sparse_super2"}
	if journaled {
		own = []string{"-O", "^resize_inode,sparse_super2", "-J", fmt.Sprintf("size=%d", journal>>20)}
	}
	cmd := exec.CommandContext(ctx, "mke2fs", append(own, "-q", "-F", "-t", "ext4",
		"-b", "4096", "-I", "256", "-N", strconv.FormatInt(files, 10), "-m", "0",
		"-E", "lazy_itable_init=1,nodiscard,num_backup_sb=0", seen)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "LC_ALL=C"}
	if path, err := exec.LookPath("mke2fs"); err == nil {
		cmd.Path, cmd.Err = path, nil
	} else if _, err := os.Stat("/usr/sbin/mke2fs"); err == nil { // not in the PATH of every service
		cmd.Path, cmd.Err = "/usr/sbin/mke2fs", nil
	}
	cmd.ExtraFiles = []*os.File{file}
	var said bytes.Buffer
	cmd.Stderr = &said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: mke2fs is not installed (e2fsprogs)", ErrUnavailable)
	case err != nil:
		return fmt.Errorf("%w: mke2fs: %w: %.200s", ErrUnavailable, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// attach makes file the content of a loop device while the device is open or mounted.
func attach(file *os.File) (*os.File, error) {
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: no loop devices: %w", ErrUnavailable, err)
	}
	defer control.Close()
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("%w: no free loop device: %w", ErrUnavailable, err)
		}
		device, err := openLoop(n)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		// Not all disks support this; the kernel then ignores it.
		config := unix.LoopConfig{
			Fd:   uint32(file.Fd()),
			Size: 4096,
			Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO},
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		_ = device.Close()
		if !errors.Is(err, unix.EBUSY) { // another process was faster
			return nil, fmt.Errorf("%w: configuring loop device %d: %w", ErrUnavailable, n, err)
		}
	}
	return nil, fmt.Errorf("%w: others took every free loop device", ErrUnavailable)
}

// openLoop opens a loop device; its node may be missing where /dev is not the kernel's own.
func openLoop(n int) (*os.File, error) {
	name := fmt.Sprintf("/dev/loop%d", n)
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.Mknod(name, unix.S_IFBLK|0o600, int(unix.Mkdev(Major, uint32(n))))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("making %s: %w", name, err)
		}
		f, err = os.OpenFile(name, os.O_RDWR, 0)
	}
	return f, err
}

// Try makes a small volume in scratch and takes it away again. It returns nil if process pid, which is to use volumes
// too, sees it; else ErrUnavailable.
func Try(ctx context.Context, scratch string, pid int) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: the peer is not root", ErrUnavailable)
	}
	dir, err := os.MkdirTemp(scratch, "trial-")
	if err != nil {
		return fmt.Errorf("trying a volume: %w", err)
	}
	defer os.Remove(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return fmt.Errorf("trying a volume: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("trying a volume: %w", err)
	}
	if err := Make(ctx, dir, 1<<20); err != nil {
		return err
	}
	var ours, theirs unix.Stat_t
	err = unix.Stat(dir, &ours)
	if err == nil {
		err = unix.Stat(fmt.Sprintf("/proc/%d/root%s", pid, dir), &theirs)
	}
	if gone := Release(dir); err == nil {
		err = gone
	}
	if err == nil && ours.Dev != theirs.Dev {
		err = errors.New("container engine: does not see the mounts of this peer: run both in one mount namespace")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// Release unmounts the volumes at and below dir. A volume that a container has mounted is freed when that container
// ends.
func Release(dir string) error {
	mounted, err := Mounted(dir)
	if err != nil {
		return err
	}
	for i := len(mounted) - 1; i >= 0; i-- { // the newest mount is on top
		err := unix.Unmount(mounted[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, syscall.EINVAL) { // another Release was faster
			return fmt.Errorf("releasing volume: %w", err)
		}
	}
	return nil
}

// Mounted lists the volumes at and below dir, in the order in which they were mounted.
func Mounted(dir string) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, nil // only root can make volumes
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("looking for volumes: %w", err)
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		dir = filepath.Join(real, filepath.Base(dir))
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("looking for volumes: %w", err)
	}
	var out []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[2], strconv.Itoa(Major)+":") {
			continue
		}
		if at := Unescape(fields[4]); at == dir || strings.HasPrefix(at, dir+"/") {
			out = append(out, at)
		}
	}
	return out, nil
}

// Unescape returns a path of mountinfo, which has spaces, tabs, line ends and backslashes as octal numbers.
func Unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
