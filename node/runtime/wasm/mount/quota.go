package mount

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/starling-network/starling/node/runtime"
	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
)

// block is the cost of every file and directory beyond its content.
const block = 4096

// Quota bounds the bytes in all writable mounts of an execution. used is never less than the truth: growth is added
// before it happens, and removals are found by counting anew when the limit seems reached. Only the guest's thread uses
// it.
type Quota struct {
	limit   int64
	used    int64
	roots   []*os.Root
	open    int                // files and directories that the guest has open now
	writing map[*file]struct{} // open for writing: a removed file takes room until it is closed
	full    bool               // a request was refused since Begin
	onHit   func()             // called once
	inodes  *inodes            // of all mounts; nil: as they are
}

// NewQuota returns a quota of limit bytes without mounts. onHit is called when it is first exhausted.
func NewQuota(limit int64, onHit func()) *Quota {
	return &Quota{limit: limit, writing: map[*file]struct{}{}, onHit: onHit}
}

// Same makes the metadata of all files the same in each run: inodes are numbered in the order in which they are seen,
// and every time is epoch, in nanoseconds since 1970. It is called before Open.
func (q *Quota) Same(epoch int64) { q.inodes = &inodes{epoch: epoch, seen: map[[2]uint64]uint64{}} }

// Open opens a host directory as a mount. Files in it count if the mount is writable.
func (q *Quota) Open(host string, readOnly bool) (*FS, error) {
	root, err := os.OpenRoot(host)
	if err != nil {
		return nil, err
	}
	if !readOnly {
		q.roots = append(q.roots, root)
	}
	return &FS{root: root, readOnly: readOnly, quota: q, inodes: q.inodes}, nil
}

// Over counts the files of the writable mounts. It returns their bytes above the limit; 0 or less if there are none.
func (q *Quota) Over() (int64, error) {
	err := q.count()
	return q.used - q.limit, err
}

// Begin begins a host call.
func (q *Quota) Begin() { q.full = false }

// Full reports whether the quota refused a request of this host call: its result becomes ENOSPC, for which wazero's
// file interface has no word.
func (q *Quota) Full() bool { return q.full }

// maxOpen bounds the guest's open files, so that there are always some left for the child itself.
const maxOpen = 512

// take reserves n more bytes.
func (q *Quota) take(n int64) experimentalsys.Errno {
	if n <= 0 {
		return 0
	}
	if n <= q.limit-q.used {
		q.used += n
		return 0
	}
	if err := q.count(); err != nil {
		return experimentalsys.EIO
	}
	if n <= q.limit-q.used {
		q.used += n
		return 0
	}
	q.full = true
	if q.onHit != nil {
		q.onHit()
		q.onHit = nil
	}
	return experimentalsys.EIO
}

// count sets used to the current content.
func (q *Quota) count() error {
	q.used = 0
	for _, root := range q.roots {
		err := runtime.Walk(root, func(_ string, info fs.FileInfo) error {
			q.used += cost(info)
			return nil
		})
		if err != nil {
			return fmt.Errorf("counting used space: %w", err)
		}
	}
	for f := range q.writing {
		if info, err := f.f.Stat(); err == nil && links(info) == 0 {
			q.used += cost(info)
		}
	}
	return nil
}

func cost(info fs.FileInfo) int64 {
	if !info.Mode().IsRegular() {
		return block
	}
	return block + blocks(info.Size())
}

// blocks rounds a size up to whole blocks. Callers check sizes to be under 1<<62.
func blocks(size int64) int64 { return (size + block - 1) / block * block }
