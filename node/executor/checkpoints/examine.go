package checkpoints

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/blob"
)

// look is the state of a directory: equal looks have equal names, types, lengths and times.
type look struct {
	entries int
	sum     uint64 // of the hashes of all entries
}

// seed is of the hashes of this process.
var seed = maphash.MakeSeed()

// add adds an entry.
func (l *look) add(name string, info fs.FileInfo) {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(name) // never fails
	b := binary.LittleEndian.AppendUint64([]byte{0}, uint64(info.Mode()))
	b = binary.LittleEndian.AppendUint64(b, uint64(info.Size()))
	if !info.IsDir() { // that of a directory follows from its entries
		b = binary.LittleEndian.AppendUint64(b, uint64(info.ModTime().UnixNano()))
	}
	_, _ = h.Write(b)
	l.entries++
	l.sum += h.Sum64()
}

// examine returns the state of an execution's checkpoint, which its program may change meanwhile. With open, shut
// reports whether this machine knows that no file in it is open for writing.
func examine(e *executor.Execution, open bool) (l look, shut bool, err error) {
	at, err := e.Stage().Open(e.Work, e.Work.Checkpoint.Path, false)
	if err != nil {
		return l, false, err
	}
	defer at.Root.Close()
	root, err := at.Root.OpenRoot(at.Name)
	if err != nil {
		return l, false, fmt.Errorf("opening the checkpoint: %w", err)
	}
	defer root.Close()
	shut = open
	err = runtime.Walk(root, func(name string, info fs.FileInfo) error {
		if l.add(name, info); l.entries > blob.MaxEntries {
			return fmt.Errorf("%w: more than %d entries", blob.ErrTree, blob.MaxEntries)
		}
		shut = shut && (!info.Mode().IsRegular() || closed(root, name))
		return nil
	})
	return l, shut, err
}

// closed reports whether this machine knows that no program has a regular file open for writing.
func closed(root *os.Root, name string) bool {
	f, err := root.OpenFile(name, os.O_RDONLY|nonblocking, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return unwritten(f)
}
