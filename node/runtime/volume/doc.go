// Package volume makes directories with a hard limit on their bytes and files. It runs on Linux, as root.
//
// A volume is a fully allocated file without a name, a loop device on it, and ext4 without a journal on that device,
// mounted at a directory.
//
// The kernel refuses a write without room (ENOSPC), from any writer at any speed. Nothing has to be measured, and no
// other room is used: all blocks are allocated beforehand.
//
// A crash leaves only the mount. The file has no name (O_TMPFILE) and the loop device frees itself, so both disappear
// with their last user: the process that makes them, the mount, or a container with the same mount. Release unmounts
// all volumes at and below a directory, and so deletes their content at once.
//
// No volume of Make survives a restart of the machine, so none needs a journal. A kept volume does: its file has a name
// and its file system a journal, and Remount mounts it again.
package volume

import "errors"

// ErrUnavailable reports that this machine has no volumes; its text names the missing part.
var ErrUnavailable = errors.New("no volumes on this machine")

// ErrNoRoom means that the disk has no room for a volume.
var ErrNoRoom = errors.New("no room for a volume")

const (
	// Major is the number of the devices that volumes are on: /dev/loop… .
	Major = 7
	// Reserve is the part of the disk that no volume may take, bytes: the journal of the peer writes there too.
	Reserve = 256 << 20
	// inodeBytes is the number of bytes of a disk for each file, as in most file systems.
	inodeBytes = 16 << 10
	// fewFiles is how many there may be at least.
	fewFiles = 1 << 10
	// journal is the size of the journal of a kept volume, the least that mke2fs makes with blocks of 4 KiB.
	journal = 4 << 20
)

// Files is how many files and directories may be in a volume of this many bytes.
func Files(bytes int64) int64 { return bytes/inodeBytes + fewFiles }

// KeptSize is Size of a kept volume.
func KeptSize(bytes int64) int64 { return Size(bytes) + journal }

// Size is how many bytes of disk a volume for this many bytes takes. Tables of files and blocks are beside them.
func Size(bytes int64) int64 {
	const block, inode = 4096, 256
	size := bytes + Files(bytes)*inode + bytes/256 + 2<<20
	return (size + block - 1) / block * block
}
