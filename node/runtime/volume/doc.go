// Package volume makes directories that cannot hold more than they may, in bytes and in files. It runs on Linux, as
// root.
//
//	file without a name, all of it allocated ── loop device ── ext4 without journal ── mounted at a directory
//
// The kernel refuses a write that has no room (ENOSPC), from any writer at any speed. Nothing has to be measured, and
// nobody else's room is taken: the file's blocks are allocated before anything is written.
//
// A crash leaves nothing but the mount. The file has no name (O_TMPFILE) and the loop device frees itself, so that both
// are gone with their last user: the process that makes them, then the mount, then a container that has it mounted too.
// Release takes away the mounts at and below a directory, whichever process made them. A volume's content is gone with
// it at once, however deep its directories are.
//
// No volume survives a restart of the machine. None has a journal: after one there is nothing to be recovered.
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
	// inodeBytes is how much of a disk there is for each file, as of most file systems.
	inodeBytes = 16 << 10
	// fewFiles is how many there may be at least.
	fewFiles = 1 << 10
)

// Files is how many files and directories may be in a volume of this many bytes.
func Files(bytes int64) int64 { return bytes/inodeBytes + fewFiles }

// Size is how many bytes of disk a volume for this many bytes takes. Tables of files and blocks are beside them.
func Size(bytes int64) int64 {
	const block, inode = 4096, 256
	size := bytes + Files(bytes)*inode + bytes/256 + 2<<20
	return (size + block - 1) / block * block
}
