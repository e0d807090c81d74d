package wasm

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/starling-network/starling/node/runtime"
	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
)

// block is the cost of every file and directory beyond its content.
const block = 4096

// quota bounds the bytes in all writable mounts of an execution. used is never less than the truth: growth is added
// before it happens, and removals are found by counting anew when the limit seems reached. Only the guest's thread uses
// it.
type quota struct {
	limit   int64
	used    int64
	roots   []*os.Root
	open    int                // files and directories that the guest has open now
	writing map[*file]struct{} // those open for writing: one that was removed still takes room until it is closed
	full    bool               // set when a request was refused; the host call's result becomes ENOSPC
	onHit   func()             // called once
}

// maxOpen bounds the guest's open files, so that there are always some left for the child itself.
const maxOpen = 512

// take asks for n more bytes.
func (q *quota) take(n int64) experimentalsys.Errno {
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
func (q *quota) count() error {
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
